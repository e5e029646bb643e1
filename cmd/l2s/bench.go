package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/learning-to-screen/l2s/internal/progress"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

func benchVerb() *verb {
	return &verb{
		name: "bench", args: "m.l2s --weights SRC --bias SRC --contexts SRC",
		summary: "measure the time of a screened query and of the exact ones",
		help: `
Times three ways to find the top-k, on one thread: the dense float32 scan of
the layer followed by top-k selection, the exact search by int8 codes, and the
screened search. They take turns over several rounds, each on contexts in
turn, at least 1,000 different ones; times are medians. The speedup is that of
the screened search over the dense scan.

Example:
  l2s bench m.l2s --weights W.npy --bias b.npy --contexts H.test.npy`,
		run: runBench,
	}
}

// timings is what bench --json prints.
type timings struct {
	DenseF32Micros    float64 `json:"dense_f32_us"`
	ExactMicros       float64 `json:"exact_us"`
	ScreenedMicros    float64 `json:"screened_us"`
	ScreenedP99Micros float64 `json:"screened_p99_us"`
	Speedup           float64 `json:"speedup"`
	Level             string  `json:"level"`
	AllocsPerQuery    float64 `json:"allocs_per_query"`
	K                 int     `json:"k"`
}

func runBench(ctx context.Context, e *env) error {
	f := e.flags
	var in inputs
	in.register(e)
	k := f.Int("k", 5, "`k`, the number of labels to find")
	quiet := f.Bool("quiet", false, "show no progress")
	asJSON := f.Bool("json", false, "print JSON")
	pos, err := e.parse("the screen file")
	if err != nil {
		return err
	}
	layer, contexts, err := in.load(e)
	defer in.close()
	if err != nil {
		return err
	}
	if err := checkK(*k, layer.Labels()); err != nil {
		return err
	}
	m, err := loadModel(pos[0], layer)
	if err != nil {
		return err
	}
	if n := distinct(contexts, layer.Dim()); n < minBenchContexts {
		return fmt.Errorf("%s: contexts: found %d different ones, expected at least %d, lest the caches answer", in.contexts, n, minBenchContexts)
	}
	p := e.printer(*quiet)
	defer p.Close()
	t, err := bench(ctx, m, layer, contexts, *k, p)
	if err != nil {
		return err
	}
	if *asJSON {
		return writeJSON(e.stdout, t)
	}
	fmt.Fprintf(e.stdout, "dense float32 scan  %9.2f us\nexact, int8 codes   %9.2f us\nscreened            %9.2f us   (99th percentile %.2f us)\nspeedup             %9.1f x    (level %s, top-%d, %g allocations a query)\n",
		t.DenseF32Micros, t.ExactMicros, t.ScreenedMicros, t.ScreenedP99Micros, t.Speedup, t.Level, t.K, t.AllocsPerQuery)
	return nil
}

const (
	minBenchContexts = 1000
	benchRounds      = 15
)

// distinct counts the different contexts among the first ten thousand.
func distinct(contexts []float32, dim int) int {
	seen := map[string]bool{}
	key := make([]byte, 4*dim)
	for i := 0; i < min(len(contexts)/dim, 10000); i++ {
		for j, x := range contexts[i*dim : (i+1)*dim] {
			binary.LittleEndian.PutUint32(key[4*j:], math.Float32bits(x))
		}
		seen[string(key)] = true
	}
	return len(seen)
}

// bench times the three searches in turns on one thread.
func bench(ctx context.Context, m *screen.Model, layer *softmax.Layer, contexts []float32, k int, p *progress.Printer) (*timings, error) {
	s, err := screen.NewSearcher(m, layer)
	if err != nil {
		return nil, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	dim := layer.Dim()
	n := len(contexts) / dim
	q := softmax.NewQuery(dim)
	dst := make([]softmax.Prediction, k)
	next := 0
	turn := func() []float32 {
		h := contexts[next*dim : (next+1)*dim]
		next = (next + 1) % n
		return h
	}
	var failed error
	dense := func() {
		if err := q.Set(turn()); err != nil {
			failed = err
			return
		}
		layer.TopKFloat32(dst, q)
	}
	exact := func() {
		if err := q.Set(turn()); err != nil {
			failed = err
			return
		}
		layer.TopK(dst, q)
	}
	screened := func() {
		if _, err := s.TopK(dst, turn()); err != nil {
			failed = err
		}
	}
	// block returns the mean microseconds of a call over a block of calls.
	block := func(calls int, f func()) float64 {
		start := time.Now()
		for range calls {
			f()
		}
		return float64(time.Since(start).Nanoseconds()) / 1000 / float64(calls)
	}
	// The blocks of the slow searches are sized to some milliseconds.
	calls := func(f func()) int { return max(8, min(1000, int(10_000/block(8, f)))) }
	denseCalls, exactCalls := calls(dense), calls(exact)
	const screenedCalls = 2000

	var denseTimes, exactTimes, screenedTimes []float64
	single := make([]float64, 0, benchRounds*screenedCalls)
	var before, after runtime.MemStats
	var allocs uint64
	for round := range benchRounds + 1 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		d := block(denseCalls, dense)
		x := block(exactCalls, exact)
		// A dense scan leaves nothing of the screen in the caches; a
		// service that screens makes no dense scans.
		block(screenedCalls/4, screened)
		runtime.ReadMemStats(&before)
		sc := block(screenedCalls, screened)
		runtime.ReadMemStats(&after)
		if round == 0 {
			continue // warm-up
		}
		allocs += after.Mallocs - before.Mallocs
		denseTimes, exactTimes, screenedTimes = append(denseTimes, d), append(exactTimes, x), append(screenedTimes, sc)
		for range screenedCalls {
			start := time.Now()
			screened()
			single = append(single, float64(time.Since(start).Nanoseconds())/1000)
		}
		p.Update("timing", round, benchRounds)
	}
	if failed != nil {
		return nil, failed
	}
	t := &timings{
		DenseF32Micros: quantile(denseTimes, 0.5), ExactMicros: quantile(exactTimes, 0.5),
		ScreenedMicros: quantile(screenedTimes, 0.5), ScreenedP99Micros: quantile(single, 0.99),
		Level: kernels.Level(), K: k,
		AllocsPerQuery: float64(allocs) / (benchRounds * screenedCalls),
	}
	t.Speedup = t.DenseF32Micros / t.ScreenedMicros
	return t, nil
}

func quantile(x []float64, q float64) float64 {
	x = slices.Clone(x)
	slices.Sort(x)
	return x[int(q*float64(len(x)-1)+0.5)]
}
