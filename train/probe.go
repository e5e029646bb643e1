package train

import (
	"context"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/softmax"
)

// probes says which contexts get the candidates of two clusters: those in which
// the lead of the best cluster over the second best is below margin.
type probes struct {
	margin float64
	second []uint32 // of each context: its second cluster, or again its own where it gets one set
	pairs  []pair
}

// pair counts the contexts that get the sets of both clusters, of one where the
// two are the same.
type pair struct{ first, second, contexts uint32 }

// newProbes lets the given share of all contexts, those of the smallest lead,
// have two clusters. cluster holds the cluster of each context.
func newProbes(ctx context.Context, t *trainer, weights []float32, cluster []uint32, opt *Options) (*probes, error) {
	r, err := newRouter(weights, t.dim, opt)
	if err != nil {
		return nil, err
	}
	p := &probes{second: make([]uint32, t.n)}
	leads := make([]float64, t.n)
	err = t.eachQuery(ctx, t.report.stage(StageProbe, 0, t.n), func(_, i int, q *softmax.Query) {
		var best [2]softmax.Prediction
		leads[i] = math.Inf(1)
		if r.best(best[:], q, r.group(q)) == 2 {
			leads[i] = best[0].Logit - best[1].Logit
			p.second[i] = best[1].ID
		}
	})
	if err != nil {
		return nil, err
	}
	sorted := slices.Clone(leads)
	slices.Sort(sorted)
	p.margin = min(sorted[int(float64(opt.ProbeShare*float64(t.n)))], math.MaxFloat64)
	keys := make([]uint64, t.n)
	for i, lead := range leads {
		if lead >= p.margin {
			p.second[i] = cluster[i]
		}
		keys[i] = uint64(cluster[i])<<32 | uint64(p.second[i])
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
	return p, nil
}

// takeSteps is the number of halvings of the budget that take tries.
const takeSteps = 30

// take solves the knapsack for the largest budget of single sets at which the
// mean number of candidates, with those of two sets, is within the given one.
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
			size = unionSize(c.sets[x.first], c.sets[x.second])
		}
		sum += uint64(x.contexts) * uint64(size)
		contexts += uint64(x.contexts)
	}
	return float64(sum) / float64(contexts)
}

// unionSize is the number of ids in either of two ascending lists.
func unionSize(a, b []uint32) int {
	n := len(a) + len(b)
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i] < b[j]:
			i++
		case a[i] > b[j]:
			j++
		default:
			n, i, j = n-1, i+1, j+1
		}
	}
	return n
}

// measure is trainer.measure over all contexts, with the second sets.
func (p *probes) measure(t *trainer, c *candidateSets, cluster []uint32) figures {
	m := newMembership(c.sets, t.universe)
	var first, all int
	for i := range t.n {
		own, other := int(cluster[i]), int(p.second[i])
		for j, s := range t.labelsOf(uint32(i)) {
			if m.has(own, s) || m.has(other, s) {
				all++
				if j == 0 {
					first++
				}
			}
		}
	}
	n := float64(t.n)
	return figures{float64(first) / n, float64(all) / (n * float64(t.k)), p.mean(c), all}
}
