package train

import "github.com/learning-to-screen/l2s/train/internal/corpus"

// Progress is one report of how a run goes.
type Progress struct {
	// Stage is, in the order of a run, "labels" (the exact labels of every context), "k-means",
	// "learn" (gradient descent on V), "assign" (the clusters of all contexts, to which a run may
	// come back), "measure" (lists without the held-out contexts), "lists" (of all contexts) or
	// "tail" (the weight of the labels outside the candidates).
	Stage string
	// Part, if not empty, names the current part of the stage. The stage then consists of several
	// parts, one after the other, and the fields below are about this part.
	Part string
	// Iteration is the iteration of k-means or the alternation, from 1; 0
	// if there is none.
	Iteration int
	// Done of Total units are finished in this stage, part and iteration.
	Done, Total int
	// Unit is the unit of the counts: contexts, clusters or labels.
	Unit string
	// Message, if not empty, is a line of figures about finished work, or a decision.
	Message string
}

// newReporter returns a reporter that calls call, unless it is nil.
func newReporter(call func(Progress)) *corpus.Reporter {
	if call == nil {
		return &corpus.Reporter{}
	}
	return &corpus.Reporter{Call: func(p corpus.Progress) { call(Progress(p)) }}
}
