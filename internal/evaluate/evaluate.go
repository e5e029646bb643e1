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

	"github.com/learning-to-screen/l2s/internal/exact"
	"github.com/learning-to-screen/l2s/internal/logsum"
	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/internal/precision"
	"github.com/learning-to-screen/l2s/internal/ranking"
	"github.com/learning-to-screen/l2s/internal/screening"
	"github.com/learning-to-screen/l2s/internal/tail"
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
	d := m.Dim()
	if len(contexts) == 0 || len(contexts)%d != 0 {
		return nil, fmt.Errorf("screen: contexts: found %d elements, expected a positive multiple of dimension %d", len(contexts), d)
	}
	if opt.Threads < 0 {
		return nil, fmt.Errorf("screen: threads: found %d, expected at least 0", opt.Threads)
	}
	ks := opt.K
	if ks == nil {
		ks = slices.Compact([]int{1, min(5, m.Labels())})
	}
	for _, k := range ks {
		if k < 1 || k > m.Labels() {
			return nil, fmt.Errorf("screen: k: found %d, expected 1 to the %d labels", k, m.Labels())
		}
	}
	n := len(contexts) / d
	if opt.Targets != nil && len(opt.Targets) != n {
		return nil, fmt.Errorf("screen: targets: found %d, expected one for each of %d contexts", len(opt.Targets), n)
	}
	for i, id := range opt.Targets {
		if id >= int64(m.Labels()) {
			return nil, fmt.Errorf("screen: targets: found label %d at %d, expected one below the %d labels", id, i, m.Labels())
		}
	}
	temperature := cmp.Or(opt.Temperature, 1)
	if err := tail.CheckTemperature(temperature); err != nil {
		return nil, err
	}
	logs := make([][2]float64, len(opt.Targets)) // added up in order
	r := &Evaluation{Contexts: n, Routing: m.Clusters(), AtK: make([]Precision, len(ks))}
	located, outcomes, sizes := make([]screening.Location, n), make([]precision.Outcome, n), make([]int, n)
	threads := parallel.Threads(opt.Threads, (n+chunk-1)/chunk)
	// All searchers are made before any work, so that a wrong input is an error at once.
	searchers, layers := make([]*screening.Searcher, threads), make([]*exact.Searcher, threads)
	for i := range searchers {
		s, err := screening.NewSearcher(m, l, opt.Searcher)
		if err != nil {
			return nil, err
		}
		searchers[i], layers[i] = s, exact.NewSearcher(l)
	}
	largest := slices.Max(append([]int{1}, ks...))
	var done func(int)
	if opt.Progress != nil {
		done = parallel.Counter(n, func(done int) { opt.Progress(done, n) })
	}
	err := parallel.Each(ctx, threads, n, chunk, done, func(worker, lo, hi int) error {
		screened, full, best := searchers[worker], layers[worker], make([]exact.Prediction, largest)
		for i := lo; i < hi; i++ {
			h := contexts[i*d : (i+1)*d]
			v, err := screened.Look(h, 0)
			if err == nil {
				located[i] = v.Location
				_, err = full.TopK(best, h)
			}
			if err == nil && opt.Targets != nil && opt.Targets[i] >= 0 {
				id := uint32(opt.Targets[i])
				if logs[i][0], err = logsum.LogProb(screened, h, id, temperature); err == nil {
					logs[i][1], err = full.LogProb(h, id, temperature)
				}
			}
			if err != nil {
				return fmt.Errorf("screen: contexts: row %d: %w", i, err)
			}
			outcomes[i] = Outcome(m, located[i].Cell, best)
		}
		return nil
	})
	switch {
	case err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return nil, fmt.Errorf("screen: evaluate: %w", context.Cause(ctx))
	case err != nil:
		return nil, err
	}
	for i, x := range located {
		sizes[i] = x.N
	}
	for i, k := range ks {
		p, hits, scored := &r.AtK[i], 0, 0
		p.K = k
		for j, x := range located {
			if x.Exact || x.N < k {
				p.Exact, hits, scored = p.Exact+1, hits+k, scored+m.Labels()
				continue
			}
			hits, scored = hits+outcomes[j].Among(k, x.N), scored+x.N
		}
		p.Precision, p.MeanScored = float64(hits)/(float64(n)*float64(k)), float64(scored)/float64(n)
	}
	r.Budget, r.Ladder = m.Ladder()[located[0].Rung].Budget, Measure(m, outcomes, largest)
	r.MeanCandidates, r.P99Candidates, r.MaxCandidates = precision.Spread(sizes)
	targets, screened, full := 0.0, 0.0, 0.0
	for i, id := range opt.Targets {
		if id >= 0 {
			targets, screened, full = targets+1, screened+logs[i][0], full+logs[i][1]
		}
	}
	if targets > 0 {
		r.Perplexity, r.ExactPerplexity = math.Exp(-screened/targets), math.Exp(-full/targets)
	}
	return r, nil
}

// Candidates returns the candidates that a cell has within a budget, best first, not to be changed;
// [screening.Model.RungOf] describes budgets. It returns an error if the budget is not above 0.
func Candidates(m *screening.Model, cell int, budget float64) ([]uint32, error) {
	at, err := m.RungOf(budget)
	if err != nil {
		return nil, err
	}
	n := m.SizesAt(m.Ladder()[at].Share)[cell]
	return m.List(cell).IDs[:n:n], nil
}

// Outcome returns the outcome of a context of that cell whose best labels are these.
func Outcome(m *screening.Model, cell int, best []exact.Prediction) precision.Outcome {
	return precision.Find(cell, m.List(cell).IDs, ranking.IDs(make([]uint32, 0, len(best)), best))
}

// Measure returns the ladder with the figures of these contexts, given in the order of the
// text: P@1, and P@k for the k of each outcome, at least 1.
func Measure(m *screening.Model, outcomes []precision.Outcome, k int) []screening.Rung {
	ladder := slices.Clone(m.Ladder())
	for i, x := range ladder {
		sizes := m.SizesAt(x.Share)
		ladder[i] = NewRung(x.Budget, x.Share, precision.Measure(outcomes, k, func(cell int) int { return int(sizes[cell]) }))
	}
	return ladder
}

// NewRung is a rung with these figures.
func NewRung(budget float64, share uint16, f precision.Figures) screening.Rung {
	return screening.Rung{Budget: budget, Share: share, MeanCandidates: f.Mean, P99Candidates: f.P99, MaxCandidates: f.Max, Precision1: f.Precision1, PrecisionK: f.PrecisionK}
}
