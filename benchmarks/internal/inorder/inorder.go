// Package inorder does pieces of work on several goroutines and takes the results in order.
package inorder

import (
	"context"

	"github.com/learning-to-screen/l2s/internal/ground/parallel"
)

// ahead is the number of pieces per goroutine that are done before their results are taken: it
// bounds the memory.
const ahead = 8

// Run does the pieces 0 to n-1 of the work on [parallel.Threads] goroutines and calls take with each
// result, in order, on the caller's. worker returns the function that does a piece on one goroutine
// at a time, with scratch of its own.
//
// Run returns the first error, in the order of the pieces, of the work or of
// take, or the error of ctx once it is done.
func Run[T any](ctx context.Context, n, threads int, worker func() func(ctx context.Context, i int) (T, error), take func(T) error) error {
	type result struct {
		value T
		err   error
	}
	workers := make([]func(context.Context, int) (T, error), parallel.Threads(threads, n))
	results := make([]result, min(n, ahead*len(workers)))
	for from := 0; from < n; from += len(results) {
		part := results[:min(len(results), n-from)]
		err := parallel.Each(ctx, len(workers), len(part), 1, nil, func(w, lo, hi int) error {
			if workers[w] == nil {
				workers[w] = worker()
			}
			for i := lo; i < hi; i++ {
				part[i].value, part[i].err = workers[w](ctx, from+i)
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, r := range part {
			if r.err != nil {
				return r.err
			}
			if err := take(r.value); err != nil {
				return err
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}
