package screen_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s/internal/simdtest"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// With Guard the exact layer answers strange contexts, and all while 8 of the last are strange, and the screen otherwise:
// seldom not the screen for contexts like those of training, and never the screen soon after they change.
func TestGuard(t *testing.T) {
	w := watchedOnce()
	simdtest.EachLevel(t, func(t *testing.T) {
		newSearcher := func(opts ...screen.Option) *screen.Searcher {
			s, err := screen.NewSearcher(w.model, w.layer, opts...)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		guarded, plain, exact := newSearcher(screen.Guard()), newSearcher(), softmax.NewSearcher(w.layer)
		d, floor, strange := w.model.Dim(), w.model.Geometry().Cosine.Edges[0], 0.0
		change := permuted(rand.New(rand.NewPCG(1, 1)), d)
		var byLayer [2]int // of usual contexts, and of others
		got, want := make([]softmax.Prediction, 5), make([]softmax.Prediction, 5)
		const usual, others = 2000, 100
		for i := range usual + others {
			h, kind := slices.Clone(w.contexts[i*d:(i+1)*d]), 0
			if i >= usual {
				change(h)
				kind = 1
			}
			v := w.model.ClusterWeights()[nearest(t, plain, h)*d:][:d]
			far := kernels.RefDot(v, h)/(math.Sqrt(kernels.RefDot(v, v))*math.Sqrt(kernels.RefDot(h, h))) < floor
			if strange -= strange / 32; far {
				strange++
			}
			source, failed := softmax.FromSet, error(nil)
			if far || strange >= 8 {
				source = softmax.FromLayer
				byLayer[kind]++
				_, failed = exact.TopK(want, h)
			} else {
				_, failed = plain.TopK(want, h)
			}
			a, err := guarded.Search(got, h, softmax.Request{K: 5})
			if err != nil || failed != nil || a.Source != source || !slices.Equal(got, want) {
				t.Fatalf("context %d, %v strange: found %+v %v, %v, expected %v of %v", i, strange, a, got, err, want, source)
			}
		}
		if byLayer[0] == 0 || byLayer[0] > usual/20 || byLayer[1] < others*3/4 {
			t.Errorf("found %d answers of the layer to %d usual contexts and %d to %d others, expected some and most", byLayer[0], usual, byLayer[1], others)
		}
		if n := guarded.Stats().Exact; n != uint64(byLayer[0]+byLayer[1]) {
			t.Errorf("found %d exact answers counted, expected %d", n, byLayer[0]+byLayer[1])
		}
	})
}

// A histogram whose first bin holds more than a twentieth of training tells no strange contexts.
func TestGuardIsOffWhereManyAreStrange(t *testing.T) {
	w := watchedOnce()
	for share, strange := range map[float64]bool{0.01: true, 0.05: true, 0.06: false, 0.75: false} {
		var record map[string]any
		if err := json.Unmarshal(w.model.Record(), &record); err != nil {
			t.Fatal(err)
		}
		record["geometry"].(map[string]any)["cosine"].(map[string]any)["shares"].([]any)[0] = share
		text, err := json.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		m, err := w.model.WithTail(w.model.Tail(), text)
		if err != nil {
			t.Fatal(err)
		}
		s, err := screen.NewSearcher(m, w.layer, screen.Guard())
		if err != nil {
			t.Fatal(err)
		}
		d := m.Dim()
		change := permuted(rand.New(rand.NewPCG(1, 1)), d)
		for i := range 100 {
			h := slices.Clone(w.contexts[i*d : (i+1)*d])
			change(h)
			if _, err := s.TopK(make([]softmax.Prediction, 5), h); err != nil {
				t.Fatal(err)
			}
		}
		if n := s.Stats().Exact; (n > 0) != strange {
			t.Errorf("share %v: found %d exact answers of 100, expected some: %v", share, n, strange)
		}
	}
}

// Lengths has the exact layer answer contexts out of the range, and those whose length has no bounds.
func TestLengths(t *testing.T) {
	in := shape{labels: 300, dim: 24, clusters: 5, contexts: 20, keep: 30, seed: 4}.instance(t)
	s := in.searcher(t, screen.Lengths(0.5, 2))
	top := make([]softmax.Prediction, 3)
	for i := range in.n {
		h := slices.Clone(in.context(i))
		length := 0.0
		for _, x := range h {
			length += float64(x) * float64(x)
		}
		for _, want := range []float64{0, 1e-30, 0.499, 0.501, 1, 1.999, 2.001, 1e15, 1e30} {
			scaled := slices.Clone(h)
			for j := range scaled {
				scaled[j] = float32(float64(h[j]) * want / math.Sqrt(length))
			}
			a, err := s.Search(top, scaled, softmax.Request{K: 3})
			if err != nil {
				t.Fatal(err)
			}
			if within := want > 0.5 && want < 2; (a.Source == softmax.FromSet) != within {
				t.Errorf("context %d of length %v: found an answer from %v", i, want, a.Source)
			}
		}
	}
}
