// Command preview makes a preview of a head and measures it on other states.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/learning-to-screen/l2s/head"
	"github.com/learning-to-screen/l2s/preview"
	"github.com/learning-to-screen/l2s/softmax"
)

func main() {
	log.SetFlags(0)
	var (
		model   = flag.String("head", "", "the head, as l2s train --head takes it")
		states  = flag.String("states", "", "states to make the preview from, .npy, several with commas")
		test    = flag.String("test", "", "states to measure on, .npy, several with commas")
		only    = flag.Int("rung", -1, "the rung to measure, -1 for all, -2 for the default")
		most    = flag.Int("most", 2000, "how many of each to measure on")
		wide    = flag.Int("coordinates", 0, "how many coordinates")
		path    = flag.String("file", "", "where the preview is kept, and taken from if it is there")
		profile = flag.String("profile", "", "a file for a CPU profile of the queries")
		exact   = flag.Int("exact", 100, "how many queries to time the exact search on")
	)
	flag.Parse()
	w, err := head.Open(*model, head.Options{})
	check(err)
	l, err := softmax.NewLayer(w.Rows(), w.Bias())
	check(err)
	m := open(l, *path, *states, *wide)
	rungs, normal := m.Rungs()
	fmt.Printf("rungs, by held-out states; %d is the default\n", normal)
	for i, r := range rungs {
		fmt.Printf("%d  deviations %g reach %g share %g  looked %.4f kept %.0f exact %.4f  P@1 %.4f (%.4f-%.4f)  P@k %.4f (%.4f-%.4f)  log-sum off %.4f\n", i, r.Deviations, r.Reach, r.Share, r.Looked, r.Kept, r.Exact,
			r.Precision1.Value, r.Precision1.Low, r.Precision1.High, r.PrecisionK.Value, r.PrecisionK.Low, r.PrecisionK.High, r.LogSumOff)
	}
	start := time.Now()
	s, err := preview.NewSearcher(m, l)
	check(err)
	fmt.Printf("opened in %.2fs\n", time.Since(start).Seconds())
	if *profile != "" {
		f, err := os.Create(*profile)
		check(err)
		check(pprof.StartCPUProfile(f))
		defer pprof.StopCPUProfile()
	}
	e := softmax.NewSearcher(l)
	for _, file := range strings.Split(*test, ",") {
		x := contexts(file, l.Dim())
		fmt.Println(file)
		measure(s, e, x, min(*most, len(x)/l.Dim()), *exact, *only)
	}
}

func open(l *softmax.Layer, path, states string, wide int) *preview.Model {
	start := time.Now()
	if m, err := preview.Load(path); path != "" && err == nil {
		return m
	}
	var all []float32
	for _, file := range strings.Split(states, ",") {
		all = append(all, contexts(file, l.Dim())...)
	}
	m, err := preview.Make(context.Background(), l, all, preview.Options{Coordinates: wide, Progress: func(stage string, done float64) {
		fmt.Fprintf(os.Stderr, "%6.2fs %s %.0f%%\n", time.Since(start).Seconds(), stage, 100*done)
	}})
	check(err)
	fmt.Printf("made in %.2fs\n", time.Since(start).Seconds())
	if path != "" {
		check(m.Save(path))
	}
	return m
}

func contexts(file string, dim int) []float32 {
	c, _, err := head.OpenContexts(file, dim)
	check(err)
	return c
}

// measure prints a row for each rung and k.
func measure(s *preview.Searcher, e *softmax.Searcher, x []float32, n, timed, only int) {
	d := s.Model().Dim()
	const k = 5
	at := func(i int) []float32 { i = i * (len(x) / d) / n; return x[i*d : (i+1)*d] }
	want := make([]softmax.Prediction, n*k)
	for i := 0; i < n; i += 32 {
		var some []float32
		for j := i; j < min(i+32, n); j++ {
			some = append(some, at(j)...)
		}
		check(e.SearchBatch(want[i*k:][:len(some)/d*k], make([]softmax.Answer, len(some)/d), some, softmax.Request{}))
	}
	dst := make([]softmax.Prediction, k)
	exact := map[int]float64{}
	for _, k := range []int{1, 5} {
		var times []float64
		for i := range min(n, timed) {
			start := time.Now()
			_, err := e.TopK(dst[:k], at(i))
			times = append(times, time.Since(start).Seconds()*1e6)
			check(err)
		}
		exact[k], _, _ = spread(times)
		fmt.Printf("exact k=%d: median %.0f us\n", k, exact[k])
	}
	rungs, normal := s.Model().Rungs()
	if only == -2 {
		only = normal
	}
	for i, r := range rungs {
		if only >= 0 && i != only {
			continue
		}
		for _, k := range []int{1, 5} {
			hits, first := 0, 0
			var times []float64
			before := s.Stats()
			for c := range n {
				start := time.Now()
				_, err := s.Search(dst[:k], at(c), softmax.Request{Budget: r.Kept})
				times = append(times, time.Since(start).Seconds()*1e6)
				check(err)
				best := want[c*5:]
				if dst[0] == best[0] {
					first++
				}
				for _, p := range best[:k] {
					if slices.Contains(dst[:k], p) {
						hits++
					}
				}
			}
			after := s.Stats()
			q := float64(after.Queries - before.Queries)
			median, mean, p99 := spread(times)
			fmt.Printf("rung %d k=%d  P@1 %.4f P@%d %.4f  looked %.4f kept %.0f exact %.4f far %.4f  median %.0f us mean %.0f p99 %.0f  %.1fx\n", i, k, float64(first)/float64(n), k, float64(hits)/float64(n*k),
				float64(after.Looked-before.Looked)/q/float64(s.Model().Labels()), float64(after.Kept-before.Kept)/q, float64(after.Exact-before.Exact)/q, float64(after.Far-before.Far)/q, median, mean, p99, exact[k]/median)
		}
	}
}

func spread(x []float64) (median, mean, p99 float64) {
	slices.Sort(x)
	for _, v := range x {
		mean += v / float64(len(x))
	}
	return x[len(x)/2], mean, x[len(x)*99/100]
}

func check(err error) {
	if err != nil {
		log.Fatal("preview: ", err)
	}
}
