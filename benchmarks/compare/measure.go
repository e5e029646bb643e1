package main

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/learning-to-screen/l2s/benchmarks/internal/methods"
	"github.com/learning-to-screen/l2s/softmax"
)

// turn is one setting on its way through the rounds.
type turn struct {
	query func(h []float32)
	block int // queries of a turn

	micros []float64 // mean time of a query, one element a turn
	ratios []float64 // that of the dense scan, divided by it
}

// groupSize is the number of settings that have their turns between two of the
// dense scan. So the scan of a ratio is from within some tenths of a second.
const groupSize = 8

// measure lets the settings answer contexts in turns, as many rounds, each turn
// about as long as block. In a round they are in an order drawn anew, as what a
// turn finds in the caches is what the one before left there. The dense scan
// has a turn before each group of settings; a ratio is to that turn, and all
// turns of a group begin at the same context. A turn begins with queries that
// are not timed, a tenth of the block.
//
// The rounds run on the caller's goroutine, on one thread, with the
// other cores at rest. measure returns the number of rounds that are complete,
// fewer than asked for where ctx ends, and drops what belongs to none.
func measure(ctx context.Context, dense *turn, turns []*turn, contexts [][]float32, rounds int, block time.Duration, seed uint64, progress func(done int)) int {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, t := range append([]*turn{dense}, turns...) {
		if ctx.Err() != nil {
			return 0
		}
		t.calibrate(contexts, block)
	}
	runtime.GC()
	order := rand.New(rand.NewPCG(seed, 1))
	first := 0
	for round := range rounds {
		progress(round)
		scans := len(dense.micros)
		for i, at := range order.Perm(len(turns)) {
			if ctx.Err() != nil {
				dense.keep(scans)
				for _, t := range turns {
					t.keep(round)
				}
				return round
			}
			if i%groupSize == 0 {
				first = order.IntN(len(contexts))
				dense.run(contexts, first)
			}
			t := turns[at]
			t.run(contexts, first)
			t.ratios = append(t.ratios, dense.micros[len(dense.micros)-1]/t.micros[len(t.micros)-1])
		}
	}
	progress(rounds)
	return rounds
}

// calibrate answers contexts for about as long as a block takes, a few times,
// and sets the number of queries of one: the largest, as a machine that was busy
// meanwhile would leave a turn too short to bring the method's data to the
// caches.
func (t *turn) calibrate(contexts [][]float32, block time.Duration) {
	const trials = 3
	for range trials {
		start := time.Now()
		for n := 1; ; n++ {
			t.query(contexts[n%len(contexts)])
			if time.Since(start) >= block {
				t.block = max(t.block, n)
				break
			}
		}
	}
}

func (t *turn) run(contexts [][]float32, first int) {
	at := first
	next := func() {
		t.query(contexts[at])
		if at++; at == len(contexts) {
			at = 0
		}
	}
	for range t.block/10 + 1 {
		next()
	}
	start := time.Now()
	for range t.block {
		next()
	}
	t.micros = append(t.micros, float64(time.Since(start).Nanoseconds())/1e3/float64(t.block))
}

// keep drops all but the first n turns.
func (t *turn) keep(n int) {
	t.micros = t.micros[:min(n, len(t.micros))]
	t.ratios = t.ratios[:min(n, len(t.ratios))]
}

// quantile returns the element of x at the share q of its order.
func quantile(x []float64, q float64) float64 {
	s := slices.Sorted(slices.Values(x))
	return s[int(q*float64(len(s)-1)+0.5)]
}

// precision returns P@1 and P@k of a setting (Section 4 of the paper): the
// share of the exact k best labels that are among the k of its answer. labels
// are the exact ones, k for each context. The first of the k labels is the
// answer for P@1, so that both precisions are of the answer that is timed. It
// runs on all cores.
func precision(ctx context.Context, s methods.Setting, contexts [][]float32, labels []uint32, k int) (p1, pk float64, err error) {
	const chunk = 64
	var next, hits1, hitsK atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			sr, dst := s.Searcher(), make([]softmax.Prediction, k)
			for ctx.Err() == nil {
				from := int(next.Add(chunk)) - chunk
				if from >= len(contexts) {
					return
				}
				for i := from; i < min(from+chunk, len(contexts)); i++ {
					n := sr.TopK(dst, contexts[i])
					want := labels[i*k : (i+1)*k]
					if n > 0 && dst[0].ID == want[0] {
						hits1.Add(1)
					}
					for _, p := range dst[:n] {
						if slices.Contains(want, p.ID) {
							hitsK.Add(1)
						}
					}
				}
			}
		}()
	}
	wg.Wait()
	n := float64(len(contexts))
	return float64(hits1.Load()) / n, float64(hitsK.Load()) / (n * float64(k)), ctx.Err()
}
