package train

import (
	"context"
	"slices"

	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/screen"
)

// A context whose best two clusters are nearly equally good has the labels of neither,
// but of the border between them. The union of the two sets holds labels that are
// likely in one cluster alone, and so half as likely on the border. With
// SetOptions.PairWeight each pair of clusters with such contexts has a set of its own:
// it is to the knapsack what a cluster is. The shares of its labels are the counts on
// its contexts, smoothed towards the mean of the shares in the two clusters.

// pairSlack is how many times the largest budget the sets of clusters would have to
// be, to hold labels of the shares that the knapsack of pairs is given at least. Pairs
// are many, and lists of all their labels would be long. Sets with a bound may go
// deeper, since what one may not have another gets; there the bound keeps the lists short.
const pairSlack = 3

// pairings are the pairs of clusters that have sets.
type pairings struct {
	keys []uint64 // pairKey of each, ascending
	cell []uint32 // of each context: its cluster, or the number of clusters plus the place of its pair
}

// pairKey is a number for two clusters, whatever their order.
func pairKey(a, b uint32) uint64 { return uint64(min(a, b))<<32 | uint64(max(a, b)) }

// newPairings has the pairs of the contexts that have a second probe. Nil if there are
// none.
func newPairings(c *clusters, p *probes) *pairings {
	s := &pairings{}
	for _, x := range p.pairs {
		if x.first != x.second {
			s.keys = append(s.keys, pairKey(x.first, x.second))
		}
	}
	if len(s.keys) == 0 {
		return nil
	}
	slices.Sort(s.keys)
	s.keys = slices.Compact(s.keys)
	s.cell = slices.Clone(c.cluster)
	for i, second := range p.second {
		if t, ok := s.find(c.cluster[i], second); ok {
			s.cell[i] = uint32(c.clusters + t)
		}
	}
	return s
}

// find returns the place of the pair of two clusters, false if it has no set.
func (s *pairings) find(a, b uint32) (at int, ok bool) {
	if s == nil || a == b {
		return 0, false
	}
	return slices.BinarySearch(s.keys, pairKey(a, b))
}

// rank returns the ranking of the labels of the clusters, each for the contexts that
// probe it alone, and of the pairs behind them. single is the ranking of the clusters
// for all of their contexts, alpha is SetOptions.PairWeight, largest SetOptions.Largest, and
// most the largest budget.
func (s *pairings) rank(ctx context.Context, d *data, single *ranking, alpha float64, largest int, most float64) (*ranking, error) {
	clusters := len(single.counts.sizes)
	own := newPartition(d.all(), s.cell, clusters+len(s.keys))
	met, err := countLabels(ctx, d, own)
	if err != nil {
		return nil, err
	}
	starts := met.starts()
	shares := single.shareLists()
	least, room := 0.0, largest
	if largest == 0 || largest >= d.universe { // which bounds nothing
		least, room = single.leastShare(float64(pairSlack*most)), d.universe
	}
	parts := make([][]labelShare, own.clusters())
	for t := range clusters { // or cells
		parts[t] = slices.DeleteFunc(slices.Clone(shares[t][:min(len(shares[t]), room)]), func(x labelShare) bool { return x.p < least })
	}
	workers := make([][]float64, d.threads) // the share of every label, zero between pairs
	err = parallel.Each(ctx, d.threads, len(s.keys), 1, nil, func(worker, j, _ int) error {
		if workers[worker] == nil {
			workers[worker] = make([]float64, d.universe)
		}
		table, cell := workers[worker], clusters+j
		var seen []uint32
		add := func(s uint32, p float64) {
			if table[s] == 0 {
				seen = append(seen, s)
			}
			table[s] += p
		}
		whole := float64(own.size(cell)) + alpha
		for _, t := range []uint64{s.keys[j] >> 32, s.keys[j] & (1<<32 - 1)} {
			for _, x := range shares[t] {
				add(x.label, float64(float64(alpha/2)*x.p)/whole)
			}
		}
		for _, it := range met.items[starts[cell]:starts[cell+1]] {
			if _, found := slices.BinarySearch(single.always, it.label); !found {
				add(it.label, float64(it.count)/whole)
			}
		}
		for _, s := range seen {
			if p := table[s]; p >= least && shareValue(p, single.lambda) > 0 {
				parts[cell] = append(parts[cell], labelShare{item{uint32(cell), s, 0}, p})
			}
			table[s] = 0
		}
		if len(parts[cell]) > room {
			slices.SortFunc(parts[cell], labelShare.compare)
			parts[cell] = slices.Clone(parts[cell][:room])
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return rankShares(met, single.lambda, single.always, parts), nil
}

// shareLists returns the labels of each cluster with their shares, best first.
func (r *ranking) shareLists() [][]labelShare {
	lists := make([][]labelShare, len(r.counts.sizes))
	for j, it := range r.items {
		lists[it.cluster] = append(lists[it.cluster], labelShare{it, r.share(j)})
	}
	return lists
}

// share is p_ts of item j.
func (r *ranking) share(j int) float64 {
	if r.shares != nil {
		return r.shares[j]
	}
	it := r.items[j]
	return float64(it.count) / float64(r.counts.sizes[it.cluster])
}

// leastShare is the share of the first item that does not fit a budget, 0 if all fit.
func (r *ranking) leastShare(budget float64) float64 {
	if taken, _ := r.fit(budget); taken < len(r.items) {
		return r.share(taken)
	}
	return 0
}

// list returns the pairs with their sets, which come behind the sets of the clusters.
func (s *pairings) list(c *clusters, sets [][]uint32) []screen.Pair {
	if s == nil {
		return nil
	}
	list := make([]screen.Pair, len(s.keys))
	for j, key := range s.keys {
		list[j] = screen.Pair{First: int(key >> 32), Second: int(uint32(key)), Set: sets[c.clusters+j]}
	}
	return list
}
