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
	StageSpread   = "spread"   // the clusters near every context, for SetOptions.Spread
	StageGeometry = "geometry" // shares of labels in the clusters, which it counts, for SetOptions.Geometry
	StageProbe    = "probe"    // the two best clusters of every context, for SetOptions.ProbeShare
	StageTail     = "tail"     // the weight of the labels outside the sets, for Options.Tail
)

// Stages returns the names of the stages in their order. A run may come back to
// StageAssign.
func Stages() []string {
	return []string{StageLabels, StageKMeans, StageGroups, StageLearn, StageAssign, StageMeasure, StageSpread, StageGeometry, StageProbe, StageTail}
}

// Progress is one report of how a run goes.
type Progress struct {
	// Stage is one of [Stages].
	Stage string
	// Iteration is the iteration of k-means or the alternation, from 1; 0
	// if there is none.
	Iteration int
	// Done of Total contexts, or clusters, are finished in this stage and iteration.
	Done, Total int
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
	if r.call == nil {
		return nil
	}
	r.now = Progress{Stage: name, Iteration: iteration, Total: total}
	r.call(r.now)
	return parallel.Counter(total, func(done int) {
		r.now.Done = done
		r.call(r.now)
	})
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
