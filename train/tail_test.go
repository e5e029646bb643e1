package train

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/logsum"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/search/tail"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
	layers "github.com/learning-to-screen/l2s/internal/tests/synthetic"
)

// tailInstance is a layer, contexts, and a screen for it that no context has trained.
func tailInstance(t *testing.T, contexts int) (*layers.Data, *screening.Model) {
	t.Helper()
	const labels, dim, clusters = 100, 8, 3
	d := layers.Structured(labels, dim, 6, contexts, 7)
	for i := range d.Contexts {
		d.Contexts[i] *= 0.2 // as far apart as the contexts of a cluster
	}
	r := rand.New(rand.NewPCG(1, 2))
	c := screening.Config{Dim: dim, Labels: labels, Clusters: make([]float32, clusters*dim), Lists: make([]screening.List, clusters)}
	for i := range c.Clusters {
		c.Clusters[i] = float32(r.NormFloat64())
	}
	for i := range c.Lists {
		for id := range uint32(labels) {
			if r.IntN(3) > 0 {
				c.Lists[i].IDs = append(c.Lists[i].IDs, id)
			}
		}
	}
	m, err := screening.NewModel(c)
	if err != nil {
		t.Fatal(err)
	}
	return d, m
}

func fitTail(t *testing.T, d *layers.Data, m *screening.Model, contexts []float32, opt TailOptions, run RunOptions) (*screening.Model, *TailFit) {
	t.Helper()
	fitted, fit, err := fitOver(context.Background(), m, d.Exact, contexts, opt, run)
	if err != nil {
		t.Fatal(err)
	}
	return fitted, fit
}

// logZ is the log of the sum over all labels by its definition.
func logZ(t *testing.T, l *exact.Layer, h []float32, temperature float64) float64 {
	logits := make([]float64, l.Labels())
	if err := exact.NewSearcher(l).Score(logits, h, exact.Labels{}); err != nil {
		t.Fatal(err)
	}
	for i := range logits {
		logits[i] /= temperature
	}
	return kernels.LogSumExp(logits)
}

