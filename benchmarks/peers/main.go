// Command peers measures the searches of l2s and other ways to scan a layer, on one thread:
// OpenBLAS (built with -tags openblas), gonum, vek and a plain Go loop, each followed by the same
// top-k selection.
//
// All methods of a shape run in one process and take turns (package measure):
// times are medians over the rounds of a turn's mean; ratios are to the dense
// float32 scan of l2s, and their spread is given as the first and third quartile
// of the ratio within a round. Queries with cold caches are measured by l2s bench.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/viterin/vek/vek32"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"github.com/learning-to-screen/l2s/benchmarks/internal/measure"
	"github.com/learning-to-screen/l2s/benchmarks/internal/methods"
	"github.com/learning-to-screen/l2s/internal/codes/floats"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/dense"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/tests/synthetic"
	"github.com/learning-to-screen/l2s/internal/watch/evaluate"
)

const k = 5

// shape is one layer to measure, with a screen.
type shape struct {
	name  string
	data  *synthetic.Data
	model *screening.Model
}

// method answers contexts, from the first on, and returns their number.
type method struct {
	name  string
	query func(first int) (contexts int)
}

func main() {
	rounds := flag.Int("rounds", 21, "`number` of rounds")
	block := flag.Duration("block", 25*time.Millisecond, "`time` that a turn takes, about")
	large := flag.Bool("large", false, "add 131,072 x 1024 and 262,144 x 640")
	flag.Parse()

	note := func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	if methods.Sgemv == nil {
		note("OpenBLAS is left out: build with -tags openblas (Debian: libopenblas-dev and pkg-config)")
	}
	fmt.Printf("level %s, top-%d, one thread, %d rounds\n", kernels.Level(), k, *rounds)
	for _, make := range shapes(*large, note) {
		s, err := make()
		if err != nil {
			fmt.Fprintln(os.Stderr, "peers:", err)
			os.Exit(1)
		}
		note("%s: %d rounds", s.name, *rounds)
		report(s, *rounds, *block)
		runtime.GC()
	}
}

// shapes returns the makers of the shapes, so that one is in memory at a time.
func shapes(large bool, note func(string, ...any)) []func() (*shape, error) {
	structured := func(labels, dim, clusters, size int) func() (*shape, error) {
		return func() (*shape, error) {
			note("making a structured layer of %d x %d", labels, dim)
			data := synthetic.Structured(labels, dim, clusters, 2000, 1)
			m, err := data.Screen(size)
			if err != nil {
				return nil, err
			}
			return &shape{fmt.Sprintf("%d x %d, structured", labels, dim), data, (*engine.Index)(m).Screen()}, nil
		}
	}
	list := []func() (*shape, error){structured(10000, 200, 100, 300), structured(10000, 1500, 100, 120), structured(25000, 500, 100, 200)}
	if large {
		list = append(list, structured(131072, 1024, 1000, 300), structured(262144, 640, 1000, 500))
	}
	return list
}

// contestants returns the ways to answer the shape's contexts; the others are compared to the
// first.
func contestants(s *shape) []method {
	l, d := s.data.Exact, s.data.Exact.Dim()
	labels := l.Labels()
	n := s.data.Len()
	dst := make([]exact.Prediction, k)
	weights, plain, full := dense.Weights(l), dense.New(l), exact.NewSearcher(l)
	each := func(name string, f func(h []float32)) method {
		return method{name: name, query: func(i int) int { f(s.data.Context(i)); return 1 }}
	}
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	list := []method{each("dense float32 scan", func(h []float32) { plain.TopK(dst, h) })}
	scores := make([]float32, labels)
	ids, vals := make([]uint32, k), make([]float32, k)
	peer := func(name string, scan func(dst, rows, h []float32)) {
		list = append(list, each(name, func(h []float32) {
			scan(scores, weights, h)
			for i, b := range l.Bias() {
				scores[i] += b
			}
			floats.TopK(ids, vals, scores)
		}))
	}
	if methods.Sgemv != nil {
		peer("OpenBLAS sgemv", methods.Sgemv)
	}
	peer("gonum Gemv", func(dst, rows, h []float32) {
		blas32.Gemv(blas.NoTrans, 1, blas32.General{Rows: labels, Cols: d, Stride: d, Data: rows},
			blas32.Vector{N: d, Inc: 1, Data: h}, 0, blas32.Vector{N: labels, Inc: 1, Data: dst})
	})
	peer("vek Dot", func(dst, rows, h []float32) {
		for i := range dst {
			dst[i] = vek32.Dot(rows[i*d:(i+1)*d], h)
		}
	})
	peer("plain Go", func(dst, rows, h []float32) {
		for i := range dst {
			var s float32
			for j, w := range rows[i*d : (i+1)*d] {
				s += w * h[j]
			}
			dst[i] = s
		}
	})
	list = append(list, each("exact, int8 envelope", func(h []float32) {
		_, err := full.TopK(dst, h)
		must(err)
	}))
	const batch = 32
	many, found := make([]exact.Prediction, batch*k), make([]exact.Answer, batch)
	list = append(list, method{name: "exact, batch of 32", query: func(i int) int {
		first := i * batch % (n - batch)
		must(full.SearchBatch(many, found, s.data.Contexts[first*d:(first+batch)*d], exact.Request{}))
		return batch
	}})
	sr, err := screening.NewSearcher(s.model, l, screening.Options{})
	must(err)
	list = append(list, each("screened", func(h []float32) {
		_, err := sr.TopK(dst, h)
		must(err)
	}))
	batched, err := engine.NewSearcher(engine.Over(l), engine.OfScreen(s.model), engine.Options{})
	must(err)
	const screened = 256
	answers, of := make([]exact.Prediction, screened*k), make([]exact.Answer, screened)
	return append(list, method{name: "screened, batch of 256", query: func(i int) int {
		first := i * screened % (n - screened)
		must(batched.SearchBatch(answers, of, s.data.Contexts[first*d:(first+screened)*d], &exact.Request{}))
		return screened
	}})
}

// report runs the methods of a shape in turns, and prints their table.
func report(s *shape, rounds int, block time.Duration) {
	list := contestants(s)
	turns := make([]*measure.Turn, len(list))
	for i, m := range list {
		turns[i] = &measure.Turn{Query: m.query}
	}
	measure.InTurns(context.Background(), turns[0], turns[1:], s.data.Len(), rounds, block, 1, func(int) {})
	fmt.Printf("\n| %s%s | us | speedup | quartiles |\n|---|---:|---:|---:|\n", s.name, detail(s))
	for i, m := range list {
		t := turns[i].Timing()
		fmt.Printf("| %s | %.2f | %.2f | %.2f - %.2f |\n", m.name, t.Micros, t.Speedup, t.SpeedupQ1, t.SpeedupQ3)
	}
}

// detail describes the screen of a shape and its precision.
func detail(s *shape) string {
	e, err := evaluate.Run(context.Background(), s.model, s.data.Exact, s.data.Contexts, evaluate.Options{K: []int{1, k}})
	if err != nil {
		panic(err)
	}
	var p []string
	for _, a := range e.AtK {
		p = append(p, fmt.Sprintf("P@%d %.4f", a.K, a.Precision))
	}
	return fmt.Sprintf("; r %d, L-bar %.0f, %s", s.model.Clusters(), e.MeanCandidates, strings.Join(p, ", "))
}
