// Package measure takes the times of methods that are compared, in turns, and their precision.
package measure

import (
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/learning-to-screen/l2s/benchmarks/internal/points"
)

// Turn is one setting on its way through the rounds.
type Turn struct {
	// Query answers item i and returns the number of contexts in it.
	Query func(i int) (contexts int)
	// Before, unless nil, is called before each query, and is no part of its time. If Before is
	// set, each query is timed by itself, and the time includes a reading of the clock.
	Before func(i int)
	// Micros is the mean time of a context in microseconds, one element a turn.
	Micros []float64
	// Ratios is the time of the dense scan, divided by Micros.
	Ratios []float64

	// Block is the number of queries of a turn; InTurns raises it where the turn would
	// be shorter than wanted.
	Block int
}

// groupSize is the number of settings that have their turns between two turns of the dense scan. So
// the two times of a ratio are some tenths of a second apart.
const groupSize = 8

// InTurns lets the settings answer items, n of them, in turns, for a number of rounds, each turn
// about as long as block. Each round has a new random order, because a turn starts with the caches
// that the turn before it left. The dense scan has a turn before each group of settings; a ratio is
// to that turn, and all turns of a group begin at the same item. A turn begins with queries that
// are not timed, a tenth of the block.
//
// The rounds run on the caller's goroutine, on one thread, with the other cores at rest. InTurns
// returns the number of rounds that are complete, fewer than wanted if ctx ends, and drops the
// turns of an incomplete round. progress gets the number of finished rounds.
func InTurns(ctx context.Context, dense *Turn, turns []*Turn, n, rounds int, block time.Duration, seed uint64, progress func(done int)) int {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, t := range append([]*Turn{dense}, turns...) {
		if ctx.Err() != nil {
			return 0
		}
		t.calibrate(n, block)
	}
	runtime.GC()
	order := rand.New(rand.NewPCG(seed, 1))
	first := 0
	for round := range rounds {
		progress(round)
		scans := len(dense.Micros)
		for i, at := range order.Perm(len(turns)) {
			if ctx.Err() != nil {
				dense.keep(scans)
				for _, t := range turns {
					t.keep(round)
				}
				return round
			}
			if i%groupSize == 0 {
				first = order.IntN(n)
				dense.run(n, first)
			}
			t := turns[at]
			t.run(n, first)
			t.Ratios = append(t.Ratios, dense.Micros[len(dense.Micros)-1]/t.Micros[len(t.Micros)-1])
		}
	}
	progress(rounds)
	return rounds
}

// calibrate answers items for about as long as a block takes, a few times, and sets the number of
// queries of one: the largest of these, because a number that was found on a busy machine would
// make turns too short to bring the method's data to the caches.
func (t *Turn) calibrate(items int, block time.Duration) {
	const trials = 3
	for range trials {
		start := time.Now()
		for n := 1; ; n++ {
			t.ask(n % items)
			if time.Since(start) >= block {
				t.Block = max(t.Block, n)
				break
			}
		}
	}
}

func (t *Turn) run(items, first int) {
	at, contexts := first, 0
	var taken time.Duration
	next := func() {
		n, elapsed := t.ask(at)
		contexts, taken = contexts+n, taken+elapsed
		if at++; at == items {
			at = 0
		}
	}
	for range t.Block/10 + 1 {
		next()
	}
	contexts, taken = 0, 0
	start := time.Now()
	for range t.Block {
		next()
	}
	if t.Before == nil {
		taken = time.Since(start)
	}
	t.Micros = append(t.Micros, float64(taken.Nanoseconds())/1e3/float64(contexts))
}

// ask answers item i. It returns the time only if Before is called.
func (t *Turn) ask(i int) (contexts int, elapsed time.Duration) {
	if t.Before == nil {
		return t.Query(i), 0
	}
	t.Before(i)
	start := time.Now()
	contexts = t.Query(i)
	return contexts, time.Since(start)
}

// Median returns the median of the ratios; 0 if there are none.
func (t *Turn) Median() float64 {
	if len(t.Ratios) == 0 {
		return 0
	}
	return Quantile(t.Ratios, 0.5)
}

// keep drops all but the first n turns.
func (t *Turn) keep(n int) {
	t.Micros = t.Micros[:min(n, len(t.Micros))]
	t.Ratios = t.Ratios[:min(n, len(t.Ratios))]
}

// Timing returns the time of a context and the ratio, with their quartiles. The
// ratio of the dense scan itself is 1.
func (t *Turn) Timing() points.Timing {
	x := points.Timing{
		Micros: Quantile(t.Micros, 0.5), MicrosQ1: Quantile(t.Micros, 0.25), MicrosQ3: Quantile(t.Micros, 0.75),
		Speedup: 1, SpeedupQ1: 1, SpeedupQ3: 1,
	}
	if r := t.Ratios; r != nil {
		x.Speedup, x.SpeedupQ1, x.SpeedupQ3 = Quantile(r, 0.5), Quantile(r, 0.25), Quantile(r, 0.75)
	}
	for _, v := range []*float64{&x.Micros, &x.MicrosQ1, &x.MicrosQ3, &x.Speedup, &x.SpeedupQ1, &x.SpeedupQ3} {
		*v = Round(*v, 4)
	}
	return x
}

// Quantile returns the element of x at the share q of its order.
func Quantile(x []float64, q float64) float64 {
	s := slices.Sorted(slices.Values(x))
	return s[int(q*float64(len(s)-1)+0.5)]
}

// Round rounds x to a number of decimals.
func Round(x float64, decimals int) float64 {
	f := math.Pow10(decimals)
	return math.Round(x*f) / f
}
