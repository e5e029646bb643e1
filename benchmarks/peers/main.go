// Command peers measures the searches of l2s and other ways to scan a layer, on one thread:
// OpenBLAS (built with -tags openblas), gonum, vek and a plain Go loop, each followed by the same
// top-k selection.
//
// All methods of a shape run in one process and take turns (package measure):
// times are medians over the rounds of a turn's mean; ratios are to the dense
// float32 scan of l2s, and their spread is given as the first and third quartile
// of the ratio within a round.
//
// The dense scan, the exact and the screened search are measured with cold caches too: before each
// query 8 or 64 MiB of other memory are read, as a decoder would do between two steps. These times
// are medians of single queries.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/viterin/vek/vek32"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"github.com/learning-to-screen/l2s/benchmarks/internal/layers"
	"github.com/learning-to-screen/l2s/benchmarks/internal/measure"
	"github.com/learning-to-screen/l2s/benchmarks/internal/methods"
	"github.com/learning-to-screen/l2s/benchmarks/internal/openblas"
	"github.com/learning-to-screen/l2s/benchmarks/internal/points"
	"github.com/learning-to-screen/l2s/internal/cold"
	"github.com/learning-to-screen/l2s/internal/dense"
	"github.com/learning-to-screen/l2s/internal/kernels"
	"github.com/learning-to-screen/l2s/internal/synthetic"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

const k = 5

// shape is one layer to measure, with a screen.
type shape struct {
	name  string
	data  *synthetic.Data
	model *screen.Model // nil: no screened rows
}

// method answers contexts, from the first on, and returns their number.
type method struct {
	name  string
	query func(first int) (contexts int)
	cold  bool // it is measured with cold caches too
}

// row is a line of the table.
type row struct {
	Shape  string `json:"shape"`
	Method string `json:"method"`
	points.Timing
	Cold []coldTime `json:"cold,omitempty"`
}

// coldTime is the median time of single queries, in microseconds, with MiB of other memory read
// before each.
type coldTime struct {
	MiB    int     `json:"mib"`
	Micros float64 `json:"us"`
}

// coldMiB are the sizes of the other memory.
var coldMiB = []int{8, 64}

func main() {
	rounds := flag.Int("rounds", 21, "`number` of rounds")
	block := flag.Duration("block", 25*time.Millisecond, "`time` that a turn takes, about")
	ptb := flag.String("ptb", "../../shared/data/ptb-small", "`folder` of a language model whose layer is the first shape; where it is absent a structured layer takes its place")
	large := flag.Bool("large", false, "add 131,072 x 1024 and 262,144 x 640")
	asJSON := flag.Bool("json", false, "print JSON")
	flag.Parse()

	var rows []row
	note := func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	if openblas.Sgemv == nil {
		note("OpenBLAS is left out: build with -tags openblas (Debian: libopenblas-dev and pkg-config)")
	}
	for _, make := range shapes(*ptb, *large, note) {
		s, err := make()
		if err != nil {
			fmt.Fprintln(os.Stderr, "peers:", err)
			os.Exit(1)
		}
		note("%s: %d rounds", s.name, *rounds)
		rows = append(rows, timed(s, *rounds, *block)...)
		runtime.GC()
	}
	if *asJSON {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		if err := enc.Encode(map[string]any{"level": kernels.Level(), "k": k, "rounds": *rounds, "rows": rows}); err != nil {
			os.Exit(1)
		}
		return
	}
	fmt.Printf("level %s, top-%d, one thread, %d rounds\n", kernels.Level(), k, *rounds)
	last := ""
	for _, r := range rows {
		if r.Shape != last {
			fmt.Printf("\n| %s | us | speedup | quartiles |", r.Shape)
			for _, mib := range coldMiB {
				fmt.Printf(" cold, %d MiB: us |", mib)
			}
			fmt.Printf("\n|---|---:|---:|---:|%s\n", strings.Repeat("---:|", len(coldMiB)))
			last = r.Shape
		}
		fmt.Printf("| %s | %.2f | %.2f | %.2f - %.2f |", r.Method, r.Micros, r.Speedup, r.SpeedupQ1, r.SpeedupQ3)
		for i := range coldMiB {
			if i < len(r.Cold) {
				fmt.Printf(" %.2f |", r.Cold[i].Micros)
			} else {
				fmt.Print(" |")
			}
		}
		fmt.Println()
	}
}

// shapes returns the makers of the shapes, so that one is in memory at a
// time.
func shapes(ptb string, large bool, note func(string, ...any)) []func() (*shape, error) {
	structured := func(labels, dim, clusters, size int) func() (*shape, error) {
		return func() (*shape, error) {
			note("making a structured layer of %d x %d", labels, dim)
			data := synthetic.Structured(labels, dim, clusters, 2000, 1)
			m, err := data.Screen(size)
			if err != nil {
				return nil, err
			}
			return &shape{fmt.Sprintf("%d x %d, structured", labels, dim), data, m}, nil
		}
	}
	structureless := func(labels, dim int) func() (*shape, error) {
		return func() (*shape, error) {
			data, err := layers.Structureless(labels, dim, 500, 1)
			return &shape{name: fmt.Sprintf("%d x %d, structureless", labels, dim), data: data}, err
		}
	}
	list := []func() (*shape, error){structured(10000, 200, 100, 300)}
	if _, err := os.Stat(ptb); err == nil {
		list[0] = func() (*shape, error) { return fromPTB(ptb, note) }
	} else {
		note("%s is absent: a structured layer takes its place", ptb)
	}
	list = append(list, structured(10000, 1500, 100, 120), structured(25000, 500, 100, 200), structureless(10000, 200), structureless(25000, 500))
	if large {
		list = append(list, structured(131072, 1024, 1000, 300), structured(262144, 640, 1000, 500))
	}
	return list
}

