package floats

import (
	"testing"

	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

// The tables of internal/codes/kernels have the other tests of these loops.
func TestNothingIsAllocated(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) {
		n := simdtest.AllocsPerRun(10, func() {
			var h [40]float32
			var rows [12 * 40]float32
			var dst [12]float32
			var grad [40]float64
			ids := [5]uint32{1, 2, 3, 4, 5}
			var top [5]uint32
			var vals [5]float32
			Scan(dst[:], rows[:], dst[:], h[:])
			GatherDot(dst[:5], rows[:], nil, ids[:], h[:])
			ArgmaxDot(rows[:], h[:])
			Dot(h[:], h[:])
			Axpy(grad[:], 1, h[:])
			TopK(top[:], vals[:], dst[:])
		})
		if n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}
