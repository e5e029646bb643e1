package train

import "context"

// finalSets are the candidate sets that all contexts have chosen, for every
// budget.
type finalSets struct {
	clusters *clusters
	ranked   *ranking
	probes   *probes // nil without a second probe
}

// chooseSets counts the final sets on all contexts.
func chooseSets(ctx context.Context, d *data, c *clusters, opt *SetOptions) (*finalSets, error) {
	var (
		nb  *neighbours
		s   = &finalSets{clusters: c}
		err error
	)
	if opt.Spread > 0 {
		if nb, err = c.findNeighbours(ctx, d, d.report.stage(StageSpread, 0, d.n)); err != nil {
			return nil, err
		}
	}
	if s.ranked, err = rankLabels(ctx, d, d.all(), c, nb, opt); err != nil {
		return nil, err
	}
	if opt.ProbeShare > 0 {
		if s.probes, err = findProbes(ctx, d, c, opt.ProbeShare); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// rankLabels counts the labels of the given contexts in each cluster and orders
// the items of the knapsack. nb, unless nil, says where else contexts count.
func rankLabels(ctx context.Context, d *data, contexts []uint32, c *clusters, nb *neighbours, opt *SetOptions) (*ranking, error) {
	own := newPartition(contexts, c.cluster, c.clusters)
	p := own
	if nb != nil {
		p = nb.partition(contexts, nb.temperature(d, opt.Spread), c.clusters)
	}
	n, err := countLabels(ctx, p, d.labels, d.k, d.universe, d.threads)
	if err != nil {
		return nil, err
	}
	n.total, n.sizes = len(contexts), own.sizes()
	if opt.Smoothing > 0 || nb != nil {
		return rankSmoothed(ctx, n, c.groups, opt.Smoothing, opt.Lambda, opt.always(), d.threads)
	}
	return rank(n, opt.Lambda, opt.always()), nil
}

// take returns the sets for a budget, the margin of the second probe, and the
// figures of both on all contexts.
func (s *finalSets) take(d *data, budget float64) (sets *candidateSets, margin float64, f figures) {
	if s.probes != nil {
		sets = s.probes.take(s.ranked, budget)
		return sets, s.probes.margin, s.probes.measure(d, sets, s.clusters.cluster)
	}
	sets = s.ranked.take(budget)
	return sets, 0, newMembership(sets.sets, d.universe).measure(d, d.all(), s.clusters.cluster)
}
