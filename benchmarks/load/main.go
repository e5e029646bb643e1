// Command load puts a screen under the load of a service: goroutines that ask it for the top k of a
// file's contexts in turn, each with its own searcher. Every answer is compared, id by id and bit
// by bit, with an answer computed before by plain Go code that follows the definitions: argmax over
// the cluster vectors, the shell, then a sort of the cell's candidates by their logits, or of all
// labels if there are fewer than k of them.
//
//	load -weights SRC -bias SRC -contexts H.npy -screen m.l2s -queries 10000000
//
// It prints the number of wrong answers, of allocations, the growth of the resident memory, and
// quantiles of the time of a query, and fails unless the answers are right, nothing was allocated
// and the memory is flat.
package main

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/files/heads"
	"github.com/learning-to-screen/l2s/internal/ground/parallel"
	"github.com/learning-to-screen/l2s/internal/search/dense"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/screening"
)

func main() {
	weights := flag.String("weights", "", "the layer's weights, as l2s train takes them")
	bias := flag.String("bias", "", "the layer's bias")
	contexts := flag.String("contexts", "", "the contexts to ask for")
	path := flag.String("screen", "", "the screen")
	queries := flag.Int("queries", 200_000, "the number of queries")
	goroutines := flag.Int("goroutines", 2, "the goroutines that ask")
	k := flag.Int("k", 5, "the labels of an answer")
	flag.Parse()
	if err := run(*weights, *bias, *contexts, *path, *queries, *goroutines, *k); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run(weights, bias, contexts, path string, queries, goroutines, k int) error {
	if queries < 1 || goroutines < 1 || k < 1 {
		return fmt.Errorf("found %d queries, %d goroutines and k = %d, expected at least 1 of each", queries, goroutines, k)
	}
	opened, err := l2s.Open(weights, l2s.OpenOptions{Bias: bias, Copy: true})
	if err != nil {
		return err
	}
	layer := (*engine.Layer)(opened).Exact()
	h, release, err := heads.OpenContexts(contexts, layer.Dim())
	if err != nil {
		return err
	}
	defer release()
	index, err := engine.Load(path)
	if err != nil {
		return err
	}
	model := index.Screen()
	if model == nil {
		return fmt.Errorf("%s: found a preview, expected a screen", path)
	}
	start := time.Now()
	want, err := answers(model, layer, h, k)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	fmt.Printf("%d contexts answered by the definition in %.1fs, k = %d, level %s\n", len(want)/k, time.Since(start).Seconds(), k, kernels.Level())
	r, err := load(model, layer, h, want, k, queries, goroutines)
	if err != nil {
		return err
	}
	fmt.Print(r)
	return r.check()
}

// dot is the reference arithmetic as package kernels documents it.
func dot(x, y []float32) float64 {
	var lane [32]float64
	for i := range x {
		lane[i%32] += float64(x[i]) * float64(y[i])
	}
	for n := 16; n > 0; n /= 2 {
		for j := range n {
			lane[j] += lane[j+n]
		}
	}
	return lane[0]
}

// answers returns the top k of each context by the definition.
func answers(m *screening.Model, l *exact.Layer, h []float32, k int) ([]exact.Prediction, error) {
	d := m.Dim()
	weights := dense.Weights(l)
	if k > l.Labels() {
		return nil, fmt.Errorf("found k = %d, expected at most the %d labels", k, l.Labels())
	}
	labels := make([]uint32, l.Labels())
	for i := range labels {
		labels[i] = uint32(i)
	}
	n := len(h) / d
	want := make([]exact.Prediction, n*k)
	// Some hundred contexts a chunk share the memory of the sort.
	err := parallel.Each(context.Background(), 0, n, 128, nil, func(_, lo, hi int) error {
		var all []exact.Prediction
		for i := lo; i < hi; i++ {
			x := h[i*d : (i+1)*d]
			ids, err := m.Candidates(cellOf(m, x), m.Budget())
			if err != nil {
				return err
			}
			ids = slices.Sorted(slices.Values(ids))
			if len(ids) < k {
				ids = labels // the exact layer answers
			}
			all = all[:0]
			for _, id := range ids {
				all = append(all, exact.Prediction{ID: id, Logit: dot(weights[int(id)*d:(int(id)+1)*d], x) + float64(l.Bias()[id])})
			}
			slices.SortStableFunc(all, func(a, b exact.Prediction) int { return cmp.Compare(b.Logit, a.Logit) })
			copy(want[i*k:(i+1)*k], all)
		}
		return nil
	})
	return want, err
}

// cellOf returns the cell of a context by the definition of screening.Config.
func cellOf(m *screening.Model, x []float32) int {
	v, d, r := m.Config().Clusters, m.Dim(), m.Clusters()
	first, best := 0, math.Inf(-1)
	for c := range r {
		if s := dot(v[c*d:(c+1)*d], x); s > best {
			first, best = c, s
		}
	}
	shell := 0
	z := v[first*d : (first+1)*d]
	if lengths := math.Sqrt(dot(z, z)) * math.Sqrt(dot(x, x)); lengths > 0 {
		for _, cut := range m.Config().Shells {
			if best/lengths < cut {
				shell++
			}
		}
	}
	return shell*r + first
}

// report has the results of a load.
type report struct {
	queries, goroutines, wrong int
	allocs                     uint64
	resident, growth           int // bytes after the start, and the most above that
	times                      []uint32
	seconds                    float64
}

// load asks for the contexts in turn, each goroutine from another place.
func load(m *screening.Model, l *exact.Layer, h []float32, want []exact.Prediction, k, queries, goroutines int) (*report, error) {
	d := l.Dim()
	n := len(h) / d
	r := &report{queries: queries, goroutines: goroutines, times: make([]uint32, queries)}
	for i := range r.times {
		r.times[i] = 1 // so that the memory is resident
	}
	wrong := make([]int, goroutines)
	errs := make([]error, goroutines)
	searchers := make([]*screening.Searcher, goroutines)
	for g := range searchers {
		s, err := screening.NewSearcher(m, l, screening.Options{})
		if err != nil {
			return nil, err
		}
		searchers[g] = s
	}
	ask := func(g, from, to int, times []uint32) {
		got := make([]exact.Prediction, k)
		s := searchers[g]
		i := g * n / goroutines
		for q := from; q < to; q++ {
			start := time.Now()
			count, err := s.TopK(got, h[i*d:(i+1)*d])
			if times != nil {
				times[q] = uint32(min(time.Since(start), math.MaxUint32))
			}
			if err != nil {
				errs[g] = err
				return
			}
			if !slices.Equal(got[:count], want[i*k:(i+1)*k]) {
				wrong[g]++
			}
			if i++; i == n {
				i = 0
			}
		}
	}
	all := func(queries int, times []uint32) {
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() { ask(g, g*queries/goroutines, (g+1)*queries/goroutines, times) })
		}
		wg.Wait()
	}
	all(min(queries, 1000*goroutines), nil) // warms the goroutines and the caches
	clear(wrong)

	watch, err := newMemory()
	if err != nil {
		return nil, err
	}
	defer watch.close()
	stop, watched := make(chan struct{}), make(chan struct{})
	debug.FreeOSMemory()
	r.resident = watch.resident()
	most := r.resident
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	go func() {
		defer close(watched)
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				most = max(most, watch.resident())
			}
		}
	}()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	all(queries, r.times)
	r.seconds = time.Since(start).Seconds()
	runtime.ReadMemStats(&after)
	close(stop)
	<-watched
	r.growth = most - r.resident
	r.allocs = after.Mallocs - before.Mallocs
	for g := range goroutines {
		if errs[g] != nil {
			return nil, errs[g]
		}
		r.wrong += wrong[g]
	}
	slices.Sort(r.times)
	return r, nil
}

