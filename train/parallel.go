package train

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// forEach calls work(worker, lo, hi) for consecutive chunks [lo, hi) of
// [0, n), from at most threads goroutines at once; worker < threads names the
// goroutine, for its scratch. Which worker gets which chunk is not determined:
// what a chunk computes must not depend on it. done, unless nil, is told the
// number of elements finished since the last call, from any goroutine.
//
// The first error ends the loop; a cancelled ctx ends it before the next
// chunk and is returned wrapped.
func forEach(ctx context.Context, threads, n, chunk int, done func(int), work func(worker, lo, hi int) error) error {
	chunks := (n + chunk - 1) / chunk
	threads = min(threads, chunks)
	var (
		next  atomic.Int64
		stop  atomic.Bool
		once  sync.Once
		first error
		wg    sync.WaitGroup
	)
	fail := func(err error) {
		once.Do(func() { first = err })
		stop.Store(true)
	}
	run := func(worker int) {
		for !stop.Load() {
			c := int(next.Add(1)) - 1
			if c >= chunks {
				return
			}
			if err := ctx.Err(); err != nil {
				fail(fmt.Errorf("train: interrupted: %w", err))
				return
			}
			lo := c * chunk
			hi := min(lo+chunk, n)
			if err := work(worker, lo, hi); err != nil {
				fail(err)
				return
			}
			if done != nil {
				done(hi - lo)
			}
		}
	}
	for worker := 1; worker < threads; worker++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			run(worker)
		}()
	}
	run(0)
	wg.Wait()
	return first
}
