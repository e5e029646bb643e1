package exact_test

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

// A layer with a scale that is a power of two is the layer of the scaled rows and biases: every
// answer has the same bits, estimates among them.
func TestAScaleIsAsIfTheRowsHadIt(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			labels, dim := rapid.IntRange(1, 150).Draw(t, "labels"), rapid.IntRange(1, 60).Draw(t, "dim")
			scale := math.Ldexp(1, rapid.IntRange(-12, 12).Draw(t, "scale"))
			r := newRand(rapid.Uint64().Draw(t, "seed"))
			random := func(n int) (x, scaled []float32) {
				for range n {
					x = append(x, float32(r.NormFloat64()))
					scaled = append(scaled, float32(scale)*x[len(x)-1])
				}
				return x, scaled
			}
			w, scaledW := random(labels * dim)
			b, scaledB := random(labels)
			h, _ := random(dim)
			l, err := exact.NewLayer(kernels.Float32Rows(w, dim), b)
			if err == nil {
				l, err = l.Scaled(scale, 0)
			}
			twin, err2 := exact.NewLayer(kernels.Float32Rows(scaledW, dim), scaledB)
			if err != nil || err2 != nil {
				t.Fatal(err, err2)
			}
			s, want := exact.NewSearcher(l), exact.NewSearcher(twin)
			for range 3 {
				k, req, among := drawRequest(t, l)
				if exact.IsList(req.Among) { // a packed list is of one layer
					req.Among = exact.Only(among)
				}
				req.Temperature = rapid.SampledFrom([]float64{0, 0.25, 0.7, 3}).Draw(t, "temperature")
				req.ExactSum = rapid.Bool().Draw(t, "exact sum")
				got, top := make([]exact.Prediction, k), make([]exact.Prediction, k)
				a, err := s.Search(got, h, req)
				x, err2 := want.Search(top, h, req)
				if err != nil || err2 != nil || a != x || !slices.Equal(got[:a.Count], top[:x.Count]) {
					t.Fatalf("found %v %v, %v, expected %v %v, %v", a, got, err, x, top, err2)
				}
			}
			id, temperature := uint32(r.IntN(labels)), rapid.SampledFrom([]float64{0.25, 0.7, 1, 3}).Draw(t, "temperature of a log-probability")
			p, err := s.LogProb(h, id, temperature)
			if x, err2 := want.LogProb(h, id, temperature); err != nil || err2 != nil || p != x {
				t.Fatalf("log-probability of %d: found %v, %v, expected %v, %v", id, p, err, x, err2)
			}
			q := newQuery(t, h)
			lower, upper, err := s.Bounds(q, exact.Labels{})
			low, up, err2 := want.Bounds(q, exact.Labels{})
			if err != nil || err2 != nil || !slices.Equal(lower, low) || !slices.Equal(upper, up) {
				t.Fatal("found other intervals than of the scaled rows")
			}
		})
	})
}

// Intervals hold the final logits, if there are any.
func TestBoundsHoldFinalLogits(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) {
		found := 0
		rapid.Check(t, func(t *rapid.T) {
			l, h := drawLayer(t)
			s, q, x := exact.NewSearcher(l), newQuery(t, h), make([]float64, l.Labels())
			if err := s.Logits(x, q, exact.Labels{}); err != nil {
				t.Fatal(err)
			}
			lower, upper, err := s.Bounds(q, exact.Labels{})
			if err != nil {
				t.Fatal(err)
			}
			for i := range lower {
				found++
				if !(float64(lower[i]) <= x[i] && x[i] <= float64(upper[i])) {
					t.Fatalf("scale %v, cap %v, label %d: found the interval [%v, %v], expected one with %v", l.Scale(), l.SoftCap(), i, lower[i], upper[i], x[i])
				}
			}
		})
		if found == 0 {
			t.Error("found no intervals, expected some")
		}
	})
}

// A sum over many capped labels is near the exact one, as a sum without a cap is.
func TestSumsUnderACap(t *testing.T) {
	const labels, dim = 5000, 32
	r := newRand(3)
	random := func(n int, by float64) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(by * r.NormFloat64())
		}
		return x
	}
	plain, h := newLayer(t, random(labels*dim, 1), random(labels, 3), dim), random(dim, 2)
	l, err := plain.Scaled(1, 10)
	if err != nil {
		t.Fatal(err)
	}
	s := exact.NewSearcher(l)
	for _, k := range []int{0, 5, labels} {
		for _, temperature := range []float64{0.5, 1, 2} {
			dst := make([]exact.Prediction, k)
			a, err := s.Search(dst, h, exact.Request{LogSum: true, Temperature: temperature})
			x, err2 := s.Search(dst, h, exact.Request{LogSum: true, ExactSum: true, Temperature: temperature})
			if err != nil || err2 != nil || math.Abs(a.LogSum-x.LogSum) > 0.01 {
				t.Errorf("k %d, temperature %v: found %v, %v, expected nearly %v, %v", k, temperature, a.LogSum, err, x.LogSum, err2)
			}
		}
	}
}

