// Package inorder does pieces of work on several goroutines and takes the results in order.
package inorder

import (
	"context"
	"sync"

	"github.com/learning-to-screen/l2s/internal/parallel"
)

// Run does the pieces 0 to n-1 of the work on [parallel.Threads] goroutines and
// calls take with each result, in order, on the caller's.
//
// worker is called once per goroutine, on it, and returns the function that does a piece there: so
// each goroutine has scratch of its own. A goroutine does not begin its next piece before its last
// one is taken, which bounds the memory.
//
// Run returns the first error, in the order of the pieces, of the work or of
// take, or the error of ctx once it is done. No goroutine is left when it returns.
func Run[T any](ctx context.Context, n, threads int, worker func() func(ctx context.Context, i int) (T, error), take func(T) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	type result struct {
		value T
		err   error
	}
	// Goroutine w does pieces w, w+len(results) and so on.
	results := make([]chan result, parallel.Threads(threads, n))
	for w := range results {
		results[w] = make(chan result)
		wg.Go(func() {
			do := worker()
			for i := w; i < n; i += len(results) {
				var r result
				r.value, r.err = do(ctx, i)
				select {
				case results[w] <- r:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	for i := range n {
		select {
		case r := <-results[i%len(results)]:
			if r.err != nil {
				return r.err
			}
			if err := take(r.value); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
