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

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/simdtest"
	layers "github.com/learning-to-screen/l2s/internal/synthetic"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// tailInstance is a layer, contexts, and a screen for it that no context has trained.
func tailInstance(t *testing.T, contexts int) (*layers.Data, *screen.Model) {
	t.Helper()
	const labels, dim, clusters = 100, 8, 3
	d := layers.Structured(labels, dim, 6, contexts, 7)
	for i := range d.Contexts {
		d.Contexts[i] *= 0.2 // as far apart as the contexts of a cluster
	}
	r := rand.New(rand.NewPCG(1, 2))
	c := screen.Config{Dim: dim, Labels: labels, Clusters: make([]float32, clusters*dim), Sets: make([][]uint32, clusters)}
	for i := range c.Clusters {
		c.Clusters[i] = float32(r.NormFloat64())
	}
	for i := range c.Sets {
		for id := range uint32(labels) {
			if r.IntN(3) > 0 {
				c.Sets[i] = append(c.Sets[i], id)
			}
		}
	}
	m, err := screen.NewModel(c)
	if err != nil {
		t.Fatal(err)
	}
	return d, m
}

func fitTail(t *testing.T, d *layers.Data, m *screen.Model, contexts []float32, opt TailOptions, run RunOptions) (*screen.Model, *TailFit) {
	t.Helper()
	fitted, fit, err := FitRegression(context.Background(), m, d.Layer, contexts, opt, run)
	if err != nil {
		t.Fatal(err)
	}
	return fitted, fit
}

// The fit is the minimum of the sum of squares: no step away from it is better.
func TestRidgeIsTheLeastSumOfSquares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dim, n := rapid.IntRange(1, 9).Draw(t, "dim"), rapid.IntRange(1, 30).Draw(t, "contexts")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		ridge := rapid.SampledFrom([]float64{0.01, 1, 50}).Draw(t, "ridge")
		s, c := newEquations(dim, 1), newCoefficients(dim, 1)
		hs, ys := make([][]float32, n), make([]float64, n)
		for i := range hs {
			hs[i] = make([]float32, dim)
			for j := range hs[i] {
				hs[i][j] = float32(r.NormFloat64())
			}
			ys[i] = 3 + r.NormFloat64()
			s.add(hs[i], ys[i:i+1], 1)
		}
		c.solve(s, ridge)
		loss := func() (sum float64) {
			for i, h := range hs {
				e := ys[i] - c.predict(0, h)
				sum += e * e
			}
			for _, u := range c.u {
				sum += ridge * u * u
			}
			return sum
		}
		least := loss()
		for _, list := range [][]float64{c.a, c.u} {
			for i := range list {
				for _, step := range []float64{-1e-3, 1e-3} {
					list[i] += step
					if got := loss(); got < least-1e-9*(1+least) {
						t.Fatalf("%v after a step, %v at the solution", got, least)
					}
					list[i] -= step
				}
			}
		}
	})
}

// Sums with a part, minus the part, are the sums of the rest.
func TestNormalSumsOfFolds(t *testing.T) {
	a, b := newEquations(2, 1), newEquations(2, 1)
	a.add([]float32{1, 2}, []float64{3}, 1)
	b.add([]float32{4, 5}, []float64{6}, 1)
	a.plus(b, 1)
	a.plus(b, -1)
	want := newEquations(2, 1)
	want.add([]float32{1, 2}, []float64{3}, 1)
	for i, list := range a.lists() {
		if !slices.Equal(list, want.lists()[i]) || a.n != 1 {
			t.Errorf("list %d: found %v, want %v", i, list, want.lists()[i])
		}
	}
}

func TestConformalWidths(t *testing.T) {
	levels := []float64{0.5, 0.8, 0.9}
	for _, c := range []struct {
		name   string
		errors []float64
		want   []float32
	}{
		{"none", nil, []float32{inf32, inf32, inf32}},
		{"one", []float64{2}, []float32{2, inf32, inf32}},
		{"four: the third, the fourth, none", []float64{4, 1, 3, 2}, []float32{3, 4, inf32}},
		{"nine", []float64{9, 8, 7, 6, 5, 4, 3, 2, 1}, []float32{5, 8, 9}},
		{"rounded up", []float64{0.1}, []float32{math.Nextafter32(float32(0.1)-0x1p-40, 1), inf32, inf32}},
	} {
		got := make([]float32, 3)
		conformal(got, slices.Clone(c.errors), levels)
		if c.name == "rounded up" {
			if float64(got[0]) < 0.1 || float64(got[0]) > 0.1+1e-7 {
				t.Errorf("%s: found %v", c.name, got[0])
			}
			continue
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: found %v, want %v", c.name, got, c.want)
		}
	}
}

