package kernels

import (
	"math"
	"testing"

	"github.com/learning-to-screen/l2s/internal/ground/simd"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

// ulps returns the distance of a and b in units of b's last place.
func ulps(a, b float64) float64 {
	return math.Abs(a-b) / (math.Nextafter(math.Abs(b), math.Inf(1)) - math.Abs(b))
}

func TestExpIsWithinTwoUlps(t *testing.T) {
	r := newRand(5)
	for range 200000 {
		x := (2*r.Float64() - 1) * 700
		if got, want := Exp(x), math.Exp(x); ulps(got, want) > 2 {
			t.Fatalf("Exp(%v) = %v, want %v", x, got, want)
		}
	}
	for x, want := range map[float64]float64{0: 1, math.Inf(-1): 0, -709: 0, 710: math.Inf(1), math.Inf(1): math.Inf(1)} {
		if got := Exp(x); got != want {
			t.Errorf("Exp(%v) = %v, want %v", x, got, want)
		}
	}
	if got := Exp(math.NaN()); got == got {
		t.Errorf("Exp(NaN) = %v", got)
	}
}

func TestLogIsWithinTwoUlps(t *testing.T) {
	r := newRand(6)
	check := func(x float64) {
		if got, want := Log(x), math.Log(x); ulps(got, want) > 2 {
			t.Fatalf("Log(%v) = %v, want %v", x, got, want)
		}
	}
	for range 200000 {
		check(math.Ldexp(r.Float64(), r.IntN(2000)-1000))
		check(0.5 + r.Float64())
		check(1 + (r.Float64()-0.5)*1e-8)
	}
	check(math.MaxFloat64)
	// The assembly of math.Log is wrong for subnormals.
	if got := Log(5e-324); got != -744.4400719213812 {
		t.Errorf("Log(5e-324) = %v, want -744.4400719213812", got)
	}
	for x, want := range map[float64]float64{1: 0, 0: math.Inf(-1), math.Inf(1): math.Inf(1)} {
		if got := Log(x); got != want {
			t.Errorf("Log(%v) = %v, want %v", x, got, want)
		}
	}
	for _, x := range []float64{-1, math.Inf(-1), math.NaN()} {
		if got := Log(x); got == got {
			t.Errorf("Log(%v) = %v, want NaN", x, got)
		}
	}
}

func TestLogSubExp(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct{ a, b, want float64 }{
		{0, -inf, 0}, {0, 0, -inf}, {-1, 0, -inf}, {inf, 3, inf}, {inf, inf, -inf}, {-inf, -inf, -inf},
		{1000 + math.Log(3), 1000, 1000 + math.Ln2}, {math.Log(5), math.Log(2), math.Log(3)}, {-900, -901, -900 + math.Log(1-math.Exp(-1))},
	} {
		if got := LogSubExp(c.a, c.b); got != c.want && !(math.Abs(got-c.want) < 1e-12) {
			t.Errorf("LogSubExp(%v, %v): found %v, expected %v", c.a, c.b, got, c.want)
		}
	}
}

func TestLogAddExp(t *testing.T) {
	none := math.Inf(-1)
	for _, c := range []struct{ a, b, want float64 }{
		{none, none, none}, {none, 3, 3}, {-1e300, 3, 3}, {5, 5, 5 + math.Ln2}, {1000, 999, 1000 + math.Log1p(math.Exp(-1))},
	} {
		for _, got := range []float64{LogAddExp(c.a, c.b), LogAddExp(c.b, c.a)} {
			if got != c.want && !(math.Abs(got-c.want) < 1e-12) {
				t.Errorf("log(e^%v + e^%v): found %v, expected %v", c.a, c.b, got, c.want)
			}
		}
	}
}

func TestSoftmaxIsEqualBitForBitAndRight(t *testing.T) {
	r := newRand(7)
	for n := 0; n < 200; n++ {
		x := make([]float64, n)
		for i := range x {
			x[i] = r.NormFloat64() * 20
			switch r.IntN(20) {
			case 0:
				x[i] = math.Inf(-1)
			case 1:
				x[i] -= 800 // underflows
			}
		}
		var want []float64
		var wantLSE float64
		for i, level := range simd.Available() {
			restore := simd.Set(level)
			got := make([]float64, n)
			lse := Softmax(got, x)
			if l := LogSumExp(x); l != lse {
				t.Fatalf("%s, n %d: LogSumExp %v, Softmax %v", level, n, l, lse)
			}
			restore()
			if i == 0 {
				want, wantLSE = got, lse
				checkSoftmax(t, got, x, lse)
				continue
			}
			if lse != wantLSE {
				t.Fatalf("%s, n %d: log-sum-exp %x, want %x", level, n, lse, wantLSE)
			}
			for j := range got {
				if got[j] != want[j] {
					t.Fatalf("%s, n %d, element %d: %x, want %x", level, n, j, got[j], want[j])
				}
			}
		}
	}
}

func checkSoftmax(t *testing.T, p, x []float64, lse float64) {
	t.Helper()
	m, sum := math.Inf(-1), 0.0
	for _, v := range x {
		m = math.Max(m, v)
	}
	for _, v := range x {
		if !math.IsInf(m, -1) {
			sum += math.Exp(v - m)
		}
	}
	if want := m + math.Log(sum); sum > 0 && math.Abs(lse-want) > 1e-13*math.Max(1, math.Abs(want)) || sum == 0 && !math.IsInf(lse, -1) {
		t.Fatalf("n %d: log-sum-exp %v, want %v", len(x), lse, want)
	}
	for i, v := range x {
		want := 0.0
		if sum > 0 {
			want = math.Exp(v-m) / sum
		}
		if math.Abs(p[i]-want) > 1e-14*want+1e-300 {
			t.Fatalf("n %d, element %d: %v, want %v", len(x), i, p[i], want)
		}
	}
}

func TestSoftmaxInPlace(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) {
		x := []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
		want := make([]float64, len(x))
		Softmax(want, x)
		Softmax(x, x)
		for i := range x {
			if x[i] != want[i] {
				t.Errorf("element %d: %v in place, %v apart", i, x[i], want[i])
			}
		}
	})
}
