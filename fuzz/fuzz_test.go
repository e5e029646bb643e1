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
	"context"
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/simd"
	"github.com/learning-to-screen/l2s/internal/search/dense"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/tests/synthetic"
	"github.com/learning-to-screen/l2s/preview"
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

// FuzzPreviewFileToAnswers takes bytes for a preview file, with the right checksum: a preview that
// loads answers queries of all kinds, and its answers are valid whatever the file has.
func FuzzPreviewFileToAnswers(f *testing.F) {
	const labels, dim, contexts = 240, 8, 400
	layers := []*l2s.Layer{}
	for i := range 3 { // plain, with a bias, with a soft cap
		r := rand.New(rand.NewPCG(uint64(i), 3))
		numbers := func(n int) []float32 {
			x := make([]float32, n)
			for i := range x {
				x[i] = float32(r.NormFloat64())
			}
			return x
		}
		w, states, bias := numbers(labels*dim), numbers(contexts*dim), []float32(nil)
		for i := range states {
			states[i] += 2 * w[i%len(w)]
		}
		if i == 1 {
			bias = numbers(labels)
		}
		layer, err := l2s.New(l2s.Float32(w, dim), bias)
		if err == nil && i == 2 {
			layer, err = layer.Scaled(0.5, 3)
		}
		if err != nil {
			f.Fatal(err)
		}
		made, err := preview.Make(context.Background(), layer, l2s.Float32(states, layer.Dim()), preview.Options{})
		if err != nil {
			f.Fatal(err)
		}
		var file bytes.Buffer
		if _, err := made.WriteTo(&file); err != nil {
			f.Fatal(err)
		}
		layers = append(layers, layer)
		f.Add(file.Bytes(), uint64(i), uint8(0))
		f.Add(file.Bytes(), uint64(i), uint8(150))
	}
	f.Fuzz(func(t *testing.T, data []byte, seed uint64, scale uint8) {
		if len(data) >= 16 { // else no mutation is accepted
			data = bytes.Clone(data)
			binary.LittleEndian.PutUint32(data[12:], crc32.Checksum(data[16:], crc32.MakeTable(crc32.Castagnoli)))
		}
		x, err := l2s.Read(bytes.NewReader(data))
		if err != nil || x.Kind() != "preview" {
			return
		}
		for _, layer := range layers {
			s, err := l2s.NewSearcher(layer, x, l2s.Options{})
			if err != nil {
				continue // of another layer
			}
			checkAnswers(t, layer, s, seed, int(scale)-100)
		}
	})
}

// checkAnswers asks s about contexts whose numbers are round 2^scale.
func checkAnswers(t *testing.T, layer *l2s.Layer, s *l2s.Searcher, seed uint64, scale int) {
	exact, err := l2s.NewSearcher(layer, nil, l2s.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(seed, 4))
	const n = 3
	contexts := make([]float32, n*layer.Dim())
	for i := range contexts {
		contexts[i] = float32(math.Ldexp(r.NormFloat64(), min(max(scale, -100), 120)))
	}
	banned := bitset.New(layer.Labels())
	for range 40 {
		banned.Add(uint32(r.IntN(layer.Labels())))
	}
	biases := []l2s.Bias{{ID: uint32(r.IntN(layer.Labels())), Add: 5}}
	steps, normal := s.Index().Steps()
	if normal < 0 || normal >= len(steps) {
		t.Fatalf("found the normal step %d of %d", normal, len(steps))
	}
	requests := []l2s.Request{
		{}, {LogSum: true}, {LogSum: true, Temperature: 0.6}, {Banned: banned, LogSum: true}, {Biases: biases}, {Within: 1}, {Exact: true},
	}
	for _, step := range steps[:min(len(steps), 3)] {
		requests = append(requests, l2s.Request{Budget: step.Budget})
	}
	for _, request := range requests {
		for _, k := range []int{0, 1, 5, layer.Labels()} {
			if k == 0 && !request.LogSum {
				continue
			}
			batch, answers := make([]l2s.Prediction, n*k), make([]l2s.Answer, n)
			if err := s.SearchBatch(batch, answers, contexts, request); err != nil {
				t.Fatalf("%+v: %v", request, err)
			}
			for i := range n {
				h, got := contexts[i*layer.Dim():][:layer.Dim()], make([]l2s.Prediction, k)
				a, err := s.Search(got, h, request)
				if err != nil || a != answers[i] || !slices.Equal(got[:a.Count], batch[i*k:][:a.Count]) {
					t.Fatalf("%+v: found %v, %+v and the error %v, expected %v, %+v as in a batch", request, got, a, err, batch[i*k:][:k], answers[i])
				}
				if got = got[:a.Count]; len(got) == 0 && k > 0 {
					t.Fatalf("%+v, k %d: found no label", request, k)
				}
				ids, logits := make([]uint32, len(got)), make([]float64, len(got))
				for j, p := range got {
					if ids[j] = p.ID; int(p.ID) >= layer.Labels() || request.Banned != nil && banned.Has(p.ID) {
						t.Fatalf("%+v: found the label %d, expected one that may be answered, below %d", request, p.ID, layer.Labels())
					}
					if j > 0 && !(p.Logit < got[j-1].Logit || p.Logit == got[j-1].Logit && p.ID > got[j-1].ID) {
						t.Fatalf("%+v: found %v after %v, expected the best first, and of equal ones the lower id", request, p, got[j-1])
					}
				}
				if err := exact.Logits(logits, h, l2s.Only(ids)); err != nil {
					t.Fatal(err)
				}
				for j, p := range got {
					want := logits[j]
					if request.Biases != nil && p.ID == biases[0].ID {
						want += float64(biases[0].Add)
					}
					if p.Logit != want {
						t.Fatalf("%+v: found the logit %v of label %d, expected %v", request, p.Logit, p.ID, want)
					}
				}
				least := math.Inf(-1)
				if request.LogSum && k > 0 {
					temperature := request.Temperature
					if temperature == 0 {
						temperature = 1
					}
					least = got[0].Logit/temperature - 1e-9*(1+math.Abs(got[0].Logit))
				}
				if !(a.LogSum >= least && a.LogSum < math.Inf(1)) {
					t.Fatalf("%+v: found the log-sum %v, expected a finite number of at least %v", request, a.LogSum, least)
				}
			}
		}
	}
	if p, err := s.LogProb(contexts[:layer.Dim()], 0, 1); err != nil || !(p <= 0) {
		t.Fatalf("found the log-probability %v and the error %v, expected one of at most 0", p, err)
	}
}