func fromPTB(dir string, note func(string, ...any)) (*shape, error) {
	const train, test, size = 300000, 20000, 300
	note("contexts of %s and a screen from them", dir)
	trained, err := layers.LanguageModel(dir, "ptb.train.txt", train)
	if err != nil {
		return nil, err
	}
	m, err := layers.KMeans(trained, 100, size)
	if err != nil {
		return nil, err
	}
	data, err := layers.LanguageModel(dir, "ptb.test.txt", test)
	if err != nil {
		return nil, err
	}
	return &shape{"10,000 x 200, PTB-Small", data, m}, nil
}

// contestants returns the ways to answer the shape's contexts; the others are compared to the
// first.
func contestants(s *shape) []method {
	l, d := s.data.Layer, s.data.Layer.Dim()
	labels := l.Labels()
	n := s.data.Len()
	dst := make([]softmax.Prediction, k)
	weights, plain, exact := dense.Weights(l), dense.New(l), softmax.NewSearcher(l)
	each := func(name string, f func(h []float32)) method {
		return method{name: name, query: func(i int) int { f(s.data.Context(i)); return 1 }}
	}
	eachCold := func(name string, f func(h []float32)) method {
		m := each(name, f)
		m.cold = true
		return m
	}
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	list := []method{eachCold("dense float32 scan", func(h []float32) { plain.TopK(dst, h) })}
	scores := make([]float32, labels)
	ids, vals := make([]uint32, k), make([]float32, k)
	peer := func(name string, scan func(dst, rows, h []float32)) {
		list = append(list, each(name, func(h []float32) {
			scan(scores, weights, h)
			for i, b := range l.Bias() {
				scores[i] += b
			}
			kernels.TopK(ids, vals, scores)
		}))
	}
	if openblas.Sgemv != nil {
		peer("OpenBLAS sgemv", openblas.Sgemv)
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
	list = append(list, eachCold("exact, int8 envelope", func(h []float32) {
		_, err := exact.TopK(dst, h)
		must(err)
	}))
	const batch = 32
	many, found := make([]softmax.Prediction, batch*k), make([]softmax.Answer, batch)
	list = append(list, method{name: "exact, batch of 32", query: func(i int) int {
		first := i * batch % (n - batch)
		must(exact.SearchBatch(many, found, s.data.Contexts[first*d:(first+batch)*d], softmax.Request{}))
		return batch
	}})
	if s.model == nil {
		return list
	}
	sr, err := screen.NewSearcher(s.model, l, screen.Options{})
	must(err)
	list = append(list, eachCold("screened", func(h []float32) {
		_, err := sr.TopK(dst, h)
		must(err)
	}))
	paper, err := methods.NewPaper(s.model, l)
	must(err)
	list = append(list, each("screened, float32", func(h []float32) { paper.TopK(dst, h) }))
	const screened = 256
	answers, of := make([]softmax.Prediction, screened*k), make([]softmax.Answer, screened)
	return append(list, method{name: "screened, batch of 256", query: func(i int) int {
		first := i * screened % (n - screened)
		must(sr.SearchBatch(answers, of, s.data.Contexts[first*d:(first+screened)*d], softmax.Request{}))
		return screened
	}})
}

// timed runs the methods of a shape in turns.
func timed(s *shape, rounds int, block time.Duration) []row {
	list := contestants(s)
	turns := make([]*measure.Turn, len(list))
	for i, m := range list {
		turns[i] = &measure.Turn{Query: m.query}
	}
	measure.InTurns(context.Background(), turns[0], turns[1:], s.data.Len(), rounds, block, 1, func(int) {})
	title := s.name + detail(s)
	var rows []row
	for i, m := range list {
		rows = append(rows, row{Shape: title, Method: m.name, Timing: turns[i].Timing()})
	}
	for _, mib := range coldMiB {
		for i, t := range coldTimes(list, s.data, mib) {
			if list[i].cold {
				rows[i].Cold = append(rows[i].Cold, coldTime{mib, float64(t.Nanoseconds()) / 1e3})
			}
		}
	}
	return rows
}

// coldTimes returns the median times of single queries of the methods that are measured with cold
// caches. They take turns, some queries each; the first of a turn, whose caches another method has
// filled, does not count.
func coldTimes(list []method, data *synthetic.Data, mib int) []time.Duration {
	const turns, queries = 10, 30
	other := cold.NewBuffer(mib)
	times := make([][]time.Duration, len(list))
	for turn := range turns {
		for m := range list {
			for i := 0; list[m].cold && i < queries; i++ {
				at := (turn*queries + i) % data.Len()
				other.Read(data.Context(at))
				time.Now() // the clock is not to be cold
				start := time.Now()
				list[m].query(at)
				if took := time.Since(start); i > 0 {
					times[m] = append(times[m], took)
				}
			}
		}
	}
	medians := make([]time.Duration, len(list))
	for m, t := range times {
		if slices.Sort(t); len(t) > 0 {
			medians[m] = t[len(t)/2]
		}
	}
	return medians
}

// detail describes the screen of a shape and its precision.
func detail(s *shape) string {
	if s.model == nil {
		return ""
	}
	e, err := screen.Evaluate(context.Background(), s.model, s.data.Layer, s.data.Contexts, screen.EvaluateOptions{K: []int{1, k}})
	if err != nil {
		panic(err)
	}
	var p []string
	for _, a := range e.AtK {
		p = append(p, fmt.Sprintf("P@%d %.4f", a.K, a.Precision))
	}
	return fmt.Sprintf("; r %d, L-bar %.0f, %s", s.model.Clusters(), e.MeanCandidates, strings.Join(p, ", "))
}
