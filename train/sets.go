package train

import (
	"context"
	"slices"

	"github.com/learning-to-screen/l2s/softmax"
	"github.com/learning-to-screen/l2s/train/internal/ids"
)

// finalSets are the candidate sets that all contexts of a view have chosen, for
// every budget.
type finalSets struct {
	clusters *clusters
	shells   *shells   // nil without
	cells    *clusters // what has sets: the clusters, or their cells
	ranked   *ranking
	probes   *probes   // nil without a second probe
	pairs    *pairings // nil if pairs have no sets
}

// chooseSets chooses the final sets on all contexts of the view, for budgets of which
// most is the largest.
func chooseSets(ctx context.Context, d *data, layer *softmax.Layer, c *clusters, opt *SetOptions, most float64) (*finalSets, error) {
	var (
		nb  *neighbours
		s   = &finalSets{clusters: c, cells: c}
		err error
	)
	if len(opt.Shells) > 0 {
		if s.shells, err = findShells(ctx, d, c, opt.Shells); err != nil {
			return nil, err
		}
		if s.shells != nil {
			s.cells = s.shells.cells(c)
		}
	}
	if opt.Spread > 0 {
		if nb, err = c.findNeighbours(ctx, d, d.report.stage(StageSpread, 0, d.n)); err != nil {
			return nil, err
		}
	}
	if opt.Geometry > 0 {
		s.ranked, err = rankGeometric(ctx, d, layer, c, s.shells, nb, opt)
	} else {
		s.ranked, err = rankLabels(ctx, d, d.all(), c, nb, opt)
	}
	if err != nil {
		return nil, err
	}
	if opt.ProbeShare > 0 {
		if s.probes, err = findProbes(ctx, d, c, s.shells, opt.ProbeShare); err != nil {
			return nil, err
		}
		if opt.PairWeight > 0 {
			s.pairs = newPairings(s.cells, s.probes)
		}
	}
	if s.pairs != nil {
		if s.ranked, err = s.pairs.rank(ctx, d, s.ranked, opt.PairWeight, opt.Largest, most); err != nil {
			return nil, err
		}
	}
	s.ranked.bound(opt.Largest)
	return s, nil
}

// rankLabels orders the items of the knapsack by the counts alone, which is what
// learning has.
func rankLabels(ctx context.Context, d *data, contexts []uint32, c *clusters, nb *neighbours, opt *SetOptions) (*ranking, error) {
	n, _, err := countClusters(ctx, d, contexts, c, nb, opt)
	if err != nil {
		return nil, err
	}
	if opt.Smoothing > 0 || nb != nil {
		return rankSmoothed(ctx, n, c.groups, opt.Smoothing, opt.Lambda, opt.always(), d.threads)
	}
	return rank(n, opt.Lambda, opt.always()), nil
}

// countClusters counts the labels of the given contexts in each cluster. nb,
// unless nil, says where else contexts count than in their own, which own has.
func countClusters(ctx context.Context, d *data, contexts []uint32, c *clusters, nb *neighbours, opt *SetOptions) (n *counts, own *partition, err error) {
	own = newPartition(contexts, c.cluster, c.clusters)
	p := own
	if nb != nil {
		p = nb.partition(contexts, nb.temperature(d, opt.Spread), c.clusters)
	}
	if n, err = countLabels(ctx, d, p); err != nil {
		return nil, nil, err
	}
	n.total, n.sizes = len(contexts), own.sizes()
	return n, own, nil
}

// take returns the sets for a budget, the margin of the second probe, and the
// figures of both on all contexts.
func (s *finalSets) take(d *data, budget float64) (sets *candidateSets, margin float64, f figures) {
	if s.probes != nil {
		margin = s.probes.margin
	}
	if s.probes != nil && s.pairs == nil {
		sets = s.probes.take(s.ranked, budget)
	} else {
		sets = s.ranked.take(budget)
	}
	m := measured{d, s.cells.cluster, sets, s.probes, s.pairs}
	return sets, margin, m.figures(d.all())
}

// measured are contexts of a view, the clusters they are in, and sets.
type measured struct {
	*data
	cluster []uint32 // or cell
	sets    *candidateSets
	probes  *probes   // nil without a second probe
	pairs   *pairings // nil if pairs have no sets
}

// figures returns the figures of the sets on some of the contexts.
func (m *measured) figures(contexts []uint32) figures {
	size := 0
	for _, i := range contexts {
		size += m.candidates(i)
	}
	return newFigures(m.data, contexts, float64(size)/float64(len(contexts)), m.holds)
}

// given are the sets of labels that context i is given, the second nil if it is one set.
func (m *measured) given(i uint32) (a, b []uint32) {
	first := m.cluster[i]
	if m.probes == nil || m.probes.second[i] == first {
		return m.sets.sets[first], nil
	}
	second := m.probes.second[i]
	if at, ok := m.pairs.find(first, second); ok {
		return m.sets.sets[m.clusterCount()+at], nil
	}
	return m.sets.sets[first], m.sets.sets[second]
}

// clusterCount is the number of clusters, whose sets come before the sets of pairs.
func (m *measured) clusterCount() int {
	if m.pairs == nil {
		return len(m.sets.sets)
	}
	return len(m.sets.sets) - len(m.pairs.keys)
}

// candidates is the number of labels that context i is given.
func (m *measured) candidates(i uint32) int {
	a, b := m.given(i)
	return ids.UnionSize(a, b)
}

// holds reports whether the label is among those that context i is given.
func (m *measured) holds(i, label uint32) bool {
	a, b := m.given(i)
	_, inA := slices.BinarySearch(a, label)
	_, inB := slices.BinarySearch(b, label)
	return inA || inB
}
