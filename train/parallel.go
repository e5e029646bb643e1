package train

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/learning-to-screen/l2s/internal/fault"
)

// forEach calls work(worker, lo, hi) for consecutive chunks [lo, hi) of
// [0, n), from at most threads goroutines at once; worker < threads names the
// goroutine, for its scratch. Which worker gets which chunk is not determined:
// what a chunk computes must not depend on it. done, unless nil, is told the
// number of elements finished since the last call, from any goroutine.
//
// The first error ends the loop; a fault of mapped memory is one, see guard; a cancelled ctx ends it before the next
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
			if err := guard(func() error { return work(worker, lo, hi) }); err != nil {
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

// guard runs f, which reads the contexts: they may be a mapped file, and that
// another program has shortened it is an error.
func guard(f func() error) error {
	return fault.Guard(f, func() error {
		return fmt.Errorf("train: contexts: found memory that cannot be read any more, want a mapped file to stay as it was")
	})
}
