//go:build amd64 && !purego

package kernels

import (
	"testing"

	"github.com/learning-to-screen/l2s/internal/simd"
	"github.com/learning-to-screen/l2s/internal/simdtest"
)

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

// Between two calls of assembly every kernel looks whether it is to stop: as
// often as the bytes that it reads say.
func TestEveryKernelStopsBetweenItsCalls(t *testing.T) {
	defer func() { checkpoint = stoppable }()
	stops := 0
	checkpoint = func() { stops++ }

	const n, d, calls = 1 << 14, 256, 8 // 16 MiB of float32: 64 calls
	r := newRand(9)
	rows, h := make([]float32, n*d), fill(r, make([]float32, d))
	long := make([]float32, calls*maxCallBytes/4)
	ids, manyIDs := randomIDs(r, n, n), make([]uint32, len(long))
	dst, upper, wide := make([]float32, BatchContexts*n), make([]float32, BatchContexts*n), make([]float64, len(long))
	m := int8Rows(t, rows, make([]float32, n), d)
	m4, err := NewInt4Rows(alignedBytes(n*Int4Stride(d)), Float32Rows(rows, d), nil)
	if err != nil {
		t.Fatal(err)
	}
	v := NewInt8Vector(d)
	v.Set(h)
	four := []*Int8Vector{v, v, v, v}
	for _, c := range []struct {
		name  string
		bytes int // that it reads
		call  func()
	}{
		{"scan", 4 * n * d, func() { scan(dst[:n], rows, h) }},
		{"add", 4 * len(long), func() { add(make([]float32, len(long)), long) }},
		{"gatherDot", 4 * n * d, func() { gatherDot(dst[:n], rows, ids, h) }},
		{"maxID", 4 * len(long), func() { maxID(manyIDs) }},
		{"argmaxDot", 4 * n * d, func() { argmaxDot(rows, h) }},
		{"refScan", 4 * n * d, func() { refScan(wide[:n], rows, h) }},
		{"refGatherDot", 4 * n * d, func() { refGatherDot(wide[:n], rows, ids, h) }},
		{"axpy", 4 * len(long), func() { axpy(wide, 0.5, long) }},
		{"kthOfLanes", 4 * len(long), func() { kthOfLanes(long, 5) }},
		{"nextAbove", 4 * len(long), func() { nextAbove(long, 1) }},
		{"selectAtLeast", 4 * len(long), func() { selectAtLeast(manyIDs, long, 1) }},
		{"expBlocks", 8 * len(wide), func() { expBlocks(new([expLanes]float64), wide, wide, 0) }},
		{"maxFloat64", 8 * len(wide), func() { maxFloat64(wide) }},
		{"maxAbsBits", 4 * len(long), func() { maxAbsBits(long) }},
		{"Int8Rows.Bounds", n * m.stride, func() { m.Bounds(dst[:n], upper[:n], v) }},
		{"Int8Rows.GatherBounds", n * m.stride, func() { m.GatherBounds(dst[:n], upper[:n], ids, v) }},
		{"Int8Rows.BoundsBatch", n * m.stride, func() { m.BoundsBatch(dst, upper, four) }},
		{"Int8Rows.GatherBoundsBatch", n * m.stride, func() { m.GatherBoundsBatch(dst[:4*n], upper[:4*n], ids, four) }},
		{"Int4Rows.Bounds", n * m4.stride, func() { m4.Bounds(dst[:n], upper[:n], v) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			simdtest.EachLevel(t, func(t *testing.T) {
				stops = 0
				c.call()
				if want := c.bytes/maxCallBytes - 1; simd.HasAVX2 && stops < want {
					t.Errorf("%d stops in %d bytes, want at least %d", stops, c.bytes, want)
				}
			})
		})
	}
}
