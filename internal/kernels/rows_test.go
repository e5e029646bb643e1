package kernels

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/float16"
	"github.com/learning-to-screen/l2s/internal/simd"
	"github.com/learning-to-screen/l2s/internal/simdtest"
)

// Every float16 and bfloat16 widens to the float32 that its definition gives.
func TestElementsWidenExactly(t *testing.T) {
	all := make([]uint16, 1<<16)
	for i := range all {
		all[i] = uint16(i)
	}
	simdtest.EachLevel(t, func(t *testing.T) { testWiden(t, all) })
}

func testWiden(t *testing.T, all []uint16) {
	half, brain := make([]float32, len(all)), make([]float32, len(all))
	Float16Rows(all, len(all)).Widen(half, 0)
	BFloat16Rows(all, len(all)).Widen(brain, 0)
	for i, x := range all {
		sign := 1.0
		if x>>15 == 1 {
			sign = -1
		}
		exponent, fraction := int(x>>10&31), float64(x&1023)
		want := sign * math.Ldexp(fraction, -24)
		switch {
		case exponent == 31 && fraction != 0:
			want = math.NaN()
		case exponent == 31:
			want = math.Inf(int(sign))
		case exponent > 0:
			want = sign * math.Ldexp(1+fraction/1024, exponent-15)
		}
		same := func(got float32, want float64) bool {
			return math.Float64bits(float64(got)) == math.Float64bits(want) || got != got && want != want
		}
		if !same(half[i], want) {
			t.Fatalf("float16 %#04x: got %v, want %v", x, half[i], want)
		}
		if want := math.Float32frombits(uint32(x) << 16); !same(brain[i], float64(want)) {
			t.Fatalf("bfloat16 %#04x: got %v, want %v", x, brain[i], want)
		}
		// The bits are the same as in plain Go, of NaNs too.
		if math.Float32bits(half[i]) != math.Float32bits(float16.Widen(x)) || math.Float32bits(brain[i]) != uint32(x)<<16 {
			t.Fatalf("%#04x: other bits than plain Go's", x)
		}
	}
}

// Results from rows of any type have the same bits as results from the same rows widened, at every
// level.
func TestRowsAreTheirWidenedRows(t *testing.T) { rapid.Check(t, checkRowsAreWidened) }

func FuzzRowsAreTheirWidenedRows(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkRowsAreWidened)) }

func checkRowsAreWidened(t *rapid.T) {
	r := newRand(rapid.Uint64().Draw(t, "seed"))
	n, d := rapid.IntRange(1, 40).Draw(t, "rows"), rapid.IntRange(1, 600).Draw(t, "dim")
	offset, element := rapid.IntRange(0, 15).Draw(t, "offset"), rapid.SampledFrom(elements).Draw(t, "element")
	o := newOperands(r, n, d, offset, 0, element)
	widened := *o
	widened.rows = Float32Rows(o.wide, o.d)
	for _, level := range simd.Available() {
		restore := simd.Set(level)
		for _, k := range sameOnEveryLevel {
			if got, want := k.got(o), k.got(&widened); !sameBits64(got, want) {
				t.Fatalf("%s of %s, level %s: got %v, want %v", k.name, element, level, got, want)
			}
		}
		restore()
	}
}

// Rows of more than one call of a leaf, and rows that are too long for leaves.
func TestManyRowsAndLongRows(t *testing.T) {
	r := newRand(4)
	for _, e := range elements {
		for _, shape := range [][2]int{{1400, 200}, {5, maxCallDim}, {2, maxCallDim + 35}} {
			checkKernels(t, newOperands(r, shape[0], shape[1], 3, 0, e))
		}
	}
}

// The first element that is not finite is found at any place.
func TestNotFiniteIsFound(t *testing.T) {
	const n, d = 7, 301
	simdtest.EachLevel(t, func(t *testing.T) {
		for at := range n * d {
			wide, half, brain := make([]float32, n*d), make([]uint16, n*d), make([]uint16, n*d)
			wide[at], half[at], brain[at] = float32(math.Inf(-1)), 0x7e00, 0xff80
			if at+5 < n*d {
				wide[at+5], half[at+5], brain[at+5] = float32(math.NaN()), 0x7c00, 0x7f80
			}
			for _, rows := range []Rows{Float32Rows(wide, d), Float16Rows(half, d), BFloat16Rows(brain, d)} {
				if row, column, found := FirstNotFinite(rows); !found || row != at/d || column != at%d {
					t.Fatalf("%s: element %d: found %v at row %d, column %d", rows.Element(), at, found, row, column)
				}
			}
		}
	})
}
