package kernels

import (
	"math"
	"testing"

	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

func TestSumExpCentres(t *testing.T) {
	inf := float32(math.Inf(-1))
	for _, c := range []struct {
		name         string
		lower, upper []float32
		scale        float32
		m            float32
		sum          float64
	}{
		{"none", nil, nil, 1, inf, 0},
		{"all impossible", []float32{inf, inf}, []float32{inf, inf}, 1, inf, 0},
		{"one", []float32{2}, []float32{4}, 1, 3, 1},
		{"equal ones", []float32{1, 2, 3}, []float32{3, 2, 1}, 7, 2, 3},
		{"one that is impossible", []float32{5, inf, 5}, []float32{5, inf, 5}, 1, 5, 2},
		{"one far below", []float32{100, 13}, []float32{100, 13}, 1, 100, 1},
		{"the least scale", []float32{5, inf, 4}, []float32{5, inf, 4}, math.SmallestNonzeroFloat32, 5, 2},
		{"the largest scale", []float32{5, inf, 4}, []float32{5, inf, 4}, math.MaxFloat32, 5, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			simdtest.EachLevel(t, func(t *testing.T) {
				if m, sum := SumExpCentres(c.lower, c.upper, c.scale); m != c.m || sum != c.sum {
					t.Errorf("found %v and %v, expected %v and %v", m, sum, c.m, c.sum)
				}
			})
		})
	}
}

// Every term is within its bound, alone and in sums of all lengths around blocks.
func TestSumExpCentresIsWithinItsBound(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) {
		r := newRand(11)
		bound := func(v, term float64) float64 {
			if v < -86 {
				return term
			}
			return (math.Abs(v) + 8) * 0x1p-23 * term
		}
		for range 20000 {
			// Two terms, the first of which is 1 exactly.
			v := -90 * r.Float64()
			scale := float32(math.Exp(r.NormFloat64()))
			c := float32(v / float64(scale))
			_, sum := SumExpCentres([]float32{0, c}, []float32{0, c}, scale)
			v = float64(c) * float64(scale)
			if want := math.Exp(v); math.Abs(sum-1-want) > bound(v, want)+1e-15 {
				t.Fatalf("e^%v: found %v, expected %v", v, sum-1, want)
			}
		}
		for n := range 100 {
			lower, upper := make([]float32, n), make([]float32, n)
			largest := math.Inf(-1)
			for i := range lower {
				x, width := 10*r.NormFloat64(), r.Float64()
				lower[i], upper[i] = float32(x-width), float32(x+width)
				largest = max(largest, float64(centre(lower[i], upper[i])))
			}
			want, off := 0.0, 0.0
			for i := range lower {
				v := (float64(centre(lower[i], upper[i])) - largest) * 0.75
				want += math.Exp(v)
				off += bound(v, math.Exp(v))
			}
			if m, sum := SumExpCentres(lower, upper, 0.75); float64(m) != largest || math.Abs(sum-want) > off {
				t.Fatalf("%d centres: found %v and %v, expected %v and %v", n, m, sum, largest, want)
			}
		}
	})
}
