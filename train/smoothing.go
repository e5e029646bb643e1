package train

import (
	"context"
	"slices"

	"github.com/learning-to-screen/l2s/internal/parallel"
)

// smooth estimates p_ts, the probability that label s is among the labels of a
// context of cluster t, from the counts of t and of what t is a part of:
//
//	p_ts = (n_ts + alpha parent_s) / (N_t + alpha)
//
// where parent_s is the same estimate for the group of t, whose parent are all
// contexts, or for all contexts if the screen is flat. A cluster of few
// contexts so borrows the labels of its neighbours that it happens not to have
// met; one of many keeps its own. (The mean of the posterior under a Dirichlet
// prior of weight alpha around the parent.)
func smooth(count, size uint32, alpha, parent float64) float64 {
	return (float64(count) + float64(alpha*parent)) / (float64(size) + alpha)
}

// rankSmoothed is rank by smoothed shares instead of n_ts/N_t: the value of an
// item is N_t (p_ts - lambda (1 - p_ts)), its weight N_t. Labels that no
// context of the cluster has are items too if they are worth it. A cluster
// without contexts gets none: nothing is known of it.
func rankSmoothed(ctx context.Context, c *counts, groups int, alpha, lambda float64, always []uint32, threads int) (*ranking, error) {
	clusters := len(c.sizes)
	starts := c.starts()
	inAll := make([]uint32, c.labels)
	for _, it := range c.items {
		inAll[it.label] += it.count
	}
	all := make([]float64, c.labels)
	for s, n := range inAll {
		all[s] = float64(n) / (float64(c.total) * float64(c.unit))
	}
	skip := make([]bool, c.labels)
	for _, s := range always {
		skip[s] = true
	}

	alpha *= float64(c.unit)
	parts := max(1, groups)
	per := clusters / parts
	perPart := make([][]labelShare, parts)
	err := parallel.Each(ctx, threads, parts, 1, nil, func(_, a, _ int) error {
		parent := all
		count := make([]uint32, c.labels)
		if groups > 0 {
			size := uint32(0)
			for t := a * per; t < (a+1)*per; t++ {
				size += c.weights[t]
				for _, it := range c.items[starts[t]:starts[t+1]] {
					count[it.label] += it.count
				}
			}
			parent = make([]float64, c.labels)
			for s, n := range count {
				parent[s] = smooth(n, size, alpha, all[s])
			}
			clear(count)
		}
		for t := a * per; t < (a+1)*per; t++ {
			size := c.weights[t]
			if c.sizes[t] == 0 {
				continue
			}
			own := c.items[starts[t]:starts[t+1]]
			for _, it := range own {
				count[it.label] = it.count
			}
			for s, n := range count {
				if skip[s] {
					continue
				}
				if p := smooth(n, size, alpha, parent[s]); shareValue(p, lambda) > 0 {
					perPart[a] = append(perPart[a], labelShare{item{uint32(t), uint32(s), n}, p})
				}
			}
			for _, it := range own {
				count[it.label] = 0
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return rankShares(c, lambda, always, perPart), nil
}

// rankShares is the ranking of items by their shares, given in parts.
func rankShares(c *counts, lambda float64, always []uint32, parts [][]labelShare) *ranking {
	sorted := slices.Concat(parts...)
	slices.SortFunc(sorted, labelShare.compare)
	r := &ranking{counts: c, lambda: lambda, always: always, items: make([]item, len(sorted)), shares: make([]float64, len(sorted))}
	for i, x := range sorted {
		r.items[i], r.shares[i] = x.item, x.p
	}
	return r
}

// shareValue is the value of an item for each context of its cluster, when the
// share p of them have the label.
func shareValue(p, lambda float64) float64 { return p - float64(lambda*(1-p)) }
