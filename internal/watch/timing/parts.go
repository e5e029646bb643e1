package timing

import (
	"context"
	"math"
	"runtime"
	"slices"
	"time"
)

// fewestContexts is the least number of contexts of Parts, if there are as many.
const fewestContexts = 32

// Parts measures methods each of which does the work of the one before it, and more: their
// differences are times of steps. All answer the same contexts, some of 0 to n-1, once a round. A
// method has the median of the rounds for each context, which short disturbances do not move, and the
// result is the mean over the contexts, which take different ways. There are so many contexts that
// the last method answers them in about a block. Each time includes one reading of the clock.
// Options.Before and Options.Least are not used.
func Parts(ctx context.Context, n int, methods []func(i int), opt Options) ([]time.Duration, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	last := turn{n: n, query: methods[len(methods)-1]}
	start, queries := time.Now(), 0
	for queries == 0 || time.Since(start) < opt.Block && ctx.Err() == nil {
		last.ask()
		queries++
	}
	contexts := min(max(queries, fewestContexts), n)
	times := make([][][]time.Duration, len(methods)) // of each method, context and round
	for m := range times {
		times[m] = make([][]time.Duration, contexts)
		for i := range times[m] {
			times[m][i] = make([]time.Duration, 0, opt.Rounds)
		}
	}
	runtime.GC()
	for round := range opt.Rounds {
		if opt.Progress != nil {
			opt.Progress(round, opt.Rounds)
		}
		for at := range methods {
			m := (at + round) % len(methods)
			t := turn{n: n, query: methods[m]}
			warm := int(warmUp*float64(contexts)) + 1
			for i := -warm; i < contexts; i++ {
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				t.next = (i + contexts) % contexts * n / contexts
				if took := t.ask(); i >= 0 {
					times[m][i] = append(times[m][i], took)
				}
			}
		}
	}
	if opt.Progress != nil {
		opt.Progress(opt.Rounds, opt.Rounds)
	}
	means := make([]time.Duration, len(methods))
	for m, of := range times {
		sum := 0.0
		for _, rounds := range of {
			slices.Sort(rounds)
			sum += float64(rounds[(len(rounds)-1)/2]+rounds[len(rounds)/2]) / 2
		}
		means[m] = time.Duration(math.Round(sum / float64(contexts)))
	}
	return means, nil
}
