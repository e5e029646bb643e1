package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/internal/router"
	"github.com/learning-to-screen/l2s/softmax"
)

// errAstray says that learning has led to weights that are no clusters.
var errAstray = errors.New("learning went astray")

// newRouter returns the router of the screen with these weights, so that training
// and queries agree on the clusters of contexts.
func (c *clusters) newRouter(dim int) (*router.Router, error) {
	u, v, sizes, lists := c.routing(dim)
	r, err := router.New(v, u, sizes, lists, dim)
	if err != nil {
		return nil, fmt.Errorf("%w, give a lower learning rate: %w", errAstray, err)
	}
	return r, nil
}

// routeBatch is the number of contexts that are routed together, so that the
// vectors are read once for several of them.
const routeBatch = 64

// eachRoute finds the k best clusters of every context, on two levels within
// the best group, in d.threads goroutines, and calls f with them, all there are if
// there are fewer.
func (c *clusters) eachRoute(ctx context.Context, d *data, k int, done func(int), f func(worker, i int, best []softmax.Prediction)) error {
	r, err := c.newRouter(d.dim)
	if err != nil {
		return err
	}
	return d.eachRoute(ctx, r, k, done, f)
}

// eachRoute finds the k best clusters of every context by a router, as
// clusters.eachRoute does.
func (d *data) eachRoute(ctx context.Context, r *router.Router, k int, done func(int), f func(worker, i int, best []softmax.Prediction)) error {
	type scratch struct {
		*router.Searcher
		queries []*softmax.Query
		best    []softmax.Prediction
		found   []router.Found
	}
	workers := make([]scratch, d.threads)
	for i := range workers {
		workers[i] = scratch{r.NewSearcher(), newQueries(routeBatch, d.dim), make([]softmax.Prediction, routeBatch*k), make([]router.Found, routeBatch)}
	}
	return parallel.Each(ctx, d.threads, d.n, assignChunk, done, func(worker, lo, hi int) error {
		for w := workers[worker]; lo < hi; lo += routeBatch {
			n := min(routeBatch, hi-lo)
			if err := d.set(w.queries[:n], lo); err != nil {
				return err
			}
			if err := w.Find(w.best[:n*k], w.found[:n], k, w.queries[:n]); err != nil {
				return err
			}
			for j, found := range w.found[:n] {
				f(worker, lo+j, w.best[j*k:][:found.Count])
			}
		}
		return nil
	})
}

func newQueries(n, dim int) []*softmax.Query {
	qs := make([]*softmax.Query, n)
	for i := range qs {
		qs[i] = softmax.NewQuery(dim)
	}
	return qs
}

// set gives the contexts from lo on to the queries. An error names a context that is
// not finite.
func (d *data) set(qs []*softmax.Query, lo int) error {
	for j, q := range qs {
		if err := q.Set(d.row(uint32(lo + j))); err != nil {
			return fmt.Errorf("context %d: %w", lo+j, err)
		}
	}
	return nil
}

// route gives every context its best cluster, argmax_t v_t.h (Equation 2), on
// two levels within the best group; ties to the lower one. It returns how many
// changed.
func (c *clusters) route(ctx context.Context, d *data, done func(int)) (moved int, err error) {
	movedBy := make([]int, d.threads)
	err = c.eachRoute(ctx, d, 1, done, func(worker, i int, best []softmax.Prediction) {
		if t := best[0].ID; t != c.cluster[i] {
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
// if there is no second.
func (c *clusters) runnersUp(ctx context.Context, d *data, done func(int)) (second []uint32, leads []float64, err error) {
	second, leads = make([]uint32, d.n), make([]float64, d.n)
	err = c.eachRoute(ctx, d, 2, done, func(_, i int, best []softmax.Prediction) {
		leads[i] = math.Inf(1)
		if len(best) == 2 {
			leads[i], second[i] = best[0].Logit-best[1].Logit, best[1].ID
		}
	})
	return second, leads, err
}

// findNeighbours finds the clusters near every context. The gap of a cluster
// of the second best group is the distance of the groups.
func (c *clusters) findNeighbours(ctx context.Context, d *data, done func(int)) (*neighbours, error) {
	r, err := c.newRouter(d.dim)
	if err != nil {
		return nil, err
	}
	nb := &neighbours{make([]uint32, d.n*near), make([]float32, d.n*near)}
	searchers, queries := make([]*router.Searcher, d.threads), newQueries(d.threads, d.dim)
	for i := range searchers {
		searchers[i] = r.NewSearcher()
	}
	err = parallel.Each(ctx, d.threads, d.n, assignChunk, done, func(worker, lo, hi int) error {
		for i := lo; i < hi; i++ {
			if err := d.set(queries[worker:worker+1], i); err != nil {
				return err
			}
			if err := nb.find(searchers[worker], queries[worker], i); err != nil {
				return err
			}
		}
		return nil
	})
	return nb, err
}

// find finds the neighbours of context i, the query's.
func (nb *neighbours) find(s *router.Searcher, q *softmax.Query, i int) error {
	ids, gaps := nb.ids[i*near:(i+1)*near], nb.gaps[i*near:(i+1)*near]
	for j := range gaps {
		gaps[j] = float32(math.Inf(1))
	}
	var groups [2]softmax.Prediction
	found, err := s.BestGroups(groups[:], q)
	if err != nil {
		return err
	}
	var best [nearInGroup]softmax.Prediction
	n, err := s.Within(best[:], q, int(groups[0].ID))
	if err != nil {
		return err
	}
	for j, p := range best[:n] {
		ids[j], gaps[j] = p.ID, float32(best[0].Logit-p.Logit)
	}
	if found < 2 {
		return nil
	}
	if _, err = s.Within(best[:1], q, int(groups[1].ID)); err != nil {
		return err
	}
	if !slices.Contains(ids[:n], best[0].ID) { // groups may share it
		ids[near-1], gaps[near-1] = best[0].ID, float32(groups[0].Logit-groups[1].Logit)
	}
	return nil
}
