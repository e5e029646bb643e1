package train

import "github.com/learning-to-screen/l2s/internal/parallel"

// The stages of a run, in their order.
const (
	StageLabels   = "labels"   // exact top-k of the full layer for every context
	StageKMeans   = "k-means"  // spherical k-means
	StageGroups   = "groups"   // spherical k-means within each group, on two levels; or groups that overlap
	StageLearn    = "learn"    // gradient descent on V
	StageAssign   = "assign"   // clusters of all contexts and the knapsack
	StageMeasure  = "measure"  // sets without the held-out slice, for Options.Measure
	StageShells   = "shells"   // how far every context lies from its cluster, for SetOptions.Shells
	StageSpread   = "spread"   // the clusters near every context, for SetOptions.Spread
	StageGeometry = "geometry" // shares of labels in the clusters, for SetOptions.Geometry
	StageProbe    = "probe"    // the two best clusters of every context, for SetOptions.ProbeShare
	StageTail     = "tail"     // the weight of the labels outside the sets, for Options.Tail
)

// Stages returns the names of the stages in their order. A run may come back to
// StageAssign.
func Stages() []string {
	return []string{StageLabels, StageKMeans, StageGroups, StageLearn, StageAssign, StageMeasure, StageShells, StageSpread, StageGeometry, StageProbe, StageTail}
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
	// finished.
	Message string
}

// reporter calls a progress function, one call at a time and not too often. One
// stage is under way at a time.
type reporter struct {
	call func(Progress)
	now  Progress
}

// stage begins a stage and returns the counter of what is done; nil if nobody
// listens.
func (r *reporter) stage(name string, iteration, total int) func(int) {
	return r.begin(Progress{Stage: name, Iteration: iteration, Total: total, Unit: "contexts"})
}

// part is stage for a part of a stage that counts other units.
func (r *reporter) part(stage, name, unit string, total int) func(int) {
	return r.begin(Progress{Stage: stage, Part: name, Total: total, Unit: unit})
}

func (r *reporter) begin(p Progress) func(int) {
	if r.call == nil {
		return nil
	}
	total := p.Total
	r.now = p
	r.call(r.now)
	return parallel.Counter(total, func(done int) {
		r.now.Done = done
		r.call(r.now)
	})
}

// within returns a reporter for work that is done as parts of the stage: its stages are
// parts, and its messages are left out.
func (r *reporter) within(stage string) *reporter {
	if r.call == nil {
		return &reporter{}
	}
	return &reporter{call: func(p Progress) {
		if p.Message != "" {
			return
		}
		if p.Part != "" {
			p.Part = p.Stage + ", " + p.Part
		} else {
			p.Part = p.Stage
		}
		p.Stage = stage
		r.now = p
		r.call(p)
	}}
}

// message reports a line of figures on the stage that is finished.
func (r *reporter) message(text string) {
	if r.call == nil {
		return
	}
	p := r.now
	p.Message = text
	r.call(p)
}
