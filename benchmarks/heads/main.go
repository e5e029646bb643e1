// Command heads measures the exact and the screened search on heads of language models, whose
// weights are bfloat16: the costs of opening a head and of computing its fingerprint, and the times
// of queries compared with the dense float32 scan of the same values and with ggml's matrix-vector
// product in Q8_0 (built with -tags ggml, and with -ggml, the folder of its libraries: see package
// ggml).
//
// Queries take turns (package measure) on one thread. Times of opening, on all cores, are the least
// of a few, since other work of the machine only adds to them. The least of a query's turns is
// reported, too, for machines that others use.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/learning-to-screen/l2s/benchmarks/internal/ggml"
	"github.com/learning-to-screen/l2s/benchmarks/internal/layers"
	"github.com/learning-to-screen/l2s/benchmarks/internal/measure"
	"github.com/learning-to-screen/l2s/head"
	"github.com/learning-to-screen/l2s/internal/dense"
	"github.com/learning-to-screen/l2s/internal/kernels"
	"github.com/learning-to-screen/l2s/internal/synthetic"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

const (
	k        = 5
	contexts = 500
	// For the screen of a structured head.
	clusters, candidates = 100, 500
	// evicted is the number of bytes that are read between two queries that are to
	// find the caches cold.
	evicted = 64 << 20
)

// shape is a head to measure.
type shape struct {
	name     string
	rows     kernels.Rows
	bias     []float32
	contexts []float32
	screen   *screen.Model // or nil
}

func main() {
	rounds := flag.Int("rounds", 61, "`number` of rounds")
	block := flag.Duration("block", 20*time.Millisecond, "`time` that a turn takes, about")
	opens := flag.Int("opens", 9, "`number` of times that a head is opened")
	folder := flag.String("ggml", "", "`folder` of ggml's libraries")
	model := flag.String("model", "../../shared/data/llm-65k", "`folder` of a model with contexts_test.npy; left out if it is absent")
	file := flag.String("screen", "", "screen `file` of the model; left out if it is absent")
	only := flag.String("only", "", "measure the shapes whose name holds this `text`")
	flag.Parse()
	if err := run(*rounds, *block, *opens, *folder, *model, *file, *only); err != nil {
		fmt.Fprintln(os.Stderr, "heads:", err)
		os.Exit(1)
	}
}

func run(rounds int, block time.Duration, opens int, folder, model, file, only string) error {
	if ggml.Open == nil || folder == "" {
		note("ggml is left out: build with -tags ggml and name the folder of its libraries by -ggml")
	}
	shapes := []struct {
		name string
		make func(name string) (*shape, error)
	}{
		{"262,144 x 640", func(name string) (*shape, error) { return structured(name, 262144, 640, true) }},
		{"128,256 x 2,048", func(name string) (*shape, error) { return structured(name, 128256, 2048, false) }},
		{"65,536 x 384, " + filepath.Base(model), func(name string) (*shape, error) { return ofModel(name, model, file) }},
	}
	fmt.Printf("level %s, %d cores, %d rounds\n", kernels.Level(), runtime.GOMAXPROCS(0), rounds)
	for _, s := range shapes {
		if !strings.Contains(s.name, only) {
			continue
		}
		note("making %s", s.name)
		made, err := s.make(s.name)
		if errors.Is(err, os.ErrNotExist) {
			note("%s is left out: %v", s.name, err)
			continue
		}
		if err != nil {
			return err
		}
		fmt.Printf("\n**%s, bfloat16**\n\n", made.name)
		debug.FreeOSMemory()
		l, err := opened(made, opens)
		if err != nil {
			return err
		}
		if err := queries(made, l, rounds, block, folder); err != nil {
			return err
		}
		runtime.GC()
	}
	return nil
}