// The estimate is much better than none, also between the temperatures, and the record has its
// precision.
func TestTailEstimates(t *testing.T) {
	d, m := tailInstance(t, 4000)
	train, test := d.Contexts[:3000*8], d.Contexts[3000*8:]
	opt := DefaultTailOptions()
	opt.Share = 0.5 // so that hundreds of contexts are held out
	fitted, fit := fitTail(t, d, m, train, opt, RunOptions{Seed: 1})
	s, err := l2s.NewSearcher(public(d.Exact), index(fitted), l2s.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, temperature := range []float64{0.7, 0.8, 1} {
		var sum, bare float64
		n := len(test) / 8
		for i := range n {
			h := test[i*8:][:8]
			got, err := s.LogSum(h, temperature, 0.9)
			if err != nil {
				t.Fatal(err)
			}
			head, ok, err := logsum.HeadOf((*engine.Searcher)(s).Screened(), h, 0, new(tail.Rest))
			if err != nil {
				t.Fatal(err)
			}
			scaled := make([]float64, head.Known)
			if ok {
				if err := head.View.Logits(scaled, head.IDs[:head.Known]); err != nil {
					t.Fatal(err)
				}
			}
			for j := range scaled {
				scaled[j] /= temperature
			}
			want := logZ(t, d.Exact, h, temperature)
			sum += (got.Log - want) * (got.Log - want)
			bare += (kernels.LogSumExp(scaled) - want) * (kernels.LogSumExp(scaled) - want)
		}
		rms := math.Sqrt(sum / float64(n))
		if rms > 0.25*math.Sqrt(bare/float64(n)) {
			t.Errorf("temperature %v: error %v, %v without a tail", temperature, rms, math.Sqrt(bare/float64(n)))
		}
		for _, e := range fit.Errors {
			if e.Temperature == temperature && math.Abs(rms-e.LogZ) > 0.3*e.LogZ {
				t.Errorf("temperature %v: error %v, the record has %v", temperature, rms, e.LogZ)
			}
		}
	}
	var record struct {
		TailFit TailFit `json:"tail_fit"`
	}
	if err := json.Unmarshal(fitted.Record(), &record); err != nil || record.TailFit.Fitted+record.TailFit.HeldOut == 0 || record.TailFit.Ridge != fit.Ridge {
		t.Errorf("record %s, %v, want the fit %+v", fitted.Record(), err, fit)
	}
}

// Of every cluster 16 contexts are drawn, or all its contexts, for any small share.
func TestATailOfASmallShare(t *testing.T) {
	d, m := tailInstance(t, 2000)
	opt := DefaultTailOptions()
	opt.Share = 1e-9
	_, fit := fitTail(t, d, m, d.Contexts, opt, RunOptions{Seed: 1})
	if n := fit.Fitted + fit.HeldOut; n != 16*m.Clusters() || fit.HeldOut != 3*m.Clusters() {
		t.Errorf("found %d contexts, %d of them held out, of %d clusters", n, fit.HeldOut, m.Clusters())
	}
}

// Contexts that repeat each other count once: the held-out contexts are new to the coefficients,
// and the errors equal the errors without the repeats.
func TestATailOfRepeatedContexts(t *testing.T) {
	d, m := tailInstance(t, 2000)
	opt := TailOptions{Temperatures: []float64{1}, Levels: []float64{0.9}, Share: 1, PerCluster: 1 << 20, HeldOut: 0.25, Directions: 2}
	fitOf := func(contexts []float32) *TailFit {
		_, fit, err := fitOver(t.Context(), m, d.Exact, contexts, opt, RunOptions{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		return fit
	}
	once, often := fitOf(d.Contexts), fitOf(slices.Concat(d.Contexts, d.Contexts, d.Contexts, d.Contexts))
	if a, b := once.Fitted+once.HeldOut, often.Fitted+often.HeldOut; a != b || a < 1000 {
		t.Errorf("found %d contexts, and %d of four times the contexts", a, b)
	}
	if a, b := once.Errors[0].LogZ, often.Errors[0].LogZ; math.Abs(b/a-1) > 0.2 {
		t.Errorf("found an error of %v of repeated contexts, expected about %v", b, a)
	}
}

// Over draws of the contexts that calibrate and of the contexts that are asked, the interval misses
// no more often than its level allows, at the temperatures fitted and between them, and is not
// useless: at a temperature fitted it misses nearly as often as it may.
func TestIntervalsKeepTheirPromise(t *testing.T) {
	simdtest.Long(t)
	const contexts, fitOn, draws = 20000, 100, 1000
	d, m := tailInstance(t, contexts)
	r := rand.New(rand.NewPCG(3, 4))
	opt := TailOptions{Temperatures: []float64{0.7, 1}, Levels: []float64{0.8, 0.9}, Share: 1, PerCluster: 2000, HeldOut: 0.5, Directions: 2}
	asked := []float64{0.7, 0.8, 1}
	misses := make([]int, len(asked))
	part := make([]float32, 0, fitOn*8)
	for draw := range draws {
		part = part[:0]
		for range fitOn {
			part = append(part, d.Context(r.IntN(contexts))...)
		}
		fitted, _ := fitTail(t, d, m, part, opt, RunOptions{Seed: uint64(draw), Threads: 1})
		s, err := l2s.NewSearcher(public(d.Exact), index(fitted), l2s.Options{})
		if err != nil {
			t.Fatal(err)
		}
		h := d.Context(r.IntN(contexts))
		for j, temperature := range asked {
			x, err := s.LogSum(h, temperature, 0.8)
			if err != nil {
				t.Fatal(err)
			}
			if z := logZ(t, d.Exact, h, temperature); z < x.Low-1e-3 || z > x.High+1e-3 {
				misses[j]++
			}
		}
	}
	// 0.2 of the draws, and four standard deviations of their number.
	for j, n := range misses {
		if n > 200+4*13 {
			t.Errorf("temperature %v: %d misses in %d draws, want at most a fifth", asked[j], n, draws)
		}
	}
	if misses[2] < 100 {
		t.Errorf("found %d misses in %d draws, want about 170 to 200: the interval is too wide", misses[2], draws)
	}
}

func TestTailHasTheSameBits(t *testing.T) {
	d, m := tailInstance(t, 700)
	opt := DefaultTailOptions()
	encode := func(threads int) []byte {
		fitted, _ := fitTail(t, d, m, d.Contexts, opt, RunOptions{Seed: 5, Threads: threads})
		var b bytes.Buffer
		if _, err := fitted.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	want := encode(1)
	simdtest.EachLevel(t, func(t *testing.T) {
		for _, threads := range []int{1, 2, 7} {
			if !bytes.Equal(encode(threads), want) {
				t.Errorf("%d threads: another model", threads)
			}
		}
	})
}

func TestRunFitsTheTail(t *testing.T) {
	d := layers.Structured(200, 8, 5, 600, 3)
	opt := DefaultOptions()
	opt.Clusters, opt.Budget, opt.Iterations = 4, 20, 0
	tail := DefaultTailOptions()
	opt.Tail = &tail
	m, r, err := runOver(context.Background(), d.Exact, d.Contexts, opt)
	if err != nil {
		t.Fatal(err)
	}
	if m.Tail() == nil || r.TailFit == nil || !strings.Contains(string(m.Record()), `"tail_fit":`) {
		t.Fatalf("no tail, or no record of it: %s", m.Record())
	}
	c := m.Config()
	c.Tail = nil
	bare, err := screening.NewModel(c)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := fitTail(t, d, (*screening.Model)(bare), d.Contexts, tail, RunOptions{Seed: opt.Seed})
	if got, want := m.Tail().Config(), want.Tail().Config(); !slices.Equal(got.Slopes, want.Slopes) || !slices.Equal(got.Widths, want.Widths) || !slices.Equal(got.Intercepts, want.Intercepts) {
		t.Error("another tail than FitTail gives")
	}
}

func TestFitTailRefuses(t *testing.T) {
	d, m := tailInstance(t, 20)
	nan := slices.Clone(d.Contexts)
	nan[3*8] = float32(math.NaN())
	for _, c := range []struct {
		name     string
		contexts []float32
		change   func(o *TailOptions)
		want     string
	}{
		{"no contexts", nil, func(*TailOptions) {}, "train: contexts: found none"},
		{"NaN", nan, func(*TailOptions) {}, "train: context 3: l2s: context: found NaN at element 0"},
		{"no temperature", d.Contexts, func(o *TailOptions) { o.Temperatures = nil }, "train: tail: temperatures: found none, expected at least 1"},
		{"a temperature of 0", d.Contexts, func(o *TailOptions) { o.Temperatures = []float64{0, 1} }, "train: tail: temperatures[0]: found 0"},
		{"temperatures that 1/T does not tell apart", d.Contexts, func(o *TailOptions) { o.Temperatures = []float64{1.7e308, math.Nextafter(1.7e308, math.Inf(1))} }, "train: tail: temperatures[1]: found 1.7"},
		{"temperatures that descend", d.Contexts, func(o *TailOptions) { o.Temperatures = []float64{2, 1} }, "train: tail: temperatures[1]: found 1"},
		{"a level of 1", d.Contexts, func(o *TailOptions) { o.Levels = []float64{1} }, "train: tail: levels[0]: found 1"},
		{"share", d.Contexts, func(o *TailOptions) { o.Share = 1.5 }, "train: tail: share: found 1.5"},
		{"per cluster", d.Contexts, func(o *TailOptions) { o.PerCluster = 0 }, "train: tail: contexts of a cluster: found 0"},
		{"directions", d.Contexts, func(o *TailOptions) { o.Directions = 65 }, "train: tail: directions: found 65, expected 1 to 64"},
		{"held out", d.Contexts, func(o *TailOptions) { o.HeldOut = 1 }, "train: tail: held out: found 1"},
	} {
		opt := DefaultTailOptions()
		c.change(&opt)
		if _, _, err := fitOver(context.Background(), m, d.Exact, c.contexts, opt, RunOptions{}); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %s ...", c.name, err, c.want)
		}
	}
}

// A tail is asked about contexts of other lengths than the contexts that it was fitted to: the
// error of its sum over all labels is not much larger than for contexts of the same lengths.
func TestTailsKnowTheirRange(t *testing.T) {
	simdtest.Long(t)
	d, m := tailInstance(t, 4000)
	fitted, _ := fitTail(t, d, m, d.Contexts[:3000*8], DefaultTailOptions(), RunOptions{Seed: 1})
	s, err := l2s.NewSearcher(public(d.Exact), index(fitted), l2s.Options{OverTail: true})
	if err != nil {
		t.Fatal(err)
	}
	worst := func(scale float32) (off float64, exactly int) {
		for _, temperature := range []float64{0.7, 0.8, 1} {
			for i := 3000; i < d.Len(); i++ {
				h := slices.Clone(d.Context(i))
				for j := range h {
					h[j] *= scale
				}
				want := logZ(t, d.Exact, h, temperature)
				z, err := s.LogSum(h, temperature, 0.9)
				if err != nil {
					t.Fatal(err)
				}
				a, err := s.Search(make([]l2s.Prediction, 1), h, l2s.Request{LogSum: true, Temperature: temperature})
				if err != nil {
					t.Fatal(err)
				}
				if off = max(off, math.Abs(z.Log-want), math.Abs(a.LogSum-want)); z.Low == z.High {
					exactly++
				}
			}
		}
		return off, exactly
	}
	usual, exact := worst(1)
	if n := 3 * 1000; exact > n/50 {
		t.Errorf("found %d of %d answers by the exact layer, expected at most a fiftieth: the ranges are too narrow", exact, n)
	}
	for _, scale := range []float32{0, 1e-30, 0.02, 0.5, 2, 5, 20, 1e30} {
		off, exact := worst(scale)
		if !(off <= 4*usual) {
			t.Errorf("contexts times %v: found log Z off by %.3g, expected %.3g at most, a multiple of the error for the contexts themselves", scale, off, 4*usual)
		}
		if n := 3 * 1000; exact < n && (scale < 0.1 || scale >= 5) {
			t.Errorf("contexts times %v: found %d of %d answers by the exact layer, expected all", scale, exact, n)
		}
	}
}

// A context of zeros in training does not make a tail accept all short contexts.
func TestZerosDoNotWidenARange(t *testing.T) {
	d, m := tailInstance(t, 3000)
	opt := DefaultTailOptions()
	fitted, _ := fitTail(t, d, m, slices.Concat(d.Contexts, make([]float32, 8)), opt, RunOptions{Seed: 1})
	c := fitted.Tail().Config()
	for cluster := range c.Clusters {
		if r := c.Ranges[8*cluster:][:8]; !(r[0] > 0) || math.IsInf(r[1], 0) {
			t.Errorf("cluster %d: found the range %v of the square of the length, expected one above 0", cluster, r[:2])
		}
	}
}
