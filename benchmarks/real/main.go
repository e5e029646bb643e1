// Command real measures a head that people run on states of real text: exact searches, draws,
// batches, and a preview, and prints a table of them.
//
//	go run ./real -model gemma3-270m.gguf -train train.npy -test test.npy [-bench bench.json]
//
//	go run ./real -model gemma3-270m.gguf -preview gemma3-270m.gguf.l2p -kinds FOLDER
//
// The second form measures a preview on states of many kinds of text, a .npy for each, and names the
// labels that are best often and seldom found. The texts of kinds are for it; scripts/real --kinds
// makes the states.
//
// The command l2s-llama contexts writes the states. The preview is made from the states of -train
// and measured on the states of -test, unseen text. Exact searches, draws and batches take turns on
// the same states: median and 99th percentile of the time, the bytes of the head over the median,
// and the median over the median of a plain read of the head, which takes its turn too. Rows scored
// are the rows that the reference arithmetic scores for one state: the survivors of the pass over
// all labels. -bench names the JSON of l2s-llama bench, whose rows are printed too.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/watch/timing"
	"github.com/learning-to-screen/l2s/preview"
	"github.com/learning-to-screen/l2s/sample"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("real: ")
	model := flag.String("model", "", "the head, as l2s --head takes it")
	train := flag.String("train", "", "states to make a preview from, .npy; none: no preview")
	test := flag.String("test", "", "states to measure on, .npy")
	queries := flag.Int("queries", 200, "how many states to time exact searches on")
	most := flag.Int("most", 2000, "how many states to measure the preview on")
	bench := flag.String("bench", "", "the JSON of l2s-llama bench")
	file := flag.String("preview", "", "the file of a preview, for -kinds")
	folder := flag.String("kinds", "", "a folder with states of kinds of text, .npy: only measure the preview of -preview on each")
	dump := flag.String("dump", "", "only write the rows to this file, as little-endian float32")
	flag.Parse()
	l, err := l2s.Open(*model, l2s.OpenOptions{})
	check(err)
	defer l.Close()
	if *dump != "" {
		check(writeRows(*dump, l))
		return
	}
	if *folder != "" {
		check(kinds(l, *file, *folder))
		return
	}
	c, err := l2s.OpenContexts(*test, l.Dim())
	check(err)
	defer c.Close()
	t := &table{layer: l, states: c.Rows()}
	w := (*engine.Layer)(l).Exact().Weights()
	kernels.Advise(w, func(rows []byte) { t.rows = rows })
	fmt.Printf("%s: %d x %d, %v, %.1f MB\n\n", *model, l.Labels(), l.Dim(), w.Element(), float64(len(t.rows))/1e6)
	check(t.exact(*queries))
	if *train != "" {
		check(t.preview(*train, *most))
	}
	if *bench != "" {
		check(printBench(*bench))
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

type table struct {
	layer  *l2s.Layer
	states []float32
	rows   []byte  // of the head
	best   float64 // median of the exact search for one label with one thread
}

// state returns one of n states that are spread evenly.
func (t *table) state(i, n int) []float32 {
	d := t.layer.Dim()
	all := len(t.states) / d
	i = i % min(n, all) * all / min(n, all)
	return t.states[i*d : (i+1)*d]
}

// racer does one thing for the state i of n.
type racer struct {
	name  string
	do    func(i, n int) error
	per   int // states
	times []float64
	rows  []float64
}

// racers search exactly.
func (t *table) racers(threads int) ([]*racer, error) {
	s, err := l2s.NewSearcher(t.layer, nil, l2s.Options{})
	if err != nil {
		return nil, err
	}
	list := []*racer{{name: "plain read", do: t.read(threads), per: 1}}
	for _, k := range []int{1, 5, 40} {
		dst := make([]l2s.Prediction, k)
		list = append(list, &racer{name: fmt.Sprintf("exact, k = %d", k), per: 1, do: func(i, n int) error {
			_, err := s.TopK(dst, t.state(i, n))
			return err
		}})
	}
	for _, c := range []struct {
		name string
		set  func(o *sample.Options)
	}{
		{"drawn: top-k 40, top-p .95, T .8", func(o *sample.Options) { o.TopK, o.TopP, o.Temperature = 40, 0.95, 0.8 }},
		{"drawn: min-p .05, T .8", func(o *sample.Options) { o.MinP, o.Temperature = 0.05, 0.8 }},
		{"drawn: top-p .95, T .8", func(o *sample.Options) { o.TopP, o.Temperature = 0.95, 0.8 }},
		{"drawn: T .8", func(o *sample.Options) { o.Temperature = 0.8 }},
	} {
		o := sample.DefaultOptions()
		o.Seed = 1
		c.set(&o)
		draws, err := sample.New(t.layer, nil, o)
		if err != nil {
			return nil, err
		}
		list = append(list, &racer{name: c.name, per: 1, do: func(i, n int) error {
			_, err := draws.Draw(t.state(i, n), sample.Edits{})
			return err
		}})
	}
	const batch = 4
	d := t.layer.Dim()
	contexts, answers := make([]float32, batch*d), make([]l2s.Answer, batch)
	for _, k := range []int{1, 5, 40} {
		dst := make([]l2s.Prediction, batch*k)
		list = append(list, &racer{name: fmt.Sprintf("exact, k = %d, %d states at once", k, batch), per: batch, do: func(i, n int) error {
			for j := range batch {
				copy(contexts[j*d:(j+1)*d], t.state(i+j, n))
			}
			return s.SearchBatch(dst, answers, contexts, l2s.Request{})
		}})
	}
	return list, nil
}

// read reads the rows once, with some threads.
func (t *table) read(threads int) func(i, n int) error {
	part := func(i int) { timing.ReadMemory(t.rows[i*len(t.rows)/threads : (i+1)*len(t.rows)/threads]) }
	return func(int, int) error {
		var wait sync.WaitGroup
		for i := range threads - 1 {
			wait.Go(func() { part(i + 1) })
		}
		part(0)
		wait.Wait()
		return nil
	}
}

func (t *table) exact(n int) error {
	fmt.Println("| threads | work | median, us | 99th | GB/s | times a plain read | times k = 1 | rows scored | 99th |")
	fmt.Println("|---:|---|---:|---:|---:|---:|---:|---:|---:|")
	for threads := 1; threads <= min(2, runtime.NumCPU()); threads++ {
		t.layer.SetThreads(threads)
		list, err := t.racers(threads)
		if err != nil {
			return err
		}
		for i := range 3 { // warm up, and let scratch grow
			for _, r := range list {
				if err := r.do(i, n); err != nil {
					return err
				}
			}
		}
		for i := range n {
			for _, r := range list {
				start := time.Now()
				err := r.do(i, n)
				r.times = append(r.times, time.Since(start).Seconds()*1e6)
				if err != nil {
					return err
				}
			}
		}
		for i := range n { // once more, to count
			for _, r := range list[1:] {
				rows := 0
				exact.Scored = func(n int) { rows += n }
				err := r.do(i, n)
				exact.Scored = nil
				if r.rows = append(r.rows, float64(rows)/float64(r.per)); err != nil {
					return err
				}
			}
		}
		read, _, _ := spread(list[0].times)
		one, _, _ := spread(list[1].times)
		if threads == 1 {
			t.best = one
		}
		for _, r := range list {
			median, _, p99 := spread(r.times)
			fmt.Printf("| %d | %s | %.0f | %.0f | %.1f | %.2f | %.2f |", threads, r.name, median, p99, float64(len(t.rows))/1e3/median, median/read, median/one)
			if len(r.rows) > 0 {
				_, mean, p99 := spread(r.rows)
				fmt.Printf(" %.0f | %.0f |\n", mean, p99)
			} else {
				fmt.Println(" | |")
			}
		}
	}
	t.layer.SetThreads(1)
	return nil
}

// preview makes one, and measures it with one thread.
func (t *table) preview(train string, n int) error {
	d := t.layer.Dim()
	states, err := l2s.OpenContexts(train, d)
	if err != nil {
		return err
	}
	defer states.Close()
	c := states.Rows()
	start := time.Now()
	m, err := preview.Make(context.Background(), t.layer, l2s.Float32(c, t.layer.Dim()), preview.Options{})
	if err != nil {
		return err
	}
	made := time.Since(start)
	s, err := l2s.NewSearcher(t.layer, m, l2s.Options{})
	if err != nil {
		return err
	}
	const k = 5
	n = min(n, len(t.states)/d)
	e, err := l2s.NewSearcher(t.layer, nil, l2s.Options{})
	if err != nil {
		return err
	}
	t.layer.SetThreads(runtime.NumCPU())
	want := make([]l2s.Prediction, n*k)
	for i := range n {
		if _, err := e.TopK(want[i*k:(i+1)*k], t.state(i, n)); err != nil {
			return err
		}
	}
	t.layer.SetThreads(1)
	rungs, normal := m.Steps()
	fmt.Printf("\nA preview, made from %d states in %.1f s, on %d states of other text, one thread:\n\n", len(c)/d, made.Seconds(), n)
	fmt.Println("| rung | P@1 | P@5 | k = 1: median, us | 99th | times exact | k = 5: median, us | 99th |")
	fmt.Println("|---|---:|---:|---:|---:|---:|---:|---:|")
	dst := make([]l2s.Prediction, k)
	for i, rung := range rungs {
		var times [2][]float64
		first, found := 0, 0
		for c := range n {
			for j, k := range []int{1, k} {
				start := time.Now()
				_, err := s.Search(dst[:k], t.state(c, n), l2s.Request{Budget: rung.Budget})
				times[j] = append(times[j], time.Since(start).Seconds()*1e6)
				if err != nil {
					return err
				}
				if k == 1 && dst[0] == want[c*5] {
					first++
				}
			}
			for _, p := range want[c*k : (c+1)*k] {
				if slices.Contains(dst, p) {
					found++
				}
			}
		}
		name := fmt.Sprint(i)
		if i == normal {
			name += ", the default"
		}
		one, _, far1 := spread(times[0])
		five, _, far5 := spread(times[1])
		fmt.Printf("| %s | %.4f | %.4f | %.0f | %.0f | %.1f | %.0f | %.0f |\n", name, float64(first)/float64(n), float64(found)/float64(n*k), one, far1, t.best/one, five, far5)
	}
	return nil
}

// printBench prints the rows of l2s-llama bench.
func printBench(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var b struct {
		Rows []struct {
			Task, Head   string
			Threads      int
			Microseconds float64
			Rate         float64 `json:"tokens_per_second"`
			Speedup      float64
		}
	}
	if err := json.Unmarshal(text, &b); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	fmt.Println("\n| threads | task | head | tokens per second | us | times llama.cpp's head |\n|---:|---|---|---:|---:|---:|")
	for _, r := range b.Rows {
		fmt.Printf("| %d | %s | %s | %.1f | %.0f | %.2f |\n", r.Threads, r.Task, r.Head, r.Rate, r.Microseconds, r.Speedup)
	}
	return nil
}

// spread sorts x.
func spread(x []float64) (median, mean, p99 float64) {
	slices.Sort(x)
	for _, v := range x {
		mean += v / float64(len(x))
	}
	return x[len(x)/2], mean, x[len(x)*99/100]
}
