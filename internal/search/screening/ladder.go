package screening

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/learning-to-screen/l2s/internal/ground/precision"
	"github.com/learning-to-screen/l2s/internal/ground/ranking"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// A budget B bounds the mean number of candidates over the contexts of training (L-bar <= B,
// Equation 7 of the paper). The greedy knapsack takes candidates by falling share, so that a budget
// is a threshold: the candidates of a cell are the ids of its list whose share reaches it. One file
// serves every budget of its ladder.

// Rung is one budget of a model.
type Rung struct {
	// Budget is B, above 0 and finite. It ascends over the ladder.
	Budget float64 `json:"budget"`
	// Share is the threshold. It does not ascend over the ladder.
	Share uint16 `json:"share"`
	// MeanCandidates, P99Candidates and MaxCandidates are the mean, the 99th percentile and the
	// largest of the numbers of candidates of held-out contexts, all 0 without such contexts.
	MeanCandidates float64 `json:"mean_candidates"`
	P99Candidates  int     `json:"p99_candidates"`
	MaxCandidates  int     `json:"max_candidates"`
	// Precision1 and PrecisionK are P@1 and P@k of these contexts.
	Precision1 Estimate `json:"precision_1"`
	PrecisionK Estimate `json:"precision_k"`
}

// Estimate is a measured number with its 95% interval: 0 <= Low <= Value <= High <= 1.
type Estimate = precision.Estimate

// maxRungs bounds the budgets of a model.
const maxRungs = 64

func (m *Model) checkLadder() error {
	if n := len(m.c.Ladder); n < 1 || n > maxRungs {
		return fmt.Errorf("found %d budgets, expected 1 to %d", n, maxRungs)
	}
	if m.c.K < 0 || m.c.K > m.c.Labels || m.c.HeldOut < 0 || m.c.HeldOut > maxCount {
		return fmt.Errorf("found k %d and %d held-out contexts, expected 0 to the %d labels, and 0 or more", m.c.K, m.c.HeldOut, m.c.Labels)
	}
	for i, x := range m.c.Ladder {
		switch {
		case !(x.Budget > 0) || math.IsInf(x.Budget, 1) || i > 0 && x.Budget <= m.c.Ladder[i-1].Budget:
			return fmt.Errorf("rung %d: found budget %v, expected finite numbers above 0, ascending", i, x.Budget)
		case i > 0 && x.Share > m.c.Ladder[i-1].Share:
			return fmt.Errorf("rung %d: found share %d after %d, expected shares that do not ascend", i, x.Share, m.c.Ladder[i-1].Share)
		case !(x.MeanCandidates >= 0) || math.IsInf(x.MeanCandidates, 1) || x.P99Candidates < 0 || x.MaxCandidates < x.P99Candidates || x.MaxCandidates > m.c.Labels:
			return fmt.Errorf("rung %d: found %v, %d and %d candidates, expected a mean, a 99th percentile and a largest number", i, x.MeanCandidates, x.P99Candidates, x.MaxCandidates)
		}
		for _, e := range []Estimate{x.Precision1, x.PrecisionK} {
			if !(0 <= e.Low && e.Low <= e.Value && e.Value <= e.High && e.High <= 1) {
				return fmt.Errorf("rung %d: found precision %v within %v and %v, expected numbers from 0 to 1 in order", i, e.Value, e.Low, e.High)
			}
		}
	}
	return nil
}

// Ladder returns the budgets that the model knows, ascending. It must not be changed.
func (m *Model) Ladder() []Rung { return m.c.Ladder }

// Budget returns the budget of requests without a budget.
func (m *Model) Budget() float64 { return m.c.Budget }

// RungOf returns the place of the largest budget of the ladder that is not above the given one, or
// of the smallest: a request that one model takes is not refused by another one, which may take its
// place.
func (m *Model) RungOf(budget float64) (int, error) {
	if !(budget > 0) { // or NaN
		return 0, exact.Invalid(exact.ErrRequest, "l2s: budget: found %v, expected a number above 0", budget)
	}
	return precision.StepOf(len(m.c.Ladder), func(i int) float64 { return m.c.Ladder[i].Budget }, budget), nil
}

// Candidates returns the candidates that a cell has within a budget, best first, not to be changed;
// [Model.RungOf] describes budgets. It returns an error if the budget is not above 0.
func (m *Model) Candidates(cell int, budget float64) ([]uint32, error) {
	at, err := m.RungOf(budget)
	if err != nil {
		return nil, err
	}
	return m.first(cell, int(m.SizesAt(m.c.Ladder[at].Share)[cell])), nil
}

// Outcome returns the outcome of a context of that cell whose best labels are these.
func (m *Model) Outcome(cell int, best []exact.Prediction) precision.Outcome {
	return precision.Find(cell, m.c.Lists[cell].IDs, ranking.IDs(make([]uint32, 0, len(best)), best))
}

// Measure returns the ladder with the figures of these contexts, given in the order of the
// text: P@1, and P@k for the k of each outcome, at least 1.
func (m *Model) Measure(outcomes []precision.Outcome, k int) []Rung {
	ladder := slices.Clone(m.c.Ladder)
	for i, x := range ladder {
		sizes := m.SizesAt(x.Share)
		ladder[i] = NewRung(x.Budget, x.Share, precision.Measure(outcomes, k, func(cell int) int { return int(sizes[cell]) }))
	}
	return ladder
}

// NewRung is a rung with these figures.
func NewRung(budget float64, share uint16, f precision.Figures) Rung {
	return Rung{Budget: budget, Share: share, MeanCandidates: f.Mean, P99Candidates: f.P99, MaxCandidates: f.Max, Precision1: f.Precision1, PrecisionK: f.PrecisionK}
}

// SizesAt returns for each cell the number of its candidates of at least that share, not to
// be changed.
func (m *Model) SizesAt(share uint16) []uint32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if sizes, ok := m.sizes[share]; ok {
		return sizes
	}
	sizes := make([]uint32, m.Cells())
	for t := range sizes {
		shares := m.c.Lists[t].Shares
		sizes[t] = uint32(sort.Search(len(shares), func(i int) bool { return shares[i] < share }))
	}
	m.sizes[share] = sizes
	return sizes
}

func (m *Model) first(cell, n int) []uint32 { return m.c.Lists[cell].IDs[:n:n] }
