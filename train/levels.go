package train

import (
	"context"
	"fmt"

	"github.com/learning-to-screen/l2s/softmax"
)

// With two levels the weights are one array: the vectors U of the groups,
// Options.Groups rows, and behind them V, Options.Clusters rows. The clusters
// of a group are neighbours, and all groups have the same number of them.

// levels splits the weights into U, nil for a flat screen, and V.
func (o *Options) levels(weights []float32, dim int) (u, v []float32) {
	n := o.Groups * dim
	if n == 0 {
		return nil, weights
	}
	return weights[:n:n], weights[n:]
}

// perGroup is the number of clusters in a group; with one level all are in
// one.
func (o *Options) perGroup() int { return o.Clusters / max(1, o.Groups) }

// groupSizes is what screen.Config says of the groups.
func (o *Options) groupSizes() []int {
	if o.Groups == 0 {
		return nil
	}
	sizes := make([]int, o.Groups)
	for a := range sizes {
		sizes[a] = o.perGroup()
	}
	return sizes
}

// cluster clusters all contexts by spherical k-means, and returns the weights
// and the cluster of each context. On two levels k-means finds the groups
// first, and then the clusters of each group among the contexts of that group
// alone: those that a query will look for there.
func (t *trainer) cluster(ctx context.Context, opt *Options, record *Record) (weights []float32, cluster []uint32, err error) {
	if opt.Groups == 0 {
		means, err := sphericalKMeans(ctx, t, opt.Clusters, opt.KMeansIterations, opt.KMeansBatch)
		if err != nil {
			return nil, nil, err
		}
		record.KMeans = means.history
		return means.v, means.cluster, nil
	}
	upper, err := sphericalKMeans(ctx, t, opt.Groups, opt.KMeansIterations, opt.KMeansBatch)
	if err != nil {
		return nil, nil, err
	}
	record.KMeans = upper.history
	all := make([]uint32, t.n)
	for i := range all {
		all[i] = uint32(i)
	}
	groups := newPartition(all, upper.cluster, opt.Groups)
	per := opt.perGroup()
	weights = make([]float32, (opt.Groups+opt.Clusters)*t.dim)
	u, v := opt.levels(weights, t.dim)
	copy(u, upper.v)
	cluster = upper.cluster
	done := t.report.stage(StageGroups, 0, t.n)
	cosines := 0.0
	for a := range opt.Groups {
		members := groups.members(a)
		if len(members) == 0 {
			continue // no context, no direction: its clusters stay zero
		}
		random := newRNG(t.seedValue, streamGroups, uint64(a))
		part := &trainer{
			contexts: t.contexts, only: members, n: len(members), dim: t.dim,
			seedValue: random.next(), threads: t.threads, report: &reporter{},
		}
		lower, err := sphericalKMeans(ctx, part, per, opt.KMeansIterations, opt.KMeansBatch)
		if err != nil {
			return nil, nil, err
		}
		copy(v[a*per*t.dim:], lower.v)
		for j, i := range members {
			cluster[i] = uint32(a*per) + lower.cluster[j]
		}
		last := lower.history[len(lower.history)-1]
		cosines += float64(last.Objective * float64(len(members)))
		if done != nil {
			done(len(members))
		}
	}
	record.GroupCosine = cosines / float64(t.n)
	return weights, cluster, nil
}

// router finds the clusters of contexts as the searcher of the screen will.
type router struct {
	groups   *softmax.Layer // nil for a flat screen
	clusters *softmax.Layer
	ids      []uint32 // 0, 1, ..., r-1
	per      int
}

func newRouter(weights []float32, dim int, opt *Options) (*router, error) {
	u, v := opt.levels(weights, dim)
	r := &router{ids: make([]uint32, opt.Clusters), per: opt.perGroup()}
	for c := range r.ids {
		r.ids[c] = uint32(c)
	}
	var err error
	if opt.Groups > 0 {
		if r.groups, err = softmax.NewLayer(u, nil, dim); err != nil {
			return nil, fmt.Errorf("train: learning went astray, a lower learning rate may help: group weights: %w", err)
		}
	}
	if r.clusters, err = softmax.NewLayer(v, nil, dim); err != nil {
		return nil, fmt.Errorf("train: learning went astray, a lower learning rate may help: cluster weights: %w", err)
	}
	return r, nil
}

// group returns the best group of the query's context, 0 on a flat screen.
func (r *router) group(q *softmax.Query) int {
	if r.groups == nil {
		return 0
	}
	return int(r.groups.Argmax(q))
}

// best writes the best clusters of a group, or of all on a flat screen, to
// dst and returns their number.
func (r *router) best(dst []softmax.Prediction, q *softmax.Query, group int) int {
	return r.clusters.TopKOf(dst, q, r.ids[group*r.per:(group+1)*r.per])
}

// cluster returns the best cluster of the query's context, argmax_t v_t.h
// (Equation 2), on two levels that of the best group; ties to the lower one.
func (r *router) cluster(q *softmax.Query) uint32 {
	if r.groups == nil {
		return r.clusters.Argmax(q)
	}
	var best [1]softmax.Prediction
	r.best(best[:], q, r.group(q))
	return best[0].ID
}

// route sets cluster[i] for every context as the searcher of the screen will, by
// the exact search of package softmax, so that training and queries agree. It
// returns how many changed.
func (t *trainer) route(ctx context.Context, weights []float32, cluster []uint32, opt *Options, done func(int)) (moved int, err error) {
	r, err := newRouter(weights, t.dim, opt)
	if err != nil {
		return 0, err
	}
	movedBy := make([]int, t.threads)
	err = t.eachQuery(ctx, done, func(worker, i int, q *softmax.Query) {
		if c := r.cluster(q); c != cluster[i] {
			cluster[i] = c
			movedBy[worker]++
		}
	})
	for _, m := range movedBy {
		moved += m
	}
	return moved, err
}

// eachQuery calls f for every context, in t.threads goroutines. An error names
// a context that is none.
func (t *trainer) eachQuery(ctx context.Context, done func(int), f func(worker, i int, q *softmax.Query)) error {
	queries := make([]*softmax.Query, t.threads)
	for i := range queries {
		queries[i] = softmax.NewQuery(t.dim)
	}
	return forEach(ctx, t.threads, t.n, assignChunk, done, func(worker, lo, hi int) error {
		q := queries[worker]
		for i := lo; i < hi; i++ {
			if err := q.Set(t.row(uint32(i))); err != nil {
				return fmt.Errorf("train: context %d: %w", i, err)
			}
			f(worker, i, q)
		}
		return nil
	})
}