func note(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// structured makes a structured head, without a bias as language models have it.
func structured(name string, labels, dim int, screened bool) (*shape, error) {
	data := synthetic.Structured(labels, dim, clusters, contexts, 1)
	wide, _ := kernels.AsFloat32(data.Layer.Weights())
	narrow := make([]uint16, len(wide))
	for i, w := range wide {
		bits := math.Float32bits(w)
		narrow[i] = uint16((bits + 0x7fff + bits>>16&1) >> 16) // to the nearest, ties to even
	}
	s := &shape{name: name + ", structured", rows: kernels.BFloat16Rows(narrow, dim), contexts: data.Contexts}
	if screened {
		var err error
		if data.Layer, err = softmax.NewLayer(s.rows, s.bias); err != nil {
			return nil, err
		}
		if s.screen, err = data.Screen(candidates); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// ofModel opens the head of a model, contexts from its folder, and a screen unless file is "".
func ofModel(name, folder, file string) (*shape, error) {
	if _, err := os.Stat(folder); err != nil {
		return nil, err
	}
	h, err := head.Open(folder, head.Options{})
	if err != nil {
		return nil, err
	}
	all, release, err := layers.ReadRows(filepath.Join(folder, "contexts_test.npy"), h.Dim())
	if err != nil {
		return nil, err
	}
	defer release()
	made := &shape{name: name, rows: h.Rows(), bias: h.Bias(), contexts: make([]float32, 0, contexts*h.Dim())}
	for i := range contexts { // evenly spread over the file
		at := i * (len(all) / h.Dim()) / contexts * h.Dim()
		made.contexts = append(made.contexts, all[at:at+h.Dim()]...)
	}
	if file != "" {
		if made.screen, err = screen.Load(file); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// anonymous returns the bytes of memory of this process that are in no file.
func anonymous() (n int64, ok bool) {
	debug.FreeOSMemory()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, false
	}
	for _, line := range strings.Split(string(status), "\n") {
		if value, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 10, 64)
			return n << 10, err == nil
		}
	}
	return 0, false
}

// least returns the least time of some calls.
func least(n int, f func() error) (time.Duration, error) {
	best := time.Duration(math.MaxInt64)
	for range n {
		runtime.GC()
		start := time.Now()
		if err := f(); err != nil {
			return 0, err
		}
		best = min(best, time.Since(start))
	}
	return best, nil
}

// opened measures the cost of opening the head.
func opened(s *shape, opens int) (l *softmax.Layer, err error) {
	before, counted := anonymous()
	if l, err = softmax.NewLayer(s.rows, s.bias); err != nil {
		return nil, err
	}
	sr, dst := softmax.NewSearcher(l), make([]softmax.Prediction, k)
	for i := range 50 {
		if _, err := sr.TopK(dst, s.context(i)); err != nil {
			return nil, err
		}
	}
	if after, _ := anonymous(); counted {
		fmt.Printf("- in addition to the weights, a layer and a searcher hold %.3f bytes per weight\n",
			float64(after-before)/float64(s.rows.Len()*s.rows.Dim()))
	}
	runtime.KeepAlive(sr)
	make1, err := least(opens, func() (err error) {
		l, err = softmax.NewLayer(s.rows, s.bias)
		return err
	})
	if err != nil {
		return nil, err
	}
	fmt.Printf("- NewLayer: %.0f ms\n", millis(make1))
	hash, err := least(opens, func() error {
		l, err := softmax.NewLayer(s.rows, s.bias)
		if err == nil {
			l.Fingerprint()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	fmt.Printf("- NewLayer with its fingerprint: %.0f ms\n", millis(hash))
	return l, nil
}

func millis(t time.Duration) float64 { return float64(t.Microseconds()) / 1e3 }

func (s *shape) context(i int) []float32 {
	d := s.rows.Dim()
	return s.contexts[i*d : (i+1)*d]
}

// method is a way to answer a context.
type method struct {
	name  string
	query func(h []float32)
}

func queries(s *shape, l *softmax.Layer, rounds int, block time.Duration, folder string) error {
	must := func(_ int, err error) {
		if err != nil {
			panic(err)
		}
	}
	dst := make([]softmax.Prediction, k)
	plain, exact := dense.New(l), softmax.NewSearcher(l)
	list := []method{
		{"float32 scan of a widened copy", func(h []float32) { plain.TopK(dst, h) }},
		{"scan of the bfloat16 weights", stored(l)},
		{"exact", func(h []float32) { must(exact.TopK(dst, h)) }},
	}
	if ggml.Open != nil && folder != "" {
		p, err := ggml.Open(folder, s.rows)
		if err != nil {
			return fmt.Errorf("ggml: %w", err)
		}
		scores := make([]float32, l.Labels())
		if err := close32(p, l, scores, s); err != nil {
			return err
		}
		list = append(list, method{"ggml, Q8_0, " + p.Library() + ", no selection", func(h []float32) { p.Mul(scores, h) }})
	}
	var screened *screen.Searcher
	if s.screen != nil {
		var err error
		if screened, err = screen.NewSearcher(s.screen, l, screen.Options{}); err != nil {
			return err
		}
		list = append(list, method{"screened", func(h []float32) { must(screened.TopK(dst, h)) }})
	}
	turns := make([]*measure.Turn, len(list))
	for i, m := range list {
		turns[i] = &measure.Turn{Query: func(i int) int { m.query(s.context(i)); return 1 }}
	}
	measure.InTurns(context.Background(), turns[0], turns[1:], contexts, rounds, block, 1, func(int) {})
	fmt.Printf("\n| | us, median | least | speedup, median | quartiles | of the least |\n|---|---:|---:|---:|---:|---:|\n")
	for i, m := range list {
		t, best := turns[i].Timing(), slices.Min(turns[i].Micros)
		fmt.Printf("| %s | %.1f | %.1f | %.2f | %.2f - %.2f | %.2f |\n", m.name, t.Micros, best,
			t.Speedup, t.SpeedupQ1, t.SpeedupQ3, slices.Min(turns[0].Micros)/best)
	}
	if i := slices.IndexFunc(list, func(m method) bool { return strings.HasPrefix(m.name, "ggml") }); i > 0 {
		ratios := make([]float64, len(turns[i].Micros))
		for r := range ratios {
			ratios[r] = turns[i].Micros[r] / turns[i-1].Micros[r]
		}
		fmt.Printf("\nratio of ggml's time to the time of exact, within a round: %.2f (%.2f - %.2f); of the least: %.2f\n",
			measure.Quantile(ratios, 0.5), measure.Quantile(ratios, 0.25), measure.Quantile(ratios, 0.75),
			slices.Min(turns[i].Micros)/slices.Min(turns[i-1].Micros))
	}
	fmt.Printf("\nOne query at a time, medians; cold: %d MiB of other memory are read before each.\n\n| | cold, us | warm, us |\n|---|---:|---:|\n", evicted>>20)
	for _, m := range list {
		warm, cold := coldAndWarm(s, m.query)
		fmt.Printf("| %s | %.1f | %.1f |\n", m.name, cold, warm)
	}
	if screened != nil {
		fmt.Printf("\nscreened: %d clusters, budget %.0f; %s\n", s.screen.Clusters(), s.screen.Budget(), quality(s, screened, exact))
	}
	return nil
}

// stored returns the scan of weights as they are in memory: it widens some rows, and multiplies
// them while they are in the first-level cache.
func stored(l *softmax.Layer) func(h []float32) {
	const block = 16
	rows, dim := l.Weights(), l.Dim()
	wide, scores := make([]float32, block*dim), make([]float32, l.Labels())
	ids, values, bias := make([]uint32, k), make([]float32, k), make([]float32, l.Labels())
	copy(bias, l.Bias())
	return func(h []float32) {
		for i := 0; i < len(scores); i += block {
			n := min(block, len(scores)-i)
			for j := range n {
				rows.Widen(wide[j*dim:(j+1)*dim], i+j)
			}
			kernels.Scan(scores[i:i+n], wide[:n*dim], bias[i:i+n], h)
		}
		kernels.TopK(ids, values, scores)
	}
}

// close32 checks that ggml computes the logits, except for its rounding.
func close32(p ggml.Product, l *softmax.Layer, scores []float32, s *shape) error {
	h := s.context(0)
	p.Mul(scores, h)
	best := make([]softmax.Prediction, 1)
	if _, err := softmax.NewSearcher(l).TopK(best, h); err != nil {
		return err
	}
	id := best[0].ID
	want := best[0].Logit - float64(l.Bias()[id])
	if got := float64(scores[id]); math.Abs(got-want) > 0.05*math.Abs(want) {
		return fmt.Errorf("ggml: found %g for the best logit, expected %g within a twentieth", got, want)
	}
	return nil
}

// coldAndWarm returns the median times of single queries in microseconds: one after the other, and
// with a read of more data than the caches hold before each.
func coldAndWarm(s *shape, query func(h []float32)) (warm, cold float64) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	other := make([]uint64, evicted/8)
	var sink uint64
	for _, c := range []struct {
		evict bool
		to    *float64
	}{{false, &warm}, {true, &cold}} {
		var times []float64
		begin := time.Now()
		for i := 0; i < contexts && (i < 20 || time.Since(begin) < 3*time.Second); i++ {
			if c.evict {
				for j := 0; j < len(other); j += 8 {
					sink += other[j]
				}
				other[i] = sink + 1
			}
			start := time.Now()
			query(s.context(i))
			times = append(times, float64(time.Since(start).Nanoseconds())/1e3)
		}
		*c.to = measure.Quantile(times, 0.5)
	}
	return warm, cold
}

// quality returns the shares of the exact best labels that the screen finds.
func quality(s *shape, screened *screen.Searcher, exact *softmax.Searcher) string {
	a, b := make([]softmax.Prediction, k), make([]softmax.Prediction, k)
	first, all := 0, 0
	for i := range contexts {
		h := s.context(i)
		n, err := screened.TopK(a, h)
		if err != nil {
			panic(err)
		}
		if _, err := exact.TopK(b, h); err != nil {
			panic(err)
		}
		for j, p := range b {
			if slices.ContainsFunc(a[:n], func(q softmax.Prediction) bool { return q.ID == p.ID }) {
				all++
			}
			if j == 0 && n > 0 && a[0].ID == p.ID {
				first++
			}
		}
	}
	return fmt.Sprintf("P@1 %.3f, P@%d %.3f", float64(first)/contexts, k, float64(all)/(k*contexts))
}
