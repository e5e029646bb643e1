package screen_test

import (
	"fmt"
	"testing"

	"github.com/learning-to-screen/l2s/internal/dense"
	"github.com/learning-to-screen/l2s/internal/synthetic"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// BenchmarkQueries times whole queries, top-5, at the shapes of real layers.
// Contexts and clusters differ from query to query. Times are of one context.
func BenchmarkQueries(b *testing.B) {
	for _, s := range []struct{ labels, dim, clusters, set int }{
		{10000, 200, 100, 300},
		{10000, 1500, 100, 120},
		{25000, 500, 100, 200},
		{131072, 1024, 1000, 300},
		{262144, 640, 1000, 500},
	} {
		b.Run(fmt.Sprintf("%dx%d/r%d/L%d", s.labels, s.dim, s.clusters, s.set), func(b *testing.B) {
			if testing.Short() && s.labels > 100000 {
				b.Skip("-short leaves out the largest layers")
			}
			benchmarkQueries(b, s.labels, s.dim, s.clusters, s.set)
		})
	}
}

func benchmarkQueries(b *testing.B, labels, dim, clusters, set int) {
	const k, contexts, batch = 5, 2000, 32
	data := synthetic.Structured(labels, dim, clusters, contexts, 1)
	model, err := data.Screen(set)
	if err != nil {
		b.Fatal(err)
	}
	layer := data.Layer
	next := 0
	turn := func() []float32 {
		next = (next + 1) % contexts
		return data.Context(next)
	}
	top := make([]softmax.Prediction, k)
	run := func(name string, per int, f func() error) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*per), "ns/context")
		})
	}
	s, err := screen.NewSearcher(model, layer)
	if err != nil {
		b.Fatal(err)
	}
	run("screened", 1, func() error { _, err := s.TopK(top, turn()); return err })
	many, answers := make([]softmax.Prediction, batch*k), make([]softmax.Answer, batch)
	run("screened-batch32", batch, func() error {
		next = (next + batch) % (contexts - batch)
		return s.SearchBatch(many, answers, data.Contexts[next*dim:(next+batch)*dim], softmax.Request{K: k})
	})
	exact := softmax.NewSearcher(layer)
	run("exact", 1, func() error { _, err := exact.TopK(top, turn()); return err })
	plain := dense.New(layer)
	run("dense-float32", 1, func() error { plain.TopK(top, turn()); return nil })
}