func TestScaledLayers(t *testing.T) {
	l := newLayer(t, []float32{1, 2, 3, 4}, []float32{1, 0}, 2)
	for _, c := range []struct {
		scale, cap float64
		want       string
	}{
		{0, 0, "l2s: scale: found 0, expected a number from 1.2e-38 to 8.5e+37"},
		{-1, 0, "l2s: scale: found -1"},
		{math.NaN(), 0, "l2s: scale: found NaN"},
		{math.Inf(1), 0, "l2s: scale: found +Inf"},
		{1, -30, "l2s: soft cap: found -30, expected a number from 1.2e-38 to 8.5e+37, or 0 for none"},
		{1, math.NaN(), "l2s: soft cap: found NaN"},
		{1, 1e39, "l2s: soft cap: found 1e+39"},
	} {
		if _, err := l.Scaled(c.scale, c.cap); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("scale %v, cap %v: found error %v, expected %q", c.scale, c.cap, err, c.want)
		}
	}
	capped, err := l.Scaled(0.5, 30)
	if err != nil {
		t.Fatal(err)
	}
	scaled, err := capped.Scaled(0.25, 0) // in place of the other scale and cap
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name       string
		l          *exact.Layer
		scale, cap float64
		want       float64 // the logit of label 0, w.h + b = 4
	}{
		{"plain", l, 1, 0, 4},
		{"scaled and capped", capped, 0.5, 30, 30 * math.Tanh(2./30)},
		{"scaled", scaled, 0.25, 0, 1},
		{"plain again", scaled.Plain(), 1, 0, 4},
	} {
		var x [1]float64
		err := exact.NewSearcher(c.l).Score(x[:], []float32{1, 1}, exact.Only([]uint32{0}))
		if err != nil || math.Abs(x[0]-c.want) > 1e-15*c.want || c.l.Scale() != c.scale || c.l.SoftCap() != c.cap || c.l.Fingerprint() != l.Fingerprint() {
			t.Errorf("%s: found the logit %v, %v, scale %v, cap %v, expected %v, %v, %v, and the fingerprint of the rows", c.name, x[0], err, c.l.Scale(), c.l.SoftCap(), c.want, c.scale, c.cap)
		}
	}
}

// Labels that are far into a cap have nearly equal final logits, which no threshold may rule out with
// the labels that may not be answered, nor confuse with these.
func TestEditsFarIntoACap(t *testing.T) {
	const labels, dim = 3000, 32
	r := newRand(11)
	random := func(n int) (x []float32) {
		for range n {
			x = append(x, float32(r.NormFloat64()))
		}
		return x
	}
	plain, h := newLayer(t, random(labels*dim), nil, dim), random(dim)
	caps := []float64{0.1, 1, 30, 0.25, 0.5, 1.5}
	if testing.Short() {
		caps = caps[:3]
	}
	for _, softCap := range caps {
		l, err := plain.Scaled(1, softCap)
		if err != nil {
			t.Fatal(err)
		}
		s, logits := exact.NewSearcher(l), make([]float64, labels)
		if err := s.Logits(logits, newQuery(t, h), exact.Labels{}); err != nil {
			t.Fatal(err)
		}
		order := make([]exact.Prediction, labels)
		for id, x := range logits {
			order[id] = exact.Prediction{ID: uint32(id), Logit: x}
		}
		byOrder := func(a, b exact.Prediction) int {
			return cmp.Or(cmp.Compare(b.Logit, a.Logit), cmp.Compare(a.ID, b.ID))
		}
		slices.SortFunc(order, byOrder)
		for _, banned := range []int{0, 1, 1240, 1499, 1500, 1940, 2000, 2460, 2990} {
			set := bitset.New(labels)
			for _, p := range order[:banned] {
				set.Add(p.ID)
			}
			for _, biases := range [][]exact.Bias{nil, {{ID: order[labels-1].ID, Add: 0.1}}, {{ID: order[banned].ID, Add: -0.1}, {ID: order[labels-2].ID, Add: 3}}} {
				slices.SortFunc(biases, func(a, b exact.Bias) int { return cmp.Compare(a.ID, b.ID) })
				want := slices.Clone(order[banned:])
				for i, p := range want {
					for _, b := range biases {
						if b.ID == p.ID {
							want[i].Logit += float64(b.Add)
						}
					}
				}
				slices.SortFunc(want, byOrder)
				for _, k := range []int{1, 40, 300, 2000, 2500} {
					for _, within := range []float64{0, 0.01, 1} {
						most := want[:min(k, len(want))]
						if within > 0 {
							for i, p := range most {
								if p.Logit < most[0].Logit-within {
									most = most[:i]
									break
								}
							}
						}
						top := make([]exact.Prediction, k)
						a, err := s.Search(top, h, exact.Request{Banned: set, Biases: biases, Within: within})
						if err != nil || !slices.Equal(top[:a.Count], most) {
							t.Fatalf("cap %v, %d banned, %d biases, k %d, within %v: found %d labels, %v, expected the %d of the definition", softCap, banned, len(biases), k, within, a.Count, err, len(most))
						}
					}
				}
			}
		}
	}
}