var inf32 = float32(math.Inf(1))

// logZ is the log of the sum over all labels by its definition.
func logZ(t *testing.T, l *softmax.Layer, h []float32, temperature float64) float64 {
	q := softmax.NewQuery(l.Dim())
	logits := make([]float64, l.Labels())
	if err := q.Set(h); err != nil {
		t.Fatal(err)
	}
	if err := softmax.NewSearcher(l).Logits(logits, q, softmax.Labels{}); err != nil {
		t.Fatal(err)
	}
	for i := range logits {
		logits[i] /= temperature
	}
	return kernels.LogSumExp(logits)
}

// The estimate is much better than none, between the temperatures too, and the record
// tells how good it is.
func TestRegressionEstimatesTheTail(t *testing.T) {
	d, m := tailInstance(t, 4000)
	train, test := d.Contexts[:3000*8], d.Contexts[3000*8:]
	opt := DefaultTailOptions()
	fitted, fit := fitTail(t, d, m, train, opt, RunOptions{Seed: 1})
	s, err := screen.NewSearcher(fitted, d.Layer)
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
			head, err := s.Head(h, nil, temperature, 0)
			if err != nil {
				t.Fatal(err)
			}
			scaled := slices.Clone(head.Logits)
			for j := range scaled {
				scaled[j] /= temperature
			}
			want := logZ(t, d.Layer, h, temperature)
			sum += (got.Log - want) * (got.Log - want)
			bare += (kernels.LogSumExp(scaled) - want) * (kernels.LogSumExp(scaled) - want)
		}
		rms := math.Sqrt(sum / float64(n))
		if rms > 0.25*math.Sqrt(bare/float64(n)) {
			t.Errorf("temperature %v: error %v, %v without a tail", temperature, rms, math.Sqrt(bare/float64(n)))
		}
		for _, e := range fit.Errors {
			if e.Temperature == temperature && math.Abs(rms-e.LogZ) > 0.3*e.LogZ {
				t.Errorf("temperature %v: error %v, the record says %v", temperature, rms, e.LogZ)
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

// The directions are orthogonal, and the squares along them sum to about the variance of the
// logits over the labels if there are as many as dimensions.
func TestDirectionsGiveTheVarianceOfLogits(t *testing.T) {
	d, _ := tailInstance(t, 50)
	all, err := directions(context.Background(), d.Layer, 8, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	off := 0.0
	for i := range 50 {
		h := d.Context(i)
		x := make([]float64, d.Layer.Labels())
		d.Layer.Weights().RefScan(x, nil, h)
		mean, variance := 0.0, 0.0
		for _, v := range x {
			mean += v / float64(len(x))
		}
		for _, v := range x {
			variance += (v - mean) * (v - mean) / float64(len(x))
		}
		_, along := screen.SquaresOf(all, h)
		off += (along/variance - 1) * (along/variance - 1) / 50
	}
	if off = math.Sqrt(off); off > 0.15 {
		t.Errorf("found squares off the variance by %v (root mean square of the ratio), want about the variance", off)
	}
	for i := range 8 {
		for j := range i {
			a, b := all[i*8:][:8], all[j*8:][:8]
			product, norms := 0.0, 1.0
			for k := range a {
				product += float64(a[k]) * float64(b[k])
			}
			for _, v := range [][]float32{a, b} {
				norm, _ := screen.SquaresOf(v, v)
				norms *= math.Sqrt(norm)
			}
			if math.Abs(product) > 1e-3*norms {
				t.Errorf("directions %d and %d: product %v of norms %v, want 0", i, j, product, norms)
			}
		}
	}
}

// Squares halve the error where the spread of the logits decides how much the tail weighs.
func TestSquaresReduceTheError(t *testing.T) {
	d, m := tailInstance(t, 4000)
	for i := range d.Contexts { // contexts of different lengths
		d.Contexts[i] *= 0.5 + float32(i/8%7)/3
	}
	opt := DefaultTailOptions()
	_, with := fitTail(t, d, m, d.Contexts, opt, RunOptions{Seed: 1})
	opt.Directions = 0
	_, without := fitTail(t, d, m, d.Contexts, opt, RunOptions{Seed: 1})
	for k, e := range with.Errors {
		if o := without.Errors[k]; e.LogZ > 0.67*o.LogZ {
			t.Errorf("temperature %v: error %v with squares, %v without, want two thirds at most", e.Temperature, e.LogZ, o.LogZ)
		}
	}
}

// Over draws of the contexts that calibrate and of those that are asked, the interval
// misses no more often than it says, at the temperatures fitted and between them, and
// is not useless: at a temperature fitted it misses nearly as often as it may.
func TestIntervalsKeepTheirPromise(t *testing.T) {
	if testing.Short() {
		t.Skip("a thousand fits")
	}
	const contexts, fitOn, draws = 20000, 100, 1000
	d, m := tailInstance(t, contexts)
	r := rand.New(rand.NewPCG(3, 4))
	opt := TailOptions{Temperatures: []float64{0.7, 1}, Levels: []float64{0.8, 0.9}, PerCluster: 2000, HeldOut: 0.5, Directions: 2}
	asked := []float64{0.7, 0.8, 1}
	misses := make([]int, len(asked))
	part := make([]float32, 0, fitOn*8)
	for draw := range draws {
		part = part[:0]
		for range fitOn {
			part = append(part, d.Context(r.IntN(contexts))...)
		}
		fitted, _ := fitTail(t, d, m, part, opt, RunOptions{Seed: uint64(draw), Threads: 1})
		s, err := screen.NewSearcher(fitted, d.Layer)
		if err != nil {
			t.Fatal(err)
		}
		h := d.Context(r.IntN(contexts))
		for j, temperature := range asked {
			x, err := s.LogSum(h, temperature, 0.8)
			if err != nil {
				t.Fatal(err)
			}
			if z := logZ(t, d.Layer, h, temperature); z < x.Low-1e-3 || z > x.High+1e-3 {
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

func TestRegressionHasTheSameBits(t *testing.T) {
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
	opt.Clusters, opt.Budget, opt.KMeansOnly = 4, 20, true
	tail := DefaultTailOptions()
	opt.Tail = &tail
	models, _, err := RunBudgets(context.Background(), d.Layer, d.Contexts, opt, []float64{20, 200})
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range models {
		if m.Regression() == nil || !strings.Contains(string(m.Record()), `"tail_fit":`) || !strings.Contains(string(m.Record()), `"tail":{"temp`) {
			t.Errorf("screen %d: no regression, or no record of it: %s", i, m.Record())
		}
	}
	// On other contexts.
	opt.TailContexts = d.Contexts[:80*8]
	other, _, err := Run(context.Background(), d.Layer, d.Contexts, opt)
	if err != nil {
		t.Fatal(err)
	}
	bare, err := models[0].WithRegression(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := fitTail(t, d, bare, opt.TailContexts, tail, RunOptions{Seed: opt.Seed})
	if got, want := other.Regression().Config(), want.Regression().Config(); !slices.Equal(got.Slopes, want.Slopes) || !slices.Equal(got.Widths, want.Widths) {
		t.Error("on other contexts: another regression than FitRegression gives on them")
	}
	opt.TailContexts = opt.TailContexts[1:]
	if _, _, err := Run(context.Background(), d.Layer, d.Contexts, opt); err == nil || !strings.HasPrefix(err.Error(), "train: tail: contexts: found 639 values") {
		t.Errorf("ragged contexts of the tail: error %v", err)
	}
}

func TestFitRegressionRefuses(t *testing.T) {
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
		{"NaN", nan, func(*TailOptions) {}, "train: context 3: softmax: context: found NaN at element 0"},
		{"no temperature", d.Contexts, func(o *TailOptions) { o.Temperatures = nil }, "train: tail: temperatures: found none, want at least 1"},
		{"a temperature of 0", d.Contexts, func(o *TailOptions) { o.Temperatures = []float64{0, 1} }, "train: tail: temperatures: found 0 at 0"},
		{"temperatures that descend", d.Contexts, func(o *TailOptions) { o.Temperatures = []float64{2, 1} }, "train: tail: temperatures: found 1 at 1"},
		{"a level of 1", d.Contexts, func(o *TailOptions) { o.Levels = []float64{1} }, "train: tail: levels: found 1 at 0"},
		{"per cluster", d.Contexts, func(o *TailOptions) { o.PerCluster = 0 }, "train: tail: contexts of a cluster: found 0"},
		{"directions", d.Contexts, func(o *TailOptions) { o.Directions = 65 }, "train: tail: directions: found 65, want 0 to 64"},
		{"held out", d.Contexts, func(o *TailOptions) { o.HeldOut = 1 }, "train: tail: held out: found 1"},
	} {
		opt := DefaultTailOptions()
		c.change(&opt)
		if _, _, err := FitRegression(context.Background(), m, d.Layer, c.contexts, opt, RunOptions{}); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %s ...", c.name, err, c.want)
		}
	}
}
