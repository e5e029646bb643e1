package kernels

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/simd"
)

// sameBits64 compares bits, but takes all NaNs for one.
func sameBits64(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool {
		return math.Float64bits(x) == math.Float64bits(y) || x != x && y != y
	})
}

// checkKernels compares every kernel at every level with its plain form: bit
// for bit, or within the rounding of float32 where the order of a sum is free.
func checkKernels(t *rapid.T) {
	d := rapid.IntRange(1, 150).Draw(t, "dim")
	n := rapid.IntRange(1, 90).Draw(t, "rows")
	offset := rapid.IntRange(0, 15).Draw(t, "offset")
	exponent := rapid.SampledFrom([]int{0, 0, -60, 12, 30}).Draw(t, "exponent")
	r := newRand(rapid.Uint64().Draw(t, "seed"))
	numbers := func(n int) []float32 {
		x := make([]float32, offset+n)[offset:]
		for i := range x {
			x[i] = float32(math.Ldexp(r.NormFloat64(), exponent))
			if r.IntN(20) == 0 {
				x[i] = 0
			}
		}
		return x
	}
	rows, bias, h := numbers(n*d), numbers(n), numbers(d)
	ids := randomIDs(r, r.IntN(2*n), n)
	x := make([]float64, n)
	for i := range x {
		x[i] = math.Ldexp(r.NormFloat64(), r.IntN(12))
		if r.IntN(10) == 0 {
			x[i] = math.Inf(-1)
		}
	}
	threshold := bias[r.IntN(n)]
	k := rapid.IntRange(1, min(n, 16)).Draw(t, "k")
	m, err := NewInt8Rows(alignedBytes(n*Int8Stride(d)), Float32Rows(rows, d), bias)
	if err != nil {
		t.Fatal(err)
	}
	m4, err := NewInt4Rows(alignedBytes(n*Int4Stride(d)), Float32Rows(rows, d), bias)
	if err != nil {
		t.Fatal(err)
	}

	// All that must have the same bits, in one list.
	type results struct {
		logits, gathered, axpy, soft, sums []float64
		bounds                             []float32
		ids, top                           []uint32
		vals                               []float32
		fit                                Fit
	}
	compute := func() (o results) {
		o.logits, o.gathered, o.axpy, o.soft = make([]float64, n), make([]float64, len(ids)), make([]float64, d), make([]float64, n)
		RefScan(o.logits, rows, bias, h)
		RefGatherDot(o.gathered, rows, bias, ids, h)
		for i := range o.axpy {
			o.axpy[i] = float64(i) / 3
		}
		Axpy(o.axpy, threshold, h)
		o.sums = append(o.sums, Softmax(o.soft, x), LogSumExp(x), RefDot(rows[:d], h))
		o.ids = make([]uint32, n)
		o.ids = o.ids[:SelectAtLeast(o.ids, bias, threshold)]
		o.top, o.vals = make([]uint32, k), make([]float32, k)
		TopK(o.top, o.vals, bias)
		if bound, ok := KthBound(bias, k); ok {
			o.sums = append(o.sums, float64(bound))
		}
		v := NewInt8Vector(d)
		if o.fit = v.Set(h); o.fit != Certified {
			return o
		}
		o.bounds = make([]float32, 4*n+2*len(ids))
		at := o.bounds
		next := func(n int) (x []float32) { x, at = at[:n], at[n:]; return x }
		m.Bounds(next(n), next(n), v)
		m4.Bounds(next(n), next(n), v)
		m.GatherBounds(next(len(ids)), next(len(ids)), ids, v)
		return o
	}
	var want results
	func() {
		defer simd.Set(simd.Generic)()
		want = compute()
	}()
	near := func(name string, level simd.Level, got float32, row int, b float32) {
		exact, magnitude := exactDot(rows[row*d:(row+1)*d], h)
		exact, magnitude = exact+float64(b), magnitude+math.Abs(float64(b))
		if tolerance := float64(d+2)*0x1p-24*magnitude + 0x1p-140; math.Abs(float64(got)-exact) > tolerance {
			t.Fatalf("%s, %s of row %d: got %v, want %v +- %v", level, name, row, got, exact, tolerance)
		}
	}
	for _, level := range simd.Available() {
		func() {
			defer simd.Set(level)()
			got := compute()
			if !sameBits64(got.logits, want.logits) || !sameBits64(got.gathered, want.gathered) || !sameBits64(got.axpy, want.axpy) {
				t.Fatalf("%s: the reference arithmetic has other bits", level)
			}
			if !sameBits64(got.soft, want.soft) || !sameBits64(got.sums, want.sums) {
				t.Fatalf("%s: the softmax, a sum or a bound has other bits: %v, want %v", level, got.sums, want.sums)
			}
			if !slices.Equal(got.ids, want.ids) || !slices.Equal(got.top, want.top) || !slices.Equal(got.vals, want.vals) {
				t.Fatalf("%s: another selection", level)
			}
			if got.fit != want.fit || !slices.Equal(got.bounds, want.bounds) {
				t.Fatalf("%s: other bounds", level)
			}
			dst, gathered := make([]float32, n), make([]float32, len(ids))
			Scan(dst, rows, bias, h)
			for i, s := range dst {
				near("the score", level, s, i, bias[i])
			}
			GatherDot(gathered, rows, bias, ids, h)
			for j, id := range ids {
				near("the gathered score", level, gathered[j], int(id), bias[id])
			}
			i, s := ArgmaxDot(rows, h)
			near("the largest score", level, s, i, 0)
			near("the product", level, Dot(rows[:d], h), 0, 0)
		}()
	}
}

func TestKernelsAreTheirPlainForms(t *testing.T) { rapid.Check(t, checkKernels) }

func FuzzKernelsAreTheirPlainForms(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkKernels)) }
