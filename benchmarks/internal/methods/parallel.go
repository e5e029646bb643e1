package methods

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// parallel calls f for 0 to n-1 on all cores, in any order, and returns ctx's
// error where it ended before all was done.
func parallel(ctx context.Context, n int, f func(i int)) error {
	var next, done atomic.Int64
	var wg sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				f(i)
				done.Add(1)
			}
		}()
	}
	wg.Wait()
	if int(done.Load()) < n {
		return context.Cause(ctx)
	}
	return nil
}
