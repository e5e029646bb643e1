package kernels

import (
	"math"
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s/internal/simd"
	"github.com/learning-to-screen/l2s/internal/simdtest"
)

// Work that takes more than one call of assembly has the same result.
func TestManyCallsAreOne(t *testing.T) {
	const n = 3<<16 + 21 // scores
	r := newRand(5)
	scores, x, ids := fill(r, make([]float32, n)), make([]float64, n), randomIDs(r, n, 1<<30)
	for i := range x {
		x[i] = 3 * r.NormFloat64()
	}
	// The largest at the seams.
	for i, at := range []int{0, 1<<16 - 1, 1 << 16, 2<<16 + 1, n - 1} {
		scores[at] = 100 - float32(i)
		x[at] = 50 - float64(i)
	}
	const long = maxInAssembly + 35 // elements of one row
	row, h := fill(r, make([]float32, long)), fill(r, make([]float32, long))
	var want struct {
		soft, axpy []float64
		lse, ref   float64
		maxID      uint32
		bits       uint32
		selected   []uint32
	}
	compute := func(soft, axpy []float64) (lse, ref float64, id, bits uint32, selected []uint32) {
		selected = make([]uint32, n)
		selected = selected[:SelectAtLeast(selected, scores, 0.5)]
		Axpy(axpy, 0.3, scores)
		return Softmax(soft, x), RefDot(row, h), maxID(ids), maxAbsBits(scores[:n&^15]), selected
	}
	func() {
		defer simd.Set(simd.Generic)()
		want.soft, want.axpy = make([]float64, n), make([]float64, n)
		want.lse, want.ref, want.maxID, want.bits, want.selected = compute(want.soft, want.axpy)
	}()
	simdtest.EachLevel(t, func(t *testing.T) {
		soft, axpy := make([]float64, n), make([]float64, n)
		lse, ref, id, bits, selected := compute(soft, axpy)
		if !sameBits64(soft, want.soft) || !sameBits64(axpy, want.axpy) || lse != want.lse || ref != want.ref {
			t.Error("other numbers than the plain form's")
		}
		if id != want.maxID || bits != want.bits || !slices.Equal(selected, want.selected) {
			t.Error("another selection than the plain form's")
		}
		top, vals := make([]uint32, 20), make([]float32, 20)
		for _, k := range []int{1, 5, 16, 20} {
			TopK(top[:k], vals[:k], scores)
			if !slices.Equal(top[:k], sortedIndices(scores)[:k]) {
				t.Errorf("k %d: got %v", k, top[:k])
			}
			if bound, ok := KthBound(scores, k); ok != (k <= 16) || ok && bound > vals[k-1] {
				t.Errorf("k %d: bound %v, %v; the k-th largest is %v", k, bound, ok, vals[k-1])
			}
		}
		sum := make([]float32, n)
		add(sum, scores)
		if !slices.Equal(sum, scores) {
			t.Error("0 + x is not x")
		}
		checkFloat32(t, Dot(row, h), row, h, 0)
	})
	if math.IsNaN(want.ref) {
		t.Error("no number to compare with")
	}
}

// maxInAssembly is the longest row that assembly takes, where there is any.
const maxInAssembly = 1 << 16
