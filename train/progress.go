package train

import "sync"

// The stages of a run, in their order.
const (
	StageLabels = "labels"  // exact top-k of the full layer for every context
	StageKMeans = "k-means" // spherical k-means
	StageGroups = "groups"  // spherical k-means within each group, on two levels
	StageLearn  = "learn"   // gradient descent on V
	StageAssign = "assign"  // clusters of all contexts and the knapsack
	StageSpread = "spread"  // the clusters near every context, for Options.Spread
	StageProbe  = "probe"   // the two best clusters of every context, for Options.ProbeShare
	StageRoute  = "route"   // the two best clusters of every context, in Calibrate
)

// Progress is one report of how a run goes.
type Progress struct {
	// Stage is one of StageLabels, StageKMeans, StageGroups, StageLearn,
	// StageAssign, StageSpread, StageProbe; those of Calibrate are StageLabels and StageRoute.
	Stage string
	// Iteration is the iteration of k-means or the alternation, from 1; 0
	// where there is none.
	Iteration int
	// Done of Total contexts are finished in this stage and iteration.
	Done, Total int
	// Message, where not empty, is a line of figures about what has just been
	// finished.
	Message string
}

// reporter calls a progress function, one call at a time and not too often.
type reporter struct {
	mu   sync.Mutex
	call func(Progress)
	now  Progress
	told int // Done at the last call
}

// stage begins a stage and returns the counter for forEach; nil where nobody
// listens.
func (r *reporter) stage(name string, iteration, total int) func(int) {
	if r.call == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = Progress{Stage: name, Iteration: iteration, Total: total}
	r.told = 0
	r.call(r.now)
	return r.add
}

// add counts n more as done. A stage is reported about a hundred times.
func (r *reporter) add(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now.Done += n
	if r.now.Done == r.now.Total || (r.now.Done-r.told)*100 >= r.now.Total {
		r.told = r.now.Done
		r.call(r.now)
	}
}

// message reports a line of figures on the current stage.
func (r *reporter) message(text string) {
	if r.call == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.now
	p.Message = text
	r.call(p)
}
