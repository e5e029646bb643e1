package kernels

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/learning-to-screen/l2s/internal/simdtest"
)

// dims are the vector lengths that the tests walk: every remainder of every
// unrolled loop, and some that are large.
func dims() []int {
	var d []int
	for n := 1; n <= 300; n++ {
		d = append(d, n)
	}
	return append(d, 511, 512, 513, 1000, 1500, 2049)
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x6c3273)) }

func fill(r *rand.Rand, x []float32) []float32 {
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

func randomIDs(r *rand.Rand, n, rows int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(r.IntN(rows))
	}
	return ids
}

// exactDot returns the inner product and the sum of magnitudes in float64.
func exactDot(x, y []float32) (sum, magnitude float64) {
	for i := range x {
		p := float64(x[i]) * float64(y[i])
		sum += p
		magnitude += math.Abs(p)
	}
	return sum, magnitude
}

// checkFloat32 fails unless got is the product of x and y as float32 sums in
// any order give it.
func checkFloat32(t *testing.T, got float32, x, y []float32, bias float32) {
	t.Helper()
	want, magnitude := exactDot(x, y)
	want += float64(bias)
	magnitude += math.Abs(float64(bias))
	if tol := float64(len(x)+2) * 0x1p-24 * magnitude; math.Abs(float64(got)-want) > tol {
		t.Errorf("dim %d: got %v, want %v +- %v", len(x), got, want, tol)
	}
}

func TestFloat32KernelsWithinRounding(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) {
		r := newRand(1)
		for _, d := range dims() {
			n := 1 + r.IntN(11)
			rows, h, bias := fill(r, make([]float32, n*d)), fill(r, make([]float32, d)), fill(r, make([]float32, n))
			checkFloat32(t, Dot(rows[:d], h), rows[:d], h, 0)
			dst := make([]float32, n)
			Scan(dst, rows, bias, h)
			best := 0
			for i := range dst {
				checkFloat32(t, dst[i], rows[i*d:(i+1)*d], h, bias[i])
			}
			Scan(dst, rows, nil, h)
			for i := range dst {
				if dst[i] > dst[best] {
					best = i
				}
			}
			if i, s := ArgmaxDot(rows, h); i != best || s != dst[best] {
				t.Errorf("dim %d, %d rows: argmax %d (%v), want %d (%v)", d, n, i, s, best, dst[best])
			}
			ids := randomIDs(r, r.IntN(12), n)
			out := make([]float32, len(ids))
			GatherDot(out, rows, bias, ids, h)
			for j, id := range ids {
				checkFloat32(t, out[j], rows[int(id)*d:(int(id)+1)*d], h, bias[id])
			}
		}
	})
}

func TestScanOfManyShortRows(t *testing.T) {
	// Rows of a kilobyte at most, more of them than the second-level cache
	// holds, are read another way.
	simdtest.EachLevel(t, func(t *testing.T) {
		r := newRand(12)
		for _, d := range []int{1, 7, 64, 200, 256} {
			n := (2<<20)/(4*d) + 5
			rows, h, bias, dst := fill(r, make([]float32, n*d)), fill(r, make([]float32, d)), fill(r, make([]float32, n)), make([]float32, n)
			Scan(dst, rows, bias, h)
			for i := range dst {
				checkFloat32(t, dst[i], rows[i*d:(i+1)*d], h, bias[i])
			}
		}
	})
}

func TestArgmaxTiesGoToTheLowerRow(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) {
		for n := 1; n <= 20; n++ {
			for first := range n {
				// Rows from first on are equal and largest.
				d := 19
				rows, h := make([]float32, n*d), make([]float32, d)
				for j := range h {
					h[j] = 1
				}
				for i := first; i < n; i++ {
					rows[i*d] = 1
				}
				if i, s := ArgmaxDot(rows, h); i != first || s != 1 {
					t.Errorf("%d rows, ties from %d: got %d (%v)", n, first, i, s)
				}
			}
		}
	})
}

func TestReferenceArithmeticIsEqualBitForBit(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) {
		r := newRand(2)
		for _, d := range dims() {
			n := 1 + r.IntN(9)
			rows, h, bias := fill(r, make([]float32, n*d)), fill(r, make([]float32, d)), fill(r, make([]float32, n))
			// Magnitudes far apart make every change of order visible.
			for i := range rows {
				rows[i] = float32(math.Ldexp(float64(rows[i]), r.IntN(60)-30))
			}
			if got, want := RefDot(rows[:d], h), refDotGeneric(rows[:d], h); got != want {
				t.Errorf("dim %d: RefDot %x, want %x", d, got, want)
			}
			got := make([]float64, n)
			RefScan(got, rows, bias, h)
			for i := range got {
				if want := refDotGeneric(rows[i*d:(i+1)*d], h) + float64(bias[i]); got[i] != want {
					t.Errorf("dim %d, row %d: RefScan %x, want %x", d, i, got[i], want)
				}
			}
			ids := randomIDs(r, r.IntN(10), n)
			got = make([]float64, len(ids))
			RefGatherDot(got, rows, bias, ids, h)
			for j, id := range ids {
				if want := refDotGeneric(rows[int(id)*d:(int(id)+1)*d], h) + float64(bias[id]); got[j] != want {
					t.Errorf("dim %d, id %d: RefGatherDot %x, want %x", d, id, got[j], want)
				}
			}
		}
	})
}

func TestReferenceOrderIsAsDocumented(t *testing.T) {
	// 2^60 in lane 0 and -2^60 in lane 16 cancel before the 1 of lane 1
	// joins them; summed in index order the 1 would be lost.
	x, y := make([]float32, 33), make([]float32, 33)
	for i := range y {
		y[i] = 1
	}
	x[0], x[1], x[16] = 0x1p60, 1, -0x1p60
	simdtest.EachLevel(t, func(t *testing.T) {
		if got := RefDot(x, y); got != 1 {
			t.Errorf("got %v, want 1", got)
		}
	})
}

func TestAxpyIsEqualBitForBit(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) {
		r := newRand(3)
		for _, n := range append(dims(), 0) {
			x := fill(r, make([]float32, n))
			got, want := make([]float64, n), make([]float64, n)
			for i := range got {
				got[i] = r.NormFloat64() * math.Ldexp(1, r.IntN(40)-20)
				want[i] = got[i]
			}
			a := float32(r.NormFloat64())
			Axpy(got, a, x)
			axpyGeneric(want, a, x)
			for i := range got {
				if got[i] != want[i] {
					t.Fatalf("length %d, element %d: %x, want %x", n, i, got[i], want[i])
				}
			}
		}
	})
}
