// Package ordered does work in pieces on several goroutines and takes the
// results in order.
package ordered

import (
	"context"
	"runtime"
	"sync"
)

// Threads returns the number of goroutines to use for n pieces of work where
// the caller asks for threads, 0 for GOMAXPROCS: at least 1.
func Threads(threads, n int) int {
	if threads == 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	return max(min(threads, n), 1)
}

// Each does the pieces 0 to n-1 of the work on [Threads] goroutines and calls
// take with each result, in order, on the caller's.
//
// worker is called once for each goroutine, on it, and returns what does a
// piece there: so each has scratch of its own. A goroutine does not begin its
// next piece before its last one is taken, which bounds what is held.
//
// Each returns the first error, in the order of the pieces, of the work or of
// take, or that of ctx once it is done. No goroutine is left when it returns.
func Each[T any](ctx context.Context, n, threads int, worker func() func(ctx context.Context, i int) (T, error), take func(T) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	type result struct {
		value T
		err   error
	}
	// Goroutine w does pieces w, w+len(results) and so on.
	results := make([]chan result, Threads(threads, n))
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
