// Package evaluate measures screens on contexts: the places of the best labels in the lists tell
// the finds of every budget at once. It finds own states of labels too, on which any search can be
// measured.
package evaluate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/ground/parallel"
	"github.com/learning-to-screen/l2s/internal/ground/precision"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/logsum"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/search/tail"
)

// Options is screen.EvaluateOptions.
type Options struct {
	K           []int
	Threads     int
	Targets     []int64
	Temperature float64
	Searcher    screening.Options
	Progress    func(done, total int)
}

// Evaluation is screen.Evaluation.
type Evaluation struct {
	Contexts                     int
	Budget                       float64
	MeanCandidates               float64
	P99Candidates, MaxCandidates int
	Routing                      int
	Perplexity, ExactPerplexity  float64
	AtK                          []Precision
	Ladder                       []screening.Rung
}

// Precision is screen.Precision.
type Precision struct {
	K          int
	Precision  float64
	Exact      int
	MeanScored float64
}

// chunk is the number of contexts that a goroutine of Run takes at once.
const chunk = 64

// Run is screen.Evaluate.
func Run(ctx context.Context, m *screening.Model, l *exact.Layer, contexts []float32, opt Options) (*Evaluation, error) {
	if err := screening.Check(m, l); err != nil {
		return nil, err
	}
	if opt.K == nil {
		opt.K = slices.Compact([]int{1, min(5, m.Labels())})
	}
	opt.Temperature = cmp.Or(opt.Temperature, 1)
	if err := opt.check(m, contexts); err != nil {
		return nil, err
	}
	x := &pass{Options: opt, model: m, contexts: contexts, n: len(contexts) / m.Dim()}
	if err := x.ask(ctx, l); err != nil {
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			err = fmt.Errorf("screen: evaluate: %w", context.Cause(ctx))
		}
		return nil, err
	}
	return x.evaluation(), nil
}

func (o *Options) check(m *screening.Model, contexts []float32) error {
	d := m.Dim()
	if len(contexts) == 0 || len(contexts)%d != 0 {
		return fmt.Errorf("screen: contexts: found %d elements, expected a positive multiple of dimension %d", len(contexts), d)
	}
	if o.Threads < 0 {
		return fmt.Errorf("screen: threads: found %d, expected at least 0", o.Threads)
	}
	for _, k := range o.K {
		if k < 1 || k > m.Labels() {
			return fmt.Errorf("screen: k: found %d, expected 1 to the %d labels", k, m.Labels())
		}
	}
	if n := len(contexts) / d; o.Targets != nil && len(o.Targets) != n {
		return fmt.Errorf("screen: targets: found %d, expected one for each of %d contexts", len(o.Targets), n)
	}
	for i, id := range o.Targets {
		if id >= int64(m.Labels()) {
			return fmt.Errorf("screen: targets: found label %d at %d, expected one below the %d labels", id, i, m.Labels())
		}
	}
	return tail.CheckTemperature(o.Temperature)
}

// pass has the results of all contexts, in their order.
type pass struct {
	Options
	model    *screening.Model
	contexts []float32
	n        int

	located  []screening.Location
	outcomes []precision.Outcome
	logs     [][2]float64 // log-probabilities of the targets, by the screen and by the layer
}

// largest is the largest k.
func (x *pass) largest() int { return slices.Max(append([]int{1}, x.K...)) }

// ask asks the screen and the layer about all contexts.
func (x *pass) ask(ctx context.Context, l *exact.Layer) error {
	x.located, x.outcomes, x.logs = make([]screening.Location, x.n), make([]precision.Outcome, x.n), make([][2]float64, len(x.Targets))
	threads := parallel.Threads(x.Threads, (x.n+chunk-1)/chunk)
	// All searchers are made before any work, so that a wrong input is an error at once.
	searchers, layers := make([]*screening.Searcher, threads), make([]*exact.Searcher, threads)
	for i := range searchers {
		s, err := screening.NewSearcher(x.model, l, x.Searcher)
		if err != nil {
			return err
		}
		searchers[i], layers[i] = s, exact.NewSearcher(l)
	}
	var done func(int)
	if x.Progress != nil {
		done = parallel.Counter(x.n, func(done int) { x.Progress(done, x.n) })
	}
	return parallel.Each(ctx, threads, x.n, chunk, done, func(worker, lo, hi int) error {
		best := make([]exact.Prediction, x.largest())
		for i := lo; i < hi; i++ {
			if err := x.askAbout(i, searchers[worker], layers[worker], best); err != nil {
				return fmt.Errorf("screen: contexts: row %d: %w", i, err)
			}
		}
		return nil
	})
}

func (x *pass) askAbout(i int, screened *screening.Searcher, full *exact.Searcher, best []exact.Prediction) error {
	d := x.model.Dim()
	h := x.contexts[i*d : (i+1)*d]
	v, err := screened.Look(h, 0)
	if err != nil {
		return err
	}
	x.located[i] = v.Location
	if _, err = full.TopK(best, h); err != nil {
		return err
	}
	if x.Targets != nil && x.Targets[i] >= 0 {
		id := uint32(x.Targets[i])
		if x.logs[i][0], err = logsum.LogProb(screened, h, id, x.Temperature); err != nil {
			return err
		}
		if x.logs[i][1], err = full.LogProb(h, id, x.Temperature); err != nil {
			return err
		}
	}
	x.outcomes[i] = x.model.Outcome(x.located[i].Cell, best)
	return nil
}

// evaluation returns the figures of all contexts.
func (x *pass) evaluation() *Evaluation {
	m := x.model
	r := &Evaluation{Contexts: x.n, Routing: m.Clusters(), Budget: m.Ladder()[x.located[0].Rung].Budget, Ladder: m.Measure(x.outcomes, x.largest())}
	sizes := make([]int, x.n)
	for i, at := range x.located {
		sizes[i] = at.N
	}
	r.MeanCandidates, r.P99Candidates, r.MaxCandidates = precision.Spread(sizes)
	r.AtK = make([]Precision, len(x.K))
	for i, k := range x.K {
		r.AtK[i] = x.precision(k)
	}
	targets, screened, full := 0.0, 0.0, 0.0 // added up in order
	for i, id := range x.Targets {
		if id >= 0 {
			targets, screened, full = targets+1, screened+x.logs[i][0], full+x.logs[i][1]
		}
	}
	if targets > 0 {
		r.Perplexity, r.ExactPerplexity = math.Exp(-screened/targets), math.Exp(-full/targets)
	}
	return r
}

func (x *pass) precision(k int) Precision {
	p, hits, scored := Precision{K: k}, 0, 0
	for i, at := range x.located {
		if at.Exact || at.N < k {
			p.Exact, hits, scored = p.Exact+1, hits+k, scored+x.model.Labels()
			continue
		}
		hits, scored = hits+x.outcomes[i].Among(k, at.N), scored+at.N
	}
	p.Precision, p.MeanScored = float64(hits)/(float64(x.n)*float64(k)), float64(scored)/float64(x.n)
	return p
}
