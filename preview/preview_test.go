package preview_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/ground/float16"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
	"github.com/learning-to-screen/l2s/preview"
	"github.com/learning-to-screen/l2s/preview/internal/making"
)

// The public form is the model and the searcher below, under other names.
func TestAPreviewFromEndToEnd(t *testing.T) {
	const labels, dim, k = 500, 12, 3
	r := rand.New(rand.NewPCG(1, 2))
	draw := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	l, err := l2s.New(l2s.Float32(draw(labels*dim), dim), nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := preview.Make(context.Background(), l, l2s.Float32(draw(300*dim), l.Dim()), preview.Options{K: k, Precision1: 0.1, PrecisionK: 0.1})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.l2p")
	if err := m.Save(path); err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if _, err := m.WriteTo(&file); err != nil {
		t.Fatal(err)
	}
	loaded, err := l2s.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	read, err := l2s.Read(&file)
	if err != nil {
		t.Fatal(err)
	}
	h, answers, found := draw(2*dim), make([]l2s.Answer, 2), make([]l2s.Prediction, 2*k)
	for _, m := range []*l2s.Index{m, loaded, read} {
		of, held := m.Measured()
		if m.Labels() != labels || m.Dim() != dim || m.Fingerprint() != l.Fingerprint() || of != k || held != 76 {
			t.Errorf("found %d x %d, k %d on %d states, expected %d x %d, %d on 76", m.Labels(), m.Dim(), of, held, labels, dim, k)
		}
		s, err := l2s.NewSearcher(l, m, l2s.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SearchBatch(found, answers, h, l2s.Request{}); err != nil || s.Index() != m {
			t.Fatal(err)
		}
		one := make([]l2s.Prediction, k)
		if n, err := s.TopK(one, h[dim:]); err != nil || n != answers[1].Count || !slices.Equal(one[:n], found[k:k+n]) {
			t.Errorf("found %v, %v, expected %v of the batch", one, err, found[k:])
		}
		if got := s.Stats(); got.Queries != 3 {
			t.Errorf("found %+v, expected 3 queries", got)
		}
	}
	if _, err := preview.Make(context.Background(), nil, l2s.Matrix{}, preview.Options{}); err == nil || errors.Is(err, preview.ErrTarget) {
		t.Errorf("no layer: found %v, expected another error", err)
	}
}

func TestStatesMayBeOfAnyTypeAndAreOfTheLayersDimension(t *testing.T) {
	const dim, n = 16, 200
	w, states, half := make([]float32, 50*dim), make([]float32, n*dim), make([]uint16, n*dim)
	for i := range w {
		w[i] = float32(math.Sin(float64(i * i)))
	}
	for i := range states { // that float16 has exactly
		states[i] = float32(i*i%97-48) / 32
		half[i], _ = float16.Narrow(states[i])
	}
	l, err := l2s.New(l2s.Float32(w, dim), nil)
	if err != nil {
		t.Fatal(err)
	}
	file := func(states l2s.Matrix) []byte {
		x, err := preview.Make(context.Background(), l, states, preview.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if _, err := x.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	if !bytes.Equal(file(l2s.Float16(half, dim)), file(l2s.Float32(states, dim))) {
		t.Error("found another preview from the same states in float16")
	}
	_, err = preview.Make(context.Background(), l, l2s.Float32(states, dim/2), preview.Options{})
	if want := "preview: states: found rows of 8 values, expected 16, the dimension of the layer"; err == nil || err.Error() != want {
		t.Errorf("found the error %v, expected %q", err, want)
	}
}

func TestTheMakerKnowsTheLeastLabels(t *testing.T) {
	if preview.LeastLabels != making.LeastLabels {
		t.Errorf("found %d, expected the maker's, %d", preview.LeastLabels, making.LeastLabels)
	}
}

// Labels that are equal are close to their panel's centre: a log-sum does not take them for as far from it as
// other labels may be, also at a low temperature, where the largest logits count most.
func TestLogSumsOfLayersWithEqualRows(t *testing.T) {
	simdtest.Long(t)
	const labels, dim = 20_000, 40
	r := rand.New(rand.NewPCG(5, 5))
	normals := func(n int) []float32 {
		x := make([]float32, n*dim)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	w := normals(labels)
	for id := 0; id < labels; id += 100 {
		clear(w[id*dim : (id+1)*dim])
	}
	layer, err := l2s.New(l2s.Float32(w, dim), nil)
	if err != nil {
		t.Fatal(err)
	}
	index, err := preview.Make(context.Background(), layer, l2s.Float32(normals(1500), dim), preview.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := l2s.NewSearcher(layer, index, l2s.Options{})
	if err != nil {
		t.Fatal(err)
	}
	best, off := make([]l2s.Prediction, 1), 0.0
	for range 50 {
		h := normals(1)
		found, err := s.Search(best, h, l2s.Request{LogSum: true, Temperature: 0.5})
		if err != nil {
			t.Fatal(err)
		}
		want, err := s.Search(best, h, l2s.Request{LogSum: true, Temperature: 0.5, ExactSum: true})
		if err != nil {
			t.Fatal(err)
		}
		off = max(off, math.Abs(found.LogSum-want.LogSum))
	}
	if off > 0.05 {
		t.Errorf("found a log-sum that is off by %v, expected at most 0.05", off)
	}
}
