// Package fuzz holds the fuzz tests that cross packages: whole queries at every SIMD level against
// the plain definition, and screen files from untrusted bytes through to answers. Targets for one
// package are in its folder.
//
//	make fuzz TIME=30s
//
// runs all targets of the module in turn.
package fuzz

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/dense"
	"github.com/learning-to-screen/l2s/internal/engine"
	"github.com/learning-to-screen/l2s/internal/kernels"
	"github.com/learning-to-screen/l2s/internal/screening"
	"github.com/learning-to-screen/l2s/internal/simd"
	"github.com/learning-to-screen/l2s/internal/synthetic"
)

// drawFloats draws n numbers whose magnitudes are round 2^exponent; a few exponents give ties,
// zeros or numbers beyond the error envelope.
func drawFloats(t *rapid.T, name string, n int) []float32 {
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, name+" seed"), 1))
	exponent := rapid.SampledFrom([]int{0, 0, 0, -30, 20, 45, -70}).Draw(t, name+" exponent")
	kind := rapid.IntRange(0, 4).Draw(t, name+" kind")
	x := make([]float32, n)
	for i := range x {
		v := r.NormFloat64()
		switch kind {
		case 0:
			v = float64(r.IntN(3) - 1)
		case 1:
			v = math.Ldexp(v, r.IntN(20)-10)
		}
		x[i] = float32(math.Ldexp(v, exponent))
	}
	return x
}

// best returns the k best of the labels ids by the documented arithmetic.
func best(l *l2s.Layer, h []float32, ids []uint32, k int) []l2s.Prediction {
	d, w := l.Dim(), dense.Weights((*engine.Layer)(l).Exact())
	var p []l2s.Prediction
	for _, id := range ids {
		p = append(p, l2s.Prediction{ID: id, Logit: kernels.RefDot(w[int(id)*d:(int(id)+1)*d], h) + float64((*engine.Layer)(l).Exact().Bias()[id])})
	}
	slices.SortStableFunc(p, func(a, b l2s.Prediction) int {
		switch {
		case a.Logit > b.Logit:
			return -1
		case a.Logit < b.Logit:
			return 1
		}
		return 0
	})
	return p[:min(k, len(p))]
}

// checkQueries builds a layer and a screen, asks for contexts one by one and
// in a batch at every level, and compares with the definition.
func checkQueries(t *rapid.T) {
	labels, dim := rapid.IntRange(1, 200).Draw(t, "labels"), rapid.IntRange(1, 70).Draw(t, "dim")
	clusters := rapid.IntRange(1, 9).Draw(t, "clusters")
	layer, err := l2s.New(l2s.Float32(drawFloats(t, "weights", labels*dim), dim), drawFloats(t, "bias", labels))
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "sets seed"), 2))
	lists := make([]screening.List, clusters)
	for c := range lists {
		share := r.IntN(101)
		for id := range labels {
			if r.IntN(100) < share {
				lists[c].IDs = append(lists[c].IDs, uint32(id))
			}
		}
	}
	v := drawFloats(t, "clusters", clusters*dim)
	model, err := synthetic.Screen(screening.Config{Dim: dim, Labels: labels, Clusters: v, Lists: lists, Fingerprint: layer.Fingerprint()})
	if err != nil {
		t.Fatal(err)
	}
	router, err := l2s.New(l2s.Float32(v, dim), nil)
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if _, err := model.WriteTo(&file); err != nil {
		t.Fatal(err)
	}
	if model, err = l2s.Read(&file); err != nil {
		t.Fatal(err)
	}
	n, k := rapid.IntRange(1, 12).Draw(t, "contexts"), rapid.IntRange(1, labels).Draw(t, "k")
	contexts := drawFloats(t, "contexts", n*dim)
	all, rows := make([]uint32, labels), make([]uint32, clusters)
	for i := range all {
		all[i] = uint32(i)
	}
	for i := range rows {
		rows[i] = uint32(i)
	}
	for _, level := range simd.Available() {
		func() {
			defer simd.Set(level)()
			s, err := l2s.NewSearcher(layer, model, l2s.Options{})
			if err != nil {
				t.Fatal(err)
			}
			batch, answers := make([]l2s.Prediction, n*k), make([]l2s.Answer, n)
			if err := s.SearchBatch(batch, answers, contexts, l2s.Request{}); err != nil {
				t.Fatal(err)
			}
			got := make([]l2s.Prediction, k)
			for i := range n {
				h := contexts[i*dim : (i+1)*dim]
				ids := lists[best(router, h, rows, 1)[0].ID].IDs
				if len(ids) < k {
					ids = all
				}
				want := best(layer, h, ids, k)
				m, err := s.TopK(got, h)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(got[:m], want) {
					t.Fatalf("%s, context %d: got %v, want %v", level, i, got[:m], want)
				}
				if b := batch[i*k:][:answers[i].Count]; !slices.Equal(b, want) {
					t.Fatalf("%s, context %d of the batch: got %v, want %v", level, i, b, want)
				}
			}
		}()
	}
}

func TestQueriesAreTheDefinitionAtEveryLevel(t *testing.T) { rapid.Check(t, checkQueries) }

func FuzzQueriesAreTheDefinitionAtEveryLevel(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkQueries)) }

// FuzzScreenFileToAnswers takes bytes for a screen file: a screen that loads answers queries, with
// labels of the candidate set alone.
func FuzzScreenFileToAnswers(f *testing.F) {
	for _, sets := range [][][]uint32{{{0}}, {{0, 1, 2}, {3}}, {{}, {1, 3}, {0, 1, 2, 3}}} {
		clusters, lists := make([]float32, 2*len(sets)), make([]screening.List, len(sets))
		for i, set := range sets {
			lists[i].IDs = set
		}
		for i := range clusters {
			clusters[i] = float32(i%3) - 1
		}
		m, err := synthetic.Screen(screening.Config{Dim: 2, Labels: 4, Clusters: clusters, Lists: lists})
		if err != nil {
			f.Fatal(err)
		}
		var b bytes.Buffer
		if _, err := m.WriteTo(&b); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
		f.Add(b.Bytes()[:b.Len()-1])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := l2s.Read(bytes.NewReader(data))
		if err != nil || m.Labels()*m.Dim() > 1<<16 {
			return
		}
		w := make([]float32, m.Labels()*m.Dim())
		for i := range w {
			w[i] = float32(i%7) - 3
		}
		layer, err := l2s.New(l2s.Float32(w, m.Dim()), nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := l2s.NewSearcher(layer, m, l2s.Options{})
		if err != nil {
			return // of another layer
		}
		h := make([]float32, m.Dim())
		for i := range h {
			h[i] = float32(i%5) - 2
		}
		top := make([]l2s.Prediction, min(3, m.Labels()))
		a, err := s.Search(top, h, l2s.Request{Within: math.MaxFloat64})
		if err != nil {
			t.Fatal(err)
		}
		if a.Exact {
			return // the context has no candidates
		}
		if a.Count > int(s.Stats().Scored) {
			t.Fatalf("%d answers from %d candidates", a.Count, s.Stats().Scored)
		}
		listed := map[uint32]bool{}
		for cell := range (*engine.Index)(m).Screen().Cells() {
			for _, id := range (*engine.Index)(m).Screen().List(cell).IDs {
				listed[id] = true
			}
		}
		for _, p := range top[:a.Count] {
			if !listed[p.ID] {
				t.Fatalf("label %d is in no list", p.ID)
			}
		}
	})
}
