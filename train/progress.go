package train

import (
	"github.com/learning-to-screen/l2s/train/internal/corpus"
	"github.com/learning-to-screen/l2s/train/internal/kmeans"
	"github.com/learning-to-screen/l2s/train/internal/learn"
	"github.com/learning-to-screen/l2s/train/internal/tail"
)

// The stages of a run, in their order.
const (
	StageLabels  = "labels"          // exact top-k of the full layer for every context
	StageKMeans  = kmeans.Stage      // spherical k-means
	StageLearn   = learn.StageLearn  // gradient descent on V
	StageAssign  = learn.StageAssign // clusters of all contexts
	StageMeasure = "measure"         // lists without the held-out contexts, to decide and to measure
	StageLists   = "lists"           // lists of all contexts
	StageTail    = tail.Stage        // the weight of the labels outside the candidates
)

// Stages returns the names of the stages in their order. A run may come back to
// StageAssign.
func Stages() []string {
	return []string{StageLabels, StageKMeans, StageLearn, StageAssign, StageMeasure, StageLists, StageTail}
}

// Progress is one report of how a run goes.
type Progress struct {
	// Stage is one of [Stages].
	Stage string
	// Part, if not empty, says what of the stage is under way. The stage then consists
	// of several parts, one after the other, and what follows is of this part.
	Part string
	// Iteration is the iteration of k-means or the alternation, from 1; 0
	// if there is none.
	Iteration int
	// Done of Total units are finished in this stage, part and iteration.
	Done, Total int
	// Unit says what is counted: contexts, clusters or labels.
	Unit string
	// Message, if not empty, is a line of figures about what has just been
	// finished, or of what was decided.
	Message string
}

// newReporter returns a reporter that tells call, unless it is nil.
func newReporter(call func(Progress)) *corpus.Reporter {
	if call == nil {
		return &corpus.Reporter{}
	}
	return &corpus.Reporter{Call: func(p corpus.Progress) { call(Progress(p)) }}
}
