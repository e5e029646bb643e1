package main

import (
	"testing"

	"github.com/learning-to-screen/l2s"
)

// What a call costs in Go, on a layer of one label with one number: test bench in test/test.c is the same
// through the library.
func BenchmarkTopK(b *testing.B) {
	l, err := newLayer(contextsOf([]float32{1}, 1), nil, 1, 0)
	if err != nil {
		b.Fatal(err)
	}
	p, err := newPool(l, nil, l2s.Options{})
	if err != nil {
		b.Fatal(err)
	}
	s, err := l2s.NewSearcher(l.Layer, nil, l2s.Options{})
	if err != nil {
		b.Fatal(err)
	}
	h, top, ids, logits := []float32{1}, make([]l2s.Prediction, 1), make([]int64, 1), make([]float64, 1)
	for _, way := range []struct {
		name string
		ask  func() error
	}{
		{"l2s.Searcher", func() error { _, err := s.TopK(top, h); return err }},
		{"l2s.Pool", func() error { _, err := p.TopK(top, h); return err }},
		{"capi", func() error { return p.topK(h, ids, logits) }},
	} {
		b.Run(way.name, func(b *testing.B) {
			for b.Loop() {
				if err := way.ask(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
