package learn

import (
	"cmp"
	"slices"

	"github.com/learning-to-screen/l2s/train/internal/shares"
)

// item is one (cluster, label) pair of the knapsack, with its share p_ts: the
// probability that label s is among the labels of a context of cluster t.
type item struct {
	cluster, label uint32
	share          float64
}

// compare orders items as the knapsack takes them.
func (a item) compare(b item) int {
	return cmp.Or(cmp.Compare(b.share, a.share), cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.label, b.label))
}

// value is the saving of the item for each context of its cluster, when the share p of them have
// the label: 1 for these, less lambda for each of the others (Equation 6).
func (a item) value(lambda float64) float64 { return a.share - float64(lambda*(1-a.share)) }

// ranking is the order in which the greedy knapsack of Section 3 takes its items. The sets
// for a smaller budget are subsets of those for a larger one.
//
// To put label s into the set of cluster t saves N_t (p_ts - lambda (1 - p_ts)) and
// adds N_t/N to L-bar. The ratio of the two, (1 + lambda) p_ts - lambda up to the
// factor N, grows with p_ts: that is the order, ties to the lower cluster and then
// the lower label.
type ranking struct {
	sizes  []uint32 // N_t, the contexts whose cluster is t
	lambda float64
	always []uint32 // in every set, not among the items; ascending
	items  []item   // best first
}

// rank is the ranking of the shares of labels in clusters of the given numbers of contexts.
// Items that are worth nothing are left out: they are never taken.
func rank(list [][]shares.Label, sizes []uint32, lambda float64, always []uint32) *ranking {
	r := &ranking{sizes: sizes, lambda: lambda, always: always}
	for t, list := range list {
		for _, x := range list {
			it := item{uint32(t), x.ID, x.Share}
			if _, found := slices.BinarySearch(always, x.ID); !found && it.value(lambda) > 0 {
				r.items = append(r.items, it)
			}
		}
	}
	slices.SortFunc(r.items, item.compare)
	return r
}

// candidateSets are the sets c_t for one budget.
type candidateSets struct {
	sets [][]uint32 // ascending distinct ids
	mean float64    // L-bar over the contexts counted: sum_t N_t |c_t| / N
	// multiplier is the Lagrange multiplier of the constraint L-bar <= B: value over weight of
	// the first item that did not fit, 0 if everything of value fits.
	multiplier float64
}

// take solves the knapsack for a budget, up to one item: they are taken in order until the
// next one would lift L-bar above it. The ids always included are in first.
func (r *ranking) take(budget float64) *candidateSets {
	n := uint64(0) // N, over all clusters
	for _, size := range r.sizes {
		n += uint64(size)
	}
	taken, weight := 0, n*uint64(len(r.always))
	capacity := uint64(min(float64(budget*float64(n)), 1<<62)) // more than all items weigh
	for ; taken < len(r.items); taken++ {
		w := uint64(r.sizes[r.items[taken].cluster])
		if weight+w > capacity {
			break
		}
		weight += w
	}
	c := &candidateSets{sets: make([][]uint32, len(r.sizes)), mean: float64(weight) / float64(n)}
	if taken < len(r.items) {
		c.multiplier = r.items[taken].value(r.lambda)
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
