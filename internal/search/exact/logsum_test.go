package exact_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

// checkLogitAndSum: the logit is the one of the definition; the sum equals the
// sum of a request for no labels, with the label's own logit in it.
func checkLogitAndSum(t *rapid.T) {
	l, h := drawLayer(t)
	s, q := exact.NewSearcher(l), newQuery(t, h)
	n := l.Labels()
	id := uint32(rapid.IntRange(0, n-1).Draw(t, "id"))
	list := allIDs(n)
	among := exact.Labels{}
	if rapid.Bool().Draw(t, "among a list") {
		list = slices.DeleteFunc(list, func(uint32) bool { return rapid.Bool().Draw(t, "left out") })
		among = exact.Only(list)
	}
	req := exact.Request{LogSum: true, Among: among, Temperature: rapid.SampledFrom([]float64{0, 0.5, 1, 3}).Draw(t, "temperature")}
	if rapid.Bool().Draw(t, "biased") {
		req.Biases = []exact.Bias{{ID: id, Add: 1.5}}
	}
	req.ExactSum = rapid.Bool().Draw(t, "exact")
	logit, sum, err := s.LogitAndSum(q, id, &req)
	if err != nil {
		t.Fatal(err)
	}
	w := wide(l)
	if want := definition(l, w, h, []uint32{id}, &req)[0].Logit; logit != want {
		t.Fatalf("logit: found %v, expected %v", logit, want)
	}
	all := definition(l, w, h, list, &req)
	usual := req
	if req.Temperature == 0 {
		req.Temperature = 1
	}
	for i := range all {
		all[i].Logit /= req.Temperature
	}
	unit := req
	unit.Temperature = 0
	if req.ExactSum {
		var terms []float64
		for _, p := range all {
			terms = append(terms, p.Logit)
		}
		if want := kernels.LogSumExp(terms); sum != want && !(math.Abs(sum-want) < 1e-9*(1+math.Abs(want))) {
			t.Fatalf("exact sum: found %v, expected %v", sum, want)
		}
		return
	}
	if req.Temperature == 1 {
		checkSum(t, l, w, h, 0, &unit, all, sum)
	}
	if !slices.Contains(list, id) {
		if a, err := s.Search(nil, h, usual); err != nil || a.LogSum != sum {
			t.Fatalf("sum without the label: found %v, expected the sum of a search, %v (%v)", sum, a.LogSum, err)
		}
		return
	}
	if p := logit/req.Temperature - sum; p > 1e-5 {
		t.Fatalf("found a log-probability of %v among labels with the label, expected at most 0", p)
	}
	if len(list) == 1 && math.Abs(logit/req.Temperature-sum) > 1e-12 {
		t.Fatalf("sum of the label alone: found %v, expected %v", sum, logit/req.Temperature)
	}
}

func TestLogitAndSumAreTheirDefinition(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) { rapid.Check(t, checkLogitAndSum) })
}

// For any temperature, and any size of rows, contexts and biases, a log-sum is a finite number or
// an error, and a log-probability is not above 0.
func TestLogSumsAreFinite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, d := rapid.IntRange(1, 70).Draw(t, "labels"), rapid.IntRange(1, 5).Draw(t, "dim")
		number := func(name string) float32 {
			return rapid.SampledFrom([]float32{0, 1, -1, 0.3, 1e-45, 1e10, -1e19, 3e38, -3e38}).Draw(t, name)
		}
		w, bias, h := make([]float32, n*d), make([]float32, n), make([]float32, d)
		for i := range w {
			w[i] = number("weight")
		}
		for i := range bias {
			bias[i] = number("bias")
		}
		for i := range h {
			h[i] = number("context")
		}
		l, err := exact.NewLayer(kernels.Float32Rows(w, d), bias)
		if err != nil {
			t.Fatal(err)
		}
		id := uint32(rapid.IntRange(0, n-1).Draw(t, "id"))
		k, req := rapid.IntRange(0, n).Draw(t, "k"), exact.Request{LogSum: true, ExactSum: rapid.Bool().Draw(t, "exact")}
		if rapid.Bool().Draw(t, "biased") {
			req.Biases = []exact.Bias{{ID: id, Add: rapid.SampledFrom([]float32{0x1p100, -0x1p100}).Draw(t, "added")}}
		}
		req.Temperature = rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{exact.MinTemperature, 1e-101, 1e-307, 5e-324, 0.7, math.MaxFloat64, math.Inf(1), math.NaN()})).Draw(t, "temperature")
		fits := req.Temperature >= exact.MinTemperature && req.Temperature <= math.MaxFloat64
		s := exact.NewSearcher(l)
		a, err := s.Search(make([]exact.Prediction, k), h, req)
		if ok := err == nil; ok != (fits || req.Temperature == 0) || ok && (math.IsNaN(a.LogSum) || math.IsInf(a.LogSum, 0)) {
			t.Fatalf("temperature %v: found a log-sum of %v, %v", req.Temperature, a.LogSum, err)
		}
		p, err := s.LogProb(h, id, req.Temperature)
		if ok := err == nil; ok != fits || ok && !(p <= 0) {
			t.Fatalf("temperature %v: found a log-probability of %v, %v", req.Temperature, p, err)
		}
	})
}

