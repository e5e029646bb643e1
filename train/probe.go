package train

import (
	"context"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/train/internal/ids"
)

// probes says which contexts get the candidates of two clusters: those in which
// the lead of the best cluster over the second best is below margin.
type probes struct {
	margin float64
	second []uint32 // of each context: its second cluster or cell, or again its own if it gets one set
	pairs  []pair
}

// pair counts the contexts that get the sets of both clusters, of one if the
// two are the same.
type pair struct{ first, second, contexts uint32 }

// findProbes lets the given share of all contexts, the ones with the smallest lead,
// have two clusters.
func findProbes(ctx context.Context, d *data, c *clusters, s *shells, share float64) (*probes, error) {
	second, leads, err := c.runnersUp(ctx, d, d.report.stage(StageProbe, 0, d.n))
	if err != nil {
		return nil, err
	}
	sorted := slices.Clone(leads)
	slices.Sort(sorted)
	margin := min(sorted[int(float64(share*float64(d.n)))], math.MaxFloat64)
	return newProbes(c, s, second, leads, margin), nil
}

// findProbesWithin lets the contexts whose lead is below the margin have two
// clusters.
func findProbesWithin(ctx context.Context, d *data, c *clusters, s *shells, margin float64) (*probes, error) {
	second, leads, err := c.runnersUp(ctx, d, nil)
	if err != nil {
		return nil, err
	}
	return newProbes(c, s, second, leads, margin), nil
}

// newProbes takes second over. Without shells s is nil.
func newProbes(c *clusters, s *shells, second []uint32, leads []float64, margin float64) *probes {
	p := &probes{second: second, margin: margin}
	if s != nil {
		c, p.second = s.cells(c), s.cellsOf(c.clusters, second)
	}
	keys := make([]uint64, len(leads))
	for i, lead := range leads {
		if lead >= p.margin {
			p.second[i] = c.cluster[i]
		}
		keys[i] = uint64(c.cluster[i])<<32 | uint64(p.second[i])
	}
	slices.Sort(keys)
	for start := 0; start < len(keys); {
		end := start + 1
		for end < len(keys) && keys[end] == keys[start] {
			end++
		}
		p.pairs = append(p.pairs, pair{uint32(keys[start] >> 32), uint32(keys[start]), uint32(end - start)})
		start = end
	}
	return p
}

// takeSteps is the number of halvings of the budget that take tries.
const takeSteps = 30

// take solves the knapsack for the largest budget of single sets at which the
// mean number of candidates, with two sets for some, is within the given one.
// The sets for a smaller budget are subsets of those for a larger one, so that
// the mean grows with it.
func (p *probes) take(r *ranking, budget float64) *candidateSets {
	lo, hi := 0.0, budget
	best := r.take(lo)
	for range takeSteps {
		middle := (lo + hi) / 2
		if sets := r.take(middle); p.mean(sets) <= budget {
			best, lo = sets, middle
		} else {
			hi = middle
		}
	}
	return best
}

// mean is L-bar with the second sets.
func (p *probes) mean(c *candidateSets) float64 {
	sum, contexts := uint64(0), uint64(0)
	for _, x := range p.pairs {
		size := len(c.sets[x.first])
		if x.first != x.second {
			size = ids.UnionSize(c.sets[x.first], c.sets[x.second])
		}
		sum += uint64(x.contexts) * uint64(size)
		contexts += uint64(x.contexts)
	}
	return float64(sum) / float64(contexts)
}
