package train

import (
	"cmp"
	"context"
	"math"
	"math/bits"
	"slices"

	"github.com/learning-to-screen/l2s/internal/parallel"
)

// item is one (cluster, label) pair of the knapsack: label s is among the
// labels of count = n_ts of the N_t contexts of cluster t. If contexts are
// spread over clusters count is in parts of a context.
type item struct{ cluster, label, count uint32 }

// counts are the numbers n_ts over a set of contexts, without the zeros.
type counts struct {
	labels int      // L
	total  int      // N, the number of contexts
	sizes  []uint32 // N_t, the contexts whose cluster is t
	items  []item   // n_ts > 0, grouped by cluster
	// unit is the number of parts of a context that items count, and weights
	// the number of them in each cluster: 1 and sizes if each context
	// counts in its own cluster alone.
	unit    uint32
	weights []uint32
}

// countLabels counts the labels of the contexts of each cluster.
func countLabels(ctx context.Context, d *data, p *partition) (*counts, error) {
	c := &counts{labels: d.universe, total: len(p.order), unit: p.unit, weights: make([]uint32, p.clusters())}
	c.sizes = c.weights
	perCluster := make([][]item, p.clusters())
	tables := make([][]uint32, d.threads) // one dense row of counts a worker, zero between clusters
	err := parallel.Each(ctx, d.threads, p.clusters(), 1, nil, func(worker, t, _ int) error {
		if tables[worker] == nil {
			tables[worker] = make([]uint32, d.universe)
		}
		table := tables[worker]
		var seen []uint32
		for j, i := range p.members(t) {
			parts := p.partsOf(t, j)
			c.weights[t] += parts
			for _, s := range d.labelsOf(i) {
				if table[s] == 0 {
					seen = append(seen, s)
				}
				table[s] += parts
			}
		}
		items := make([]item, len(seen))
		for j, s := range seen {
			items[j] = item{uint32(t), s, table[s]}
			table[s] = 0
		}
		perCluster[t] = items
		return nil
	})
	if err != nil {
		return nil, err
	}
	c.items = slices.Concat(perCluster...)
	return c, nil
}

// starts are the places of the items of each cluster, and the end of the last.
func (c *counts) starts() []int {
	starts := make([]int, len(c.sizes)+1)
	for _, it := range c.items {
		starts[it.cluster+1]++
	}
	for t := range c.sizes {
		starts[t+1] += starts[t]
	}
	return starts
}

// ranking is the order in which the greedy knapsack takes its items. It does
// not depend on the budget: the sets for a budget are a prefix, so that the
// sets for a smaller budget are subsets of those for a larger one.
type ranking struct {
	counts *counts
	lambda float64
	always []uint32  // in every set, not among the items; ascending
	items  []item    // best first
	shares []float64 // p_ts of each item if they are smoothed, else nil
}

// rank orders the items for the knapsack of Section 3. To put label s into the
// set of cluster t saves 1 for each of the n_ts contexts that have it and
// costs lambda for each of the others (Equation 6), so the value is
//
//	n_ts - lambda (N_t - n_ts)
//
// and it adds N_t/N to L-bar. The ratio of the two, (1 + lambda) n_ts/N_t -
// lambda up to the factor N, grows with n_ts/N_t: that is the order, decided
// by integer cross products, ties to the lower cluster and then the lower
// label. Items that are worth nothing are left out: they are never taken.
func rank(c *counts, lambda float64, always []uint32) *ranking {
	r := &ranking{counts: c, lambda: lambda, always: always, items: make([]item, 0, len(c.items))}
	for _, it := range c.items {
		if _, found := slices.BinarySearch(always, it.label); !found && itemValue(it, c.sizes[it.cluster], lambda) > 0 {
			r.items = append(r.items, it)
		}
	}
	slices.SortFunc(r.items, func(a, b item) int {
		// a before b if a.count/sizes[a] > b.count/sizes[b].
		ahi, alo := bits.Mul64(uint64(a.count), uint64(c.sizes[b.cluster]))
		bhi, blo := bits.Mul64(uint64(b.count), uint64(c.sizes[a.cluster]))
		return cmp.Or(
			cmp.Compare(bhi, ahi), cmp.Compare(blo, alo),
			cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.label, b.label),
		)
	})
	return r
}

// itemValue is n_ts - lambda (N_t - n_ts).
func itemValue(it item, size uint32, lambda float64) float64 {
	return float64(it.count) - float64(lambda*float64(size-it.count))
}

// bound leaves out items such that no set has more than largest labels, unless that is 0.
func (r *ranking) bound(largest int) {
	if largest == 0 {
		return
	}
	left := make([]int, len(r.counts.sizes))
	for t := range left {
		left[t] = largest - len(r.always)
	}
	kept := 0
	for j, it := range r.items {
		if left[it.cluster] <= 0 {
			continue
		}
		left[it.cluster]--
		r.items[kept] = it
		if r.shares != nil {
			r.shares[kept] = r.shares[j]
		}
		kept++
	}
	r.items = r.items[:kept]
	if r.shares != nil {
		r.shares = r.shares[:kept]
	}
}

// candidateSets are the sets c_t for one budget.
type candidateSets struct {
	sets [][]uint32 // ascending distinct ids
	mean float64    // L-bar over the contexts counted: sum_t N_t |c_t| / N
	// multiplier is the value by which one more candidate for every context,
	// a larger B, would lower the mean loss: value over weight of the first
	// item that did not fit. 0 if everything of value fits. It is the
	// Lagrange multiplier of the constraint L-bar <= B.
	multiplier float64
}

// fit returns how many items fit a budget, and the weight of them and of the ids always
// included, times N.
func (r *ranking) fit(budget float64) (taken int, weight uint64) {
	n := uint64(r.counts.total)
	weight = n * uint64(len(r.always))
	capacity := uint64(math.MaxUint64) // all items fit: their weight is at most N L
	if b := float64(budget * float64(n)); b < float64(n)*float64(r.counts.labels) {
		capacity = uint64(b)
	}
	for _, it := range r.items {
		w := uint64(r.counts.sizes[it.cluster])
		if weight+w > capacity {
			break
		}
		weight += w
		taken++
	}
	return taken, weight
}

// take solves the knapsack for a budget: items are taken in order until the
// next one would lift L-bar above it. The value is optimal up to that one
// item. The ids always included are in first.
func (r *ranking) take(budget float64) *candidateSets {
	taken, weight := r.fit(budget)
	c := &candidateSets{sets: make([][]uint32, len(r.counts.sizes)), mean: float64(weight) / float64(r.counts.total)}
	if taken < len(r.items) {
		next := r.items[taken]
		size := r.counts.sizes[next.cluster]
		if r.shares != nil {
			c.multiplier = shareValue(r.shares[taken], r.lambda)
		} else {
			c.multiplier = itemValue(next, size, r.lambda) / float64(size)
		}
	}
	for t := range c.sets {
		c.sets[t] = slices.Clone(r.always)
	}
	for _, it := range r.items[:taken] {
		c.sets[it.cluster] = append(c.sets[it.cluster], it.label)
	}
	for _, set := range c.sets {
		slices.Sort(set)
	}
	return c
}