func TestLogitAndSumRefuses(t *testing.T) {
	l := newLayer(t, []float32{1, 2, 3, 4}, nil, 2)
	s, q := exact.NewSearcher(l), newQuery(t, []float32{1, 1})
	for _, c := range []struct {
		name string
		q    *exact.Query
		id   uint32
		req  exact.Request
		kind error
		want string
	}{
		{"a label beyond the last", q, 2, exact.Request{LogSum: true}, exact.ErrRequest, "l2s: id: found 2, expected one below the 2 labels"},
		{"no sum wanted", q, 1, exact.Request{}, exact.ErrRequest, "l2s: k: found 0, expected 1 to the 2 labels"},
		{"no context", exact.NewQuery(2), 1, exact.Request{LogSum: true}, exact.ErrContext, "l2s: context: found none that was set, expected one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, _, err := s.LogitAndSum(c.q, c.id, &c.req); !errors.Is(err, c.kind) || err.Error() != c.want {
				t.Errorf("found error %v, expected %s", err, c.want)
			}
		})
	}
	if _, err := s.LogProb([]float32{1, 1}, 0, 0); err == nil || err.Error() != "l2s: temperature: found 0, expected a finite number of at least 1e-100" {
		t.Errorf("temperature 0: error %v", err)
	}
	// x = 3 and 7 at T = 4.
	if p, err := s.LogProb([]float32{1, 1}, 0, 4); err != nil || math.Abs(p+math.Log(1+math.E)) > 1e-12 {
		t.Errorf("found log-probability %v, %v, expected %v", p, err, -math.Log(1+math.E))
	}
}

// Below a temperature of 1/2 a sum is that of the logits, whatever the codes: for any number of best
// labels, none among them, over all labels and over lists, with edits, scales and caps, in searches
// and for the log-probability of a label, with equal bits on every level.
func TestColdSumsAreOfLogits(t *testing.T) {
	const n, d = 3000, 48
	r := newRand(7)
	draw := func(n int, by float64) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(by * r.NormFloat64())
		}
		return x
	}
	w := draw(n*d, 0.6)
	for i := range w[:200*d] { // close ones among the best
		w[200*d+i] = w[i] + float32(0.001*r.NormFloat64())
	}
	floats := newLayer(t, w, draw(n, 0.1), d)
	list := make([]uint32, 0, n)
	banned := bitset.New(n)
	for id := range uint32(n) {
		if id%3 != 0 {
			list = append(list, id)
		}
		if id%5 == 0 {
			banned.Add(id)
		}
	}
	contexts, sums := draw(3*d, 1), map[string]float64{}
	simdtest.EachLevel(t, func(t *testing.T) {
		for _, f := range []struct{ scale, cap float64 }{{1, 0}, {0.125, 0}, {1.7, 0}, {1, 8}, {2, 30}} {
			l, err := floats.Scaled(f.scale, f.cap)
			if err != nil {
				t.Fatal(err)
			}
			s := exact.NewSearcher(l)
			most, worst := 0.0, ""
			for i := range 3 {
				h := contexts[i*d : (i+1)*d]
				for _, temperature := range []float64{0.49, 0.05, 0.001} {
					for name, req := range map[string]exact.Request{
						"all": {}, "a list": {Among: exact.Only(list)}, "banned": {Banned: banned}, "allowed": {Allowed: banned},
						"biased": {Biases: []exact.Bias{{ID: 3, Add: 1}, {ID: 700, Add: 25}}},
					} {
						req.LogSum, req.Temperature = true, temperature
						ask := req
						ask.ExactSum = true
						want, err := s.Search(nil, h, ask)
						if err != nil {
							t.Fatal(err)
						}
						for _, k := range []int{0, 1, 3, 40} {
							a, err := s.Search(make([]exact.Prediction, k), h, req)
							if err != nil {
								t.Fatal(err)
							}
							key := fmt.Sprint(f, i, temperature, name, k)
							if sum, known := sums[key]; known && sum != a.LogSum {
								t.Errorf("%s: found the log-sum %v, expected the bits of another level, %v", key, a.LogSum, sum)
							}
							sums[key] = a.LogSum
							if off := math.Abs(a.LogSum - want.LogSum); off > most {
								most, worst = off, fmt.Sprintf("%s, k %d, temperature %v", name, k, temperature)
							}
						}
						q := newQuery(t, h)
						if _, sum, err := s.LogitAndSum(q, 4, &req); err != nil || math.Abs(sum-want.LogSum) > most {
							most, worst = math.Abs(sum-want.LogSum), fmt.Sprintf("%s, a label, temperature %v, %v", name, temperature, err)
						}
					}
				}
			}
			if most > 0.002 {
				t.Errorf("scale %v, cap %v, %s: found a log-sum that is %v off, expected at most 0.002", f.scale, f.cap, worst, most)
			}
		}
	})
}
