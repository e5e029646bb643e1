// Package parallel does work in pieces on several goroutines.
package parallel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/learning-to-screen/l2s/internal/ground/mem"
)

// Threads returns the number of goroutines to use for n pieces of work if
// the caller asks for threads, 0 for GOMAXPROCS: at least 1.
func Threads(threads, n int) int {
	if threads == 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	return max(min(threads, n), 1)
}

// limit is the key of the number of threads in a context.
type limit struct{}

// Limit returns a context under which [Each] and [With] use that many threads where their caller
// asks for 0. 0 changes nothing.
func Limit(ctx context.Context, threads int) context.Context {
	if threads == 0 {
		return ctx
	}
	return context.WithValue(ctx, limit{}, threads)
}

// Limited returns the number of threads that Each uses if its caller asks for 0: 0 without a limit.
func Limited(ctx context.Context) int {
	n, _ := ctx.Value(limit{}).(int)
	return n
}

// ErrGone is the error of [Each] for work that read mapped memory which is gone.
var ErrGone = errors.New("found memory that cannot be read any more, expected a mapped file to stay as it was")

// Guard runs f, in which a read of a missing page of mapped memory is [ErrGone]. In goroutines that
// f starts it is not.
func Guard(f func() error) error {
	return mem.Guard(f, func() error { return ErrGone })
}

// Each calls work(worker, lo, hi) for consecutive chunks [lo, hi) of [0, n), from at most threads
// goroutines at once, the caller's among them; 0 means GOMAXPROCS. worker, from 0 and below
// [Threads] of threads and n, names the goroutine, for its scratch. Which worker gets which chunk
// is not determined: the result of a chunk must not depend on it. done, unless nil, gets the number
// of elements finished since its last call, from any goroutine.
//
// Chunks are begun in ascending order, and each that is begun is finished. So Each returns the
// error of the lowest chunk that fails, for any number of threads. A fault of mapped memory is
// [ErrGone]. After the end of ctx no chunk is begun, and if chunks remain, the error tells so and
// wraps ctx.Err(). All goroutines have ended when Each returns.
func Each(ctx context.Context, threads, n, chunk int, done func(int), work func(worker, lo, hi int) error) error {
	threads = cmp.Or(threads, Limited(ctx))
	chunks := (n + chunk - 1) / chunk
	var (
		next   atomic.Int64
		stop   atomic.Bool
		mu     sync.Mutex
		failed = chunks
		first  error
		wg     sync.WaitGroup
	)
	run := func(worker int) {
		for !stop.Load() && ctx.Err() == nil {
			c := int(next.Add(1)) - 1
			if c >= chunks {
				return
			}
			lo := c * chunk
			hi := min(lo+chunk, n)
			if err := Guard(func() error { return work(worker, lo, hi) }); err != nil {
				mu.Lock()
				if c < failed {
					failed, first = c, err
				}
				mu.Unlock()
				stop.Store(true)
				return
			}
			if done != nil {
				done(hi - lo)
			}
		}
	}
	for worker := 1; worker < Threads(threads, chunks); worker++ {
		wg.Go(func() { run(worker) })
	}
	run(0)
	wg.Wait()
	if first == nil && int(next.Load()) < chunks {
		return fmt.Errorf("interrupted: %w", ctx.Err())
	}
	return first
}

// With is [Each] for work with scratch: each goroutine has one, which fresh makes.
func With[S any](ctx context.Context, threads, n, chunk int, done func(int), fresh func() S, work func(scratch S, lo, hi int) error) error {
	workers := make([]func() S, Threads(cmp.Or(threads, Limited(ctx)), n))
	for i := range workers {
		workers[i] = sync.OnceValue(fresh)
	}
	return Each(ctx, threads, n, chunk, done, func(worker, lo, hi int) error { return work(workers[worker](), lo, hi) })
}

// Counter returns a function that adds to a count of elements done, of total,
// from any goroutine. It calls tell with the sum, one call at a time and about
// a hundred times until the total is reached.
func Counter(total int, tell func(done int)) func(n int) {
	var mu sync.Mutex
	done, told := 0, 0
	return func(n int) {
		mu.Lock()
		defer mu.Unlock()
		done += n
		if done == total || (done-told)*100 >= total {
			told = done
			tell(done)
		}
	}
}
