package kernels

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func exp1(x float64) float64 {
	xs := [cellLanes]float64{x}
	expNeg(&xs)
	return xs[0]
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

func TestExpNeg(t *testing.T) {
	const n = 400000
	worst := 0.0
	for i := range n + 1 {
		x := -expBound + 2*expBound*float64(i)/n
		worst = max(worst, math.Abs(exp1(x)*math.Exp(x)-1))
	}
	if worst > 2e-11 {
		t.Errorf("relative error %g on [-40, 40], want below 2e-11", worst)
	}
	t.Logf("largest relative error %.2g", worst)

	if exp1(0) != 1 {
		t.Errorf("e^0 = %v", exp1(0))
	}
	for _, x := range []float64{40, 41, 1e30, math.MaxFloat64, math.Inf(1)} {
		if exp1(x) != exp1(40) || exp1(-x) != exp1(-40) {
			t.Errorf("e^-x at x = %v and its negative: %v and %v, want the values at the bounds", x, exp1(x), exp1(-x))
		}
	}
	if e := exp1(float64(float32(math.NaN()))); e == e {
		t.Errorf("e^NaN = %v", e)
	}
}

// TestCell compares with the definition in float64. What may differ is the
// rounding of c and h to float32: half a unit in the last place of the result,
// twice that to have room for an error of 2e-11 at the boundary.
func TestCell(t *testing.T) {
	gate := rapid.OneOf(
		rapid.Float32Range(-12, 12),
		rapid.Float32Range(-1e-3, 1e-3),
		rapid.SampledFrom([]float32{0, float32(math.Copysign(0, -1)), 40, -40, 1e6, -1e6, math.MaxFloat32, -math.MaxFloat32,
			float32(math.Inf(1)), float32(math.Inf(-1))}),
	)
	rapid.Check(t, func(t *rapid.T) {
		gates := rapid.SliceOfN(gate, 4, 4).Draw(t, "gates")
		before := rapid.Float32Range(-50, 50).Draw(t, "c")
		c, h := []float32{before}, []float32{0}
		LSTMCell(c, h, gates)

		i, f, g, o := float64(gates[0]), float64(gates[1]), float64(gates[2]), float64(gates[3])
		wantC := sigmoid(f)*float64(before) + sigmoid(i)*math.Tanh(g)
		wantH := sigmoid(o) * math.Tanh(wantC)
		const eps = 0x1p-24
		if err := math.Abs(float64(c[0]) - wantC); err > 2*eps*max(1, math.Abs(wantC)) {
			t.Fatalf("c = %v, want %v", c[0], wantC)
		}
		if err := math.Abs(float64(h[0]) - wantH); err > 2*eps {
			t.Fatalf("h = %v, want %v", h[0], wantH)
		}
	})
}

// TestCellElements: element j depends on its own gates alone, and the gates
// lie in the order i, f, g, o.
func TestCellElements(t *testing.T) {
	c, h := []float32{1, 2}, []float32{0, 0}
	gates := []float32{
		-100, 100, // i: closed, open
		100, -100, // f: keep, forget
		1, 1, // g
		100, -100, // o: open, closed
	}
	LSTMCell(c, h, gates)
	if c[0] != 1 || c[1] != float32(math.Tanh(1)) {
		t.Errorf("c = %v, want [1 tanh(1)]", c)
	}
	if h[0] != float32(math.Tanh(1)) || h[1] > 1e-17 {
		t.Errorf("h = %v, want [tanh(1) 0]", h)
	}
}

// TestTanh: within a rounding of float32, and of float64 near 0.
func TestTanh(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.SliceOfN(rapid.OneOf(
			rapid.Float32Range(-20, 20), rapid.Float32Range(-1e-3, 1e-3),
			rapid.SampledFrom([]float32{0, 1e30, -1e30, float32(math.Inf(1)), float32(math.Inf(-1))}),
		), 1, 9).Draw(t, "x")
		got := slices.Clone(x)
		Tanh(got)
		for i, v := range x {
			// An exponential is off by 2e-11 of itself, and that much of 1
			// remains where tanh is small.
			if want := math.Tanh(float64(v)); math.Abs(float64(got[i])-want) > 0x1p-24*math.Abs(want)+4e-11 {
				t.Fatalf("tanh(%v) = %v, want %v", v, got[i], want)
			}
		}
	})
	x := []float32{float32(math.NaN())}
	if Tanh(x); x[0] == x[0] {
		t.Errorf("tanh(NaN) = %v", x[0])
	}
}
