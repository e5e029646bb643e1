package tail

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s/internal/search/tail"
	"github.com/learning-to-screen/l2s/internal/tests/synthetic"
	"pgregory.net/rapid"
)

// The fit is the minimum of the sum of squares: no step away from it is better.
func TestRidgeIsTheLeastSumOfSquares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dim, n := rapid.IntRange(1, 9).Draw(t, "dim"), rapid.IntRange(1, 30).Draw(t, "contexts")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		ridge := rapid.SampledFrom([]float64{0.01, 1, 50}).Draw(t, "ridge")
		hs, ys := make([][]float32, n), make([]float64, n)
		for i := range hs {
			hs[i] = make([]float32, dim)
			for j := range hs[i] {
				hs[i][j] = float32(r.NormFloat64())
			}
			ys[i] = 3 + r.NormFloat64()
		}
		c := newRegression(slices.Concat(hs...), ys, n, dim).solve(ridge)
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

func TestConformalWidths(t *testing.T) {
	levels := []float64{0.5, 0.8, 0.9}
	for _, c := range []struct {
		name   string
		errors [][]float64
		want   []float32
	}{
		{"none", [][]float64{nil}, []float32{inf32, inf32, inf32}},
		{"one", [][]float64{{2}}, []float32{2, inf32, inf32}},
		{"four: the third, the fourth, none", [][]float64{{4, 1, 3, 2}}, []float32{3, 4, inf32}},
		{"nine", [][]float64{{9, 8, 7, 6, 5, 4, 3, 2, 1}}, []float32{5, 8, 9}},
		{"few ones together", [][]float64{{1, 2, 3, 4}, nil, {5, 6, 7, 8, 9}}, []float32{3, 4, 9, 9, 9, 9, 7, 9, 9}},
		{"never more than at a higher level", [][]float64{{100, 100, 100, 100}, {1, 1, 1, 1, 1}}, []float32{100, 100, 100, 1, 1, 100}},
	} {
		got := make([]float32, len(c.want))
		conformal(got, c.errors, levels)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: found %v, want %v", c.name, got, c.want)
		}
	}
	if w := atLeast(0.1); float64(w) < 0.1 || float64(w) > 0.1+1e-7 {
		t.Errorf("found %v for 0.1", w)
	}
}

var inf32 = float32(math.Inf(1))

// The directions are orthogonal, and the squares along them sum to about the variance of the logits
// over the labels if their number is the dimension.
func TestDirectionsGiveTheVarianceOfLogits(t *testing.T) {
	d := synthetic.Structured(100, 8, 6, 50, 7)
	all, err := directions(context.Background(), d.Exact, 8, 1, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	off := 0.0
	for i := range 50 {
		h := d.Context(i)
		x := make([]float64, d.Exact.Labels())
		d.Exact.Weights().RefScan(x, nil, h)
		mean, variance := 0.0, 0.0
		for _, v := range x {
			mean += v / float64(len(x))
		}
		for _, v := range x {
			variance += (v - mean) * (v - mean) / float64(len(x))
		}
		_, along := tail.SquaresOf(all, h)
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
				norm, _ := tail.SquaresOf(v, v)
				norms *= math.Sqrt(norm)
			}
			if math.Abs(product) > 1e-3*norms {
				t.Errorf("directions %d and %d: product %v of norms %v, want 0", i, j, product, norms)
			}
		}
	}
}
