package kernels

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/ground/float16"
	"github.com/learning-to-screen/l2s/internal/ground/simd"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

// Every float16 and bfloat16 widens to the same bits on every level, of NaNs too.
func TestElementsWidenExactly(t *testing.T) {
	all := make([]uint16, 1<<16)
	for i := range all {
		all[i] = uint16(i)
	}
	half, brain := make([]float32, len(all)), make([]float32, len(all))
	simdtest.EachLevel(t, func(t *testing.T) {
		Float16Rows(all, len(all)).Widen(half, 0)
		BFloat16Rows(all, len(all)).Widen(brain, 0)
		for i, x := range all {
			if math.Float32bits(half[i]) != math.Float32bits(float16.Widen(x)) || math.Float32bits(brain[i]) != uint32(x)<<16 {
				t.Fatalf("%#04x: found %v and %v", x, half[i], brain[i])
			}
		}
	})
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
		shapes := [][2]int{{5, MaxCallDim}, {1400, 200}, {2, MaxCallDim + 35}}
		if testing.Short() && e != Float32 && e != Q8_0 { // rows are divided into calls in one way for all elements
			shapes = shapes[:1]
		}
		for _, shape := range shapes {
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
