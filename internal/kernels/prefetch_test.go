package kernels

import (
	"testing"

	"github.com/learning-to-screen/l2s/internal/simdtest"
)

// Rows of each type are prefetched, up to the last, and no rows without ids.
func TestPrefetchOfRowsChangesNothing(t *testing.T) {
	x := fill(newRand(4), make([]float32, 40*7))
	was := append([]float32(nil), x...)
	narrow := make([]uint16, 40*7)
	simdtest.EachLevel(t, func(t *testing.T) {
		for _, m := range []Rows{{}, Float32Rows(nil, 7), Float32Rows(x, 7), Float16Rows(narrow, 7), BFloat16Rows(narrow, 7), QuantisedRows(make([]byte, 40*34), Q8_0, 32)} {
			for _, ids := range [][]uint32{nil, {0}, {39, 3}, make([]uint32, 17)} {
				Prefetch(m, ids)
				if n := simdtest.AllocsPerRun(10, func() { Prefetch(m, ids) }); n != 0 {
					t.Errorf("found %v allocations, expected 0", n)
				}
			}
		}
		for i := range x {
			if x[i] != was[i] {
				t.Fatalf("element %d: found %v, expected %v", i, x[i], was[i])
			}
		}
	})
}
