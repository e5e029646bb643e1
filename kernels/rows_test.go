package kernels

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/simd"
)

// Every float16 and bfloat16 widens to the float32 that its definition gives.
func TestElementsWidenExactly(t *testing.T) {
	all := make([]uint16, 1<<16)
	for i := range all {
		all[i] = uint16(i)
	}
	half, brain := make([]float32, 1<<16), make([]float32, 1<<16)
	Float16Rows(all, 1<<16).Widen(half, 0)
	BFloat16Rows(all, 1<<16).Widen(brain, 0)
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
	}
}

// drawRows draws a matrix of each element type, and the same widened.
func drawRows(t *rapid.T, n, d int) (rows Rows, wide []float32) {
	r := newRand(rapid.Uint64().Draw(t, "seed"))
	offset := rapid.IntRange(0, 7).Draw(t, "offset")
	bits := make([]uint16, offset+n*d)[offset:]
	switch element := rapid.SampledFrom([]Element{Float32, Float16, BFloat16}).Draw(t, "element"); element {
	case Float16:
		for i := range bits {
			if bits[i] = uint16(r.Uint32()); bits[i]>>10&31 == 31 {
				bits[i] &^= 1 << 14 // finite
			}
		}
		rows = Float16Rows(bits, d)
	case BFloat16:
		for i := range bits {
			bits[i] = uint16(math.Float32bits(float32(r.NormFloat64())) >> 16)
		}
		rows = BFloat16Rows(bits, d)
	default:
		x := make([]float32, offset+n*d)[offset:]
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		rows = Float32Rows(x, d)
	}
	wide = make([]float32, n*d)
	for i := range n {
		rows.Widen(wide[i*d:(i+1)*d], i)
	}
	return rows, wide
}

// What is computed from rows of any type has the bits of what is computed from
// the same rows widened, at every level.
func TestRowsAreTheirWidenedRows(t *testing.T) { rapid.Check(t, checkRowsAreWidened) }

func FuzzRowsAreTheirWidenedRows(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkRowsAreWidened)) }

func checkRowsAreWidened(t *rapid.T) {
	n, d := rapid.IntRange(1, 40).Draw(t, "rows"), rapid.IntRange(1, 600).Draw(t, "dim")
	rows, wide := drawRows(t, n, d)
	r := newRand(rapid.Uint64().Draw(t, "other seed"))
	h, bias := make([]float32, d), make([]float32, n)
	for _, x := range [][]float32{h, bias} {
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
	}
	ids := randomIDs(r, r.IntN(2*n), n)
	first := r.IntN(n)
	want, part, gathered := make([]float64, n), make([]float64, n-first), make([]float64, len(ids))
	for i := range want {
		want[i] = refDotGeneric(wide[i*d:(i+1)*d], h) + float64(bias[i])
	}
	for _, level := range simd.Available() {
		func() {
			defer simd.Set(level)()
			got := make([]float64, n)
			rows.RefScan(got, bias, h)
			if !sameBits64(got, want) {
				t.Fatalf("%s, %s: RefScan: got %v, want %v", level, rows.Element(), got, want)
			}
			rows.Part(first, n).RefScan(part, bias[first:], h)
			if !sameBits64(part, want[first:]) {
				t.Fatalf("%s, %s: RefScan of a part: got %v, want %v", level, rows.Element(), part, want[first:])
			}
			rows.RefGatherDot(gathered, bias, ids, h)
			for j, id := range ids {
				if math.Float64bits(gathered[j]) != math.Float64bits(want[id]) {
					t.Fatalf("%s, %s: RefGatherDot of row %d: got %v, want %v", level, rows.Element(), id, gathered[j], want[id])
				}
			}
			if i, j, found := rows.NotFinite(); found {
				t.Fatalf("%s, %s: found row %d, column %d not finite", level, rows.Element(), i, j)
			}
		}()
	}
}

// The first element that is not finite is found, wherever it is.
func TestNotFiniteIsFound(t *testing.T) {
	const n, d = 7, 301
	for _, level := range simd.Available() {
		defer simd.Set(level)()
		for at := range n * d {
			wide, half, brain := make([]float32, n*d), make([]uint16, n*d), make([]uint16, n*d)
			wide[at], half[at], brain[at] = float32(math.Inf(-1)), 0x7e00, 0xff80
			if at+5 < n*d {
				wide[at+5], half[at+5], brain[at+5] = float32(math.NaN()), 0x7c00, 0x7f80
			}
			for _, rows := range []Rows{Float32Rows(wide, d), Float16Rows(half, d), BFloat16Rows(brain, d)} {
				if row, column, found := rows.NotFinite(); !found || row != at/d || column != at%d {
					t.Fatalf("%s, %s: element %d: found %v at row %d, column %d", level, rows.Element(), at, found, row, column)
				}
			}
		}
	}
}
