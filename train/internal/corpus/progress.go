package corpus

import "github.com/learning-to-screen/l2s/internal/ground/parallel"

// Progress is a report of the progress of a run, see train.Progress.
type Progress struct {
	Stage, Part string
	Iteration   int
	Done, Total int
	Unit        string
	Message     string
}

// Reporter calls a progress function, one call at a time and not too often. One stage is under way
// at a time. The zero value reports to nobody.
type Reporter struct {
	Call func(Progress)
	now  Progress
}

// Stage begins a stage and returns the counter of finished work; nil if nobody listens.
func (r *Reporter) Stage(name string, iteration, total int) func(int) {
	return r.begin(Progress{Stage: name, Iteration: iteration, Total: total, Unit: "contexts"})
}

// Part is Stage for a part of a stage that counts other units.
func (r *Reporter) Part(stage, name, unit string, total int) func(int) {
	return r.begin(Progress{Stage: stage, Part: name, Total: total, Unit: unit})
}

func (r *Reporter) begin(p Progress) func(int) {
	if r.Call == nil {
		return nil
	}
	r.now = p
	r.Call(r.now)
	return parallel.Counter(p.Total, func(done int) {
		r.now.Done = done
		r.Call(r.now)
	})
}

// Message reports a line of figures on the stage that is finished.
func (r *Reporter) Message(text string) {
	if r.Call == nil {
		return
	}
	p := r.now
	p.Message = text
	r.Call(p)
}
