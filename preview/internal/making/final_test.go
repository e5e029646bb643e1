package making

import (
	"context"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/previewing"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

// scaled returns a layer with the scale and the cap.
func scaled(t fatal, l *exact.Layer, scale, softCap float64) *exact.Layer {
	of, err := l.Scaled(scale, softCap)
	if err != nil {
		t.Fatal(err)
	}
	return of
}

// A preview of a layer with a scale, and one of its rows alone, answer requests with edits and
// distances as the exact search does if they look at all labels and score them in full. So they do
// under a cap.
func TestTheWholeScaledLayerGivesTheExactAnswer(t *testing.T) {
	simdtest.Long(t)
	both(t, func(t *testing.T, x made) {
		rapid.Check(t, func(t *rapid.T) {
			l := scaled(t, x.layer, rapid.SampledFrom([]float64{1, 0.125, 0.3, 7}).Draw(t, "scale"), rapid.SampledFrom([]float64{0, 3, 30}).Draw(t, "cap"))
			m := withRungs(x.model, whole)
			if rapid.Bool().Draw(t, "made for it") {
				m.Parts().Fingerprint = previewing.FingerprintOf(l)
			}
			k, req := drawRequest(t, l.Labels())
			req.Within = rapid.SampledFrom([]float64{0, 0, 0.1, 3}).Draw(t, "within")
			h, got, want := x.contexts(1), make([]exact.Prediction, k), make([]exact.Prediction, k)
			a, err := mustSearch(t, m, l).Search(got, h, req)
			if err != nil {
				t.Fatal(err)
			}
			b, err := exact.NewSearcher(l).Search(want, h, req)
			if err != nil || !slices.Equal(got[:a.Count], want[:b.Count]) {
				t.Fatalf("found %v, expected %v, %v", got[:a.Count], want[:b.Count], err)
			}
		})
	})
}

// Log-sums of a layer with a scale are of its final logits, and their errors are what the preview that
// is made for it tells: as small, or as large, as of a layer whose rows have the scale. A preview of the
// rows alone, and one under a cap, do not estimate them: the exact layer has them.
func TestLogSumsOfScaledLayers(t *testing.T) {
	simdtest.Long(t)
	both(t, func(t *testing.T, x made) {
		states := x.contexts(1200)
		for _, scale := range []float64{0.25, 3} {
			l := scaled(t, x.layer, scale, 0)
			m, err := Make(context.Background(), l, states, Options{Coordinates: 16})
			if err != nil {
				t.Fatal(err)
			}
			if !m.Estimates(l) || m.Estimates(scaled(t, x.layer, 2*scale, 0)) || x.model.Estimates(l) || !x.model.Estimates(x.layer) {
				t.Errorf("scale %v: found that another preview than the layer's own estimates its sums, or that that does not", scale)
			}
			s, rows, e := mustSearch(t, m, l), mustSearch(t, x.model, l), exact.NewSearcher(l)
			r, estimates, wrong := m.Parts().Rungs[m.Parts().Normal], 0, 0
			const n = 200
			for range n {
				h := x.contexts(1)
				a, err := s.Search(nil, h, exact.Request{LogSum: true})
				if err != nil {
					t.Fatal(err)
				}
				b, err := e.Search(nil, h, exact.Request{LogSum: true, ExactSum: true})
				if err != nil {
					t.Fatal(err)
				}
				if a.Source == exact.FromSet {
					estimates++
				}
				if math.Abs(a.LogSum-b.LogSum) > 1.2*r.LogSumOff+1e-4 {
					wrong++
				}
				b, err = e.Search(nil, h, exact.Request{LogSum: true})
				if c, err2 := rows.Search(nil, h, exact.Request{LogSum: true}); err != nil || err2 != nil || c != b {
					t.Errorf("scale %v: a preview of the rows: found %v, %v, expected the exact layer's %v", scale, c, err2, b)
				}
			}
			if wrong > n/8 || estimates < n/2 {
				t.Errorf("scale %v: of %d log-sums found %d estimated, %d off by more than 1.2 times %v, want most, and one in twenty", scale, n, estimates, wrong, r.LogSumOff)
			}
			if _, err := previewing.NewSearcher(m, x.layer); err == nil {
				t.Error("found a searcher over the layer without the scale, expected an error: its errors of sums are others")
			}
		}
		capped := scaled(t, x.layer, 1, 5)
		m, err := Make(context.Background(), capped, states, Options{Coordinates: 16})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range []*previewing.Model{m, x.model} {
			s, e, h, top, best := mustSearch(t, m, capped), exact.NewSearcher(capped), x.contexts(1), make([]exact.Prediction, 5), make([]exact.Prediction, 5)
			a, err := s.Search(top, h, exact.Request{LogSum: true})
			b, err2 := e.Search(best, h, exact.Request{LogSum: true})
			if err != nil || err2 != nil || a != b || !slices.Equal(top, best) || m.Estimates(capped) {
				t.Errorf("under a cap: found %v %v, %v, expected %v %v, %v", a, top, err, b, best, err2)
			}
		}
	})
}

// A preview of a layer with a scale that is a power of two is the preview of the scaled rows: of the same
// precision, and with the same errors of log-sums.
func TestFiguresOfScaledLayers(t *testing.T) {
	simdtest.Long(t)
	d, twin := newData(t, 3000, 42, true, 1), newData(t, 3000, 42, true, 1)
	var err error
	if twin.layer, err = scaledRows(twin.layer, 0.125); err != nil {
		t.Fatal(err)
	}
	d.layer = scaled(t, d.layer, 0.125, 0)
	states := d.contexts(1200)
	m, n := mustMake(t, d, states, Options{Coordinates: 16}), mustMake(t, twin, states, Options{Coordinates: 16})
	for i, r := range m.Parts().Rungs {
		if i >= len(n.Parts().Rungs) {
			t.Fatalf("found %d rungs, expected %d", len(m.Parts().Rungs), len(n.Parts().Rungs))
		}
		if x := n.Parts().Rungs[i]; r.Precision1 != x.Precision1 || r.PrecisionK != x.PrecisionK || !(math.Abs(r.LogSumOff-x.LogSumOff) <= 1e-3*(x.LogSumOff+1e-3)) {
			t.Errorf("rung %d: found %+v, expected %+v", i, r, x)
		}
	}
}

// scaledRows returns the layer whose rows and biases have a scale that is a power of two.
func scaledRows(l *exact.Layer, scale float32) (*exact.Layer, error) {
	w, b := make([]float32, l.Labels()*l.Dim()), slices.Clone(l.Bias())
	for i := range l.Labels() {
		l.Weights().Widen(w[i*l.Dim():][:l.Dim()], i)
	}
	for _, x := range [][]float32{w, b} {
		for i := range x {
			x[i] *= scale
		}
	}
	return exact.NewLayer(kernels.Float32Rows(w, l.Dim()), b)
}
