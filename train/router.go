package train

import (
	"context"
	"fmt"
	"math"

	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/softmax"
)

// router finds the clusters of contexts as the searcher of the screen will, by
// the exact search of package softmax, so that training and queries agree.
type router struct {
	levels
	upper *softmax.Layer // the groups, nil on one level
	lower *softmax.Layer // the clusters
	ids   []uint32       // 0, 1, ..., r-1
}

func newRouter(l levels, weights []float32, dim int) (*router, error) {
	u, v := l.split(weights, dim)
	r := &router{levels: l, ids: make([]uint32, l.clusters)}
	for c := range r.ids {
		r.ids[c] = uint32(c)
	}
	var err error
	if l.groups > 0 {
		if r.upper, err = softmax.NewLayer(u, nil, dim); err != nil {
			return nil, fmt.Errorf("learning went astray, a lower learning rate may help: group weights: %w", err)
		}
	}
	if r.lower, err = softmax.NewLayer(v, nil, dim); err != nil {
		return nil, fmt.Errorf("learning went astray, a lower learning rate may help: cluster weights: %w", err)
	}
	return r, nil
}

// route gives every context its best cluster, argmax_t v_t.h (Equation 2), on
// two levels that of the best group; ties to the lower one. It returns how many
// changed.
func (c *clusters) route(ctx context.Context, d *data, done func(int)) (moved int, err error) {
	r, err := newRouter(c.levels, c.weights, d.dim)
	if err != nil {
		return 0, err
	}
	movedBy := make([]int, d.threads)
	err = eachQuery(ctx, d, done, func(worker, i int, q *softmax.Query) {
		if t := r.best(q); t != c.cluster[i] {
			c.cluster[i] = t
			movedBy[worker]++
		}
	})
	for _, m := range movedBy {
		moved += m
	}
	return moved, err
}

// runnersUp returns the second best cluster of every context, on two levels of
// the best group, and by how much the score of the best is above its own: +Inf
// where there is no second.
func (c *clusters) runnersUp(ctx context.Context, d *data, done func(int)) (second []uint32, leads []float64, err error) {
	r, err := newRouter(c.levels, c.weights, d.dim)
	if err != nil {
		return nil, nil, err
	}
	second, leads = make([]uint32, d.n), make([]float64, d.n)
	err = eachQuery(ctx, d, done, func(_, i int, q *softmax.Query) {
		var best [2]softmax.Prediction
		leads[i] = math.Inf(1)
		if r.within(best[:], q, r.group(q)) == 2 {
			leads[i] = best[0].Logit - best[1].Logit
			second[i] = best[1].ID
		}
	})
	return second, leads, err
}

// findNeighbours finds the clusters near every context. The gap of a cluster
// of the second best group is that of the groups.
func (c *clusters) findNeighbours(ctx context.Context, d *data, done func(int)) (*neighbours, error) {
	r, err := newRouter(c.levels, c.weights, d.dim)
	if err != nil {
		return nil, err
	}
	nb := &neighbours{make([]uint32, d.n*near), make([]float32, d.n*near)}
	err = eachQuery(ctx, d, done, func(_, i int, q *softmax.Query) {
		ids, gaps := nb.ids[i*near:(i+1)*near], nb.gaps[i*near:(i+1)*near]
		for j := range gaps {
			gaps[j] = float32(math.Inf(1))
		}
		var groups [2]softmax.Prediction
		found := 1
		if r.upper != nil {
			found = r.upper.TopK(groups[:min(2, r.groups)], q)
		}
		var best [nearInGroup]softmax.Prediction
		n := r.within(best[:], q, int(groups[0].ID))
		for j, p := range best[:n] {
			ids[j], gaps[j] = p.ID, float32(best[0].Logit-p.Logit)
		}
		if found == 2 {
			r.within(best[:1], q, int(groups[1].ID))
			ids[near-1], gaps[near-1] = best[0].ID, float32(groups[0].Logit-groups[1].Logit)
		}
	})
	return nb, err
}

// group returns the best group of the query's context, 0 on one level.
func (r *router) group(q *softmax.Query) int {
	if r.upper == nil {
		return 0
	}
	return int(r.upper.Argmax(q))
}

// within writes the best clusters of a group, or of all on one level, to dst
// and returns their number.
func (r *router) within(dst []softmax.Prediction, q *softmax.Query, group int) int {
	per := r.perGroup()
	return r.lower.TopKOf(dst, q, r.ids[group*per:(group+1)*per])
}

// best returns the best cluster of the query's context.
func (r *router) best(q *softmax.Query) uint32 {
	if r.upper == nil {
		return r.lower.Argmax(q)
	}
	var best [1]softmax.Prediction
	r.within(best[:], q, r.group(q))
	return best[0].ID
}

// eachQuery calls f for every context, in d.threads goroutines. An error names
// a context that is none.
func eachQuery(ctx context.Context, d *data, done func(int), f func(worker, i int, q *softmax.Query)) error {
	queries := make([]*softmax.Query, d.threads)
	for i := range queries {
		queries[i] = softmax.NewQuery(d.dim)
	}
	return parallel.Each(ctx, d.threads, d.n, assignChunk, done, func(worker, lo, hi int) error {
		q := queries[worker]
		for i := lo; i < hi; i++ {
			if err := q.Set(d.row(uint32(i))); err != nil {
				return fmt.Errorf("context %d: %w", i, err)
			}
			f(worker, i, q)
		}
		return nil
	})
}
