//go:build amd64 && !purego

package kernels

import "testing"

// A goroutine inside assembly stops neither for the scheduler nor for the
// garbage collector. No call reads more than 256 KiB of a matrix, but for the
// blocks of 16 rows that the kernels of codes take: 1 MiB of the longest rows.
// At 10 GB/s, a slow memory, that is 26 and 105 microseconds.
func TestCallsAreBounded(t *testing.T) {
	if maxCallDim != maxInAssembly {
		t.Errorf("rows of up to %d elements, want %d", maxCallDim, maxInAssembly)
	}
	for d := 1; d <= maxCallDim; d++ {
		if n := callRows(4 * d); n < 1 || n*4*d > 256<<10 || n > 4096 {
			t.Fatalf("%d rows of %d elements in one call", n, d)
		}
		if d > MaxInt8Dim {
			continue
		}
		for _, stride := range []int{Int8Stride(d), Int4Stride(d)} {
			n := callBlocks(stride)
			if n < 16 || n&15 != 0 || n > 4096 || n*stride > 256<<10 && (n > 16 || n*stride > 1<<20+1<<12) {
				t.Fatalf("%d rows of %d bytes in one call", n, stride)
			}
		}
	}
}