// start is the number of allocations that starting and joining goroutines, and
// asking the runtime for its figures, may make; queries make none.
func (r *report) start() uint64 { return uint64(64 + 16*r.goroutines) }

func (r *report) quantile(p float64) float64 {
	at := min(len(r.times)-1, int(math.Ceil(p*float64(len(r.times))))-1)
	return float64(r.times[max(0, at)]) / 1e3
}

func (r *report) String() string {
	return fmt.Sprintf(`%d queries by %d goroutines in %.1fs: %d wrong answers
%d allocations in all, including the start of the goroutines
resident memory %.1f MiB, growth %.1f MiB
p50 %.2f us, p99 %.2f us, p99.9 %.2f us, the longest %.0f us
`, r.queries, r.goroutines, r.seconds, r.wrong, r.allocs, float64(r.resident)/(1<<20), float64(r.growth)/(1<<20),
		r.quantile(0.5), r.quantile(0.99), r.quantile(0.999), r.quantile(1))
}

// check returns an error for a broken promise. The memory may grow by stacks and by the runtime's
// own memory.
func (r *report) check() error {
	switch {
	case r.wrong > 0:
		return fmt.Errorf("found %d wrong answers, expected none", r.wrong)
	case r.allocs > r.start():
		return fmt.Errorf("found %d allocations, expected at most %d for the start of the goroutines", r.allocs, r.start())
	case r.growth > 4<<20:
		return fmt.Errorf("found the resident memory grown by %d bytes, expected at most 4 MiB", r.growth)
	}
	return nil
}

// memory reads the resident memory of the process without allocating any.
type memory struct {
	file *os.File // nil if the system has no such file
	buf  [256]byte
}

func newMemory() (*memory, error) {
	f, err := os.Open("/proc/self/statm")
	if runtime.GOOS != "linux" {
		return &memory{}, nil
	}
	return &memory{file: f}, err
}

func (m *memory) close() {
	if m.file != nil {
		m.file.Close()
	}
}

// resident returns the resident memory in bytes, 0 if it is not known.
func (m *memory) resident() int {
	if m.file == nil {
		return 0
	}
	n, _ := m.file.ReadAt(m.buf[:], 0)
	fields := bytes.IndexByte(m.buf[:n], ' ')
	if fields < 0 {
		return 0
	}
	pages := 0
	for _, c := range m.buf[fields+1 : n] {
		if c < '0' || c > '9' {
			break
		}
		pages = 10*pages + int(c-'0')
	}
	return pages * os.Getpagesize()
}
