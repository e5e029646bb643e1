//go:build amd64 && !purego

package kernels

import (
	"math"
	"unsafe"

	"github.com/learning-to-screen/l2s/internal/simd"
	"github.com/learning-to-screen/l2s/kernels/asm"
)

// Each function here picks the form that the level runs. A branch on a
// package variable costs nothing beside the call; a function variable would
// make the arguments escape to the heap.

// maxCallBytes bounds what one call of assembly reads of a matrix: a
// goroutine inside it cannot be stopped by the scheduler or the garbage
// collector.
const maxCallBytes = 256 << 10

// callRows returns the number of rows of size bytes that one call may read,
// a multiple of 16.
func callRows(size int) int { return max(16, maxCallBytes/size&^15) }

func dot(x, y []float32) float32 {
	if !simd.HasAVX2 {
		return dotGeneric(x, y)
	}
	var s [1]float32
	scan(s[:], x, y)
	return s[0]
}

// A scan reads rows side by side, unless they are short and many: from beyond
// the second-level cache one stream of them is faster (see PERFORMANCE.md).
const (
	shortRow   = 1 << 10 // bytes
	manyShorts = 2 << 20 // bytes of all rows
)

func scan(dst, rows, h []float32) {
	if !simd.HasAVX2 {
		scanGeneric(dst, rows, h)
		return
	}
	d := len(h)
	single := 4*d <= shortRow && 4*len(rows) > manyShorts
	for step := callRows(4 * d); len(dst) > 0; {
		n := min(step, len(dst))
		switch {
		case single:
			asm.ScanSingleAVX2(&dst[0], &rows[0], n, &h[0], d)
		case simd.HasAVX512:
			asm.ScanAVX512(&dst[0], &rows[0], n, &h[0], d)
		default:
			asm.ScanAVX2(&dst[0], &rows[0], n, &h[0], d)
		}
		dst, rows = dst[n:], rows[n*d:]
	}
}

func add(dst, x []float32) {
	n := len(dst) &^ 15
	switch {
	case n == 0 || !simd.HasAVX2:
		n = 0
	case simd.HasAVX512:
		asm.AddAVX512(&dst[0], &x[0], n)
	default:
		asm.AddAVX2(&dst[0], &x[0], n)
	}
	addGeneric(dst[n:], x[n:])
}

func gatherDot(dst, rows []float32, ids []uint32, h []float32) {
	if !simd.HasAVX2 {
		gatherDotGeneric(dst, rows, ids, h)
		return
	}
	d := len(h)
	for step := callRows(4 * d); len(ids) > 0; {
		n := min(step, len(ids))
		if simd.HasAVX512 {
			asm.GatherDotAVX512(&dst[0], &rows[0], &ids[0], n, &h[0], d)
		} else {
			asm.GatherDotAVX2(&dst[0], &rows[0], &ids[0], n, &h[0], d)
		}
		dst, ids = dst[n:], ids[n:]
	}
}

func maxID(ids []uint32) uint32 {
	n := len(ids) &^ 15
	if n == 0 || !simd.HasAVX2 {
		return maxIDGeneric(ids)
	}
	var m uint32
	if simd.HasAVX512 {
		m = asm.MaxIDAVX512(&ids[0], n)
	} else {
		m = asm.MaxIDAVX2(&ids[0], n)
	}
	return max(m, maxIDGeneric(ids[n:]))
}

func argmaxDot(rows, h []float32) (index int, score float32) {
	if !simd.HasAVX2 {
		return argmaxDotGeneric(rows, h)
	}
	d := len(h)
	score = float32(math.Inf(-1))
	step := callRows(4 * d)
	for first := 0; first*d < len(rows); first += step {
		n := min(step, len(rows)/d-first)
		var i int
		var s float32
		if simd.HasAVX512 {
			i, s = asm.ArgmaxDotAVX512(&rows[first*d], n, &h[0], d)
		} else {
			i, s = asm.ArgmaxDotAVX2(&rows[first*d], n, &h[0], d)
		}
		if s > score {
			index, score = first+i, s
		}
	}
	return index, score
}

func refDot(x, y []float32) float64 {
	if !simd.HasAVX2 {
		return refDotGeneric(x, y)
	}
	var s [1]float64
	refScan(s[:], x, y)
	return s[0]
}

func refScan(dst []float64, rows, h []float32) {
	if !simd.HasAVX2 {
		refScanGeneric(dst, rows, h)
		return
	}
	d := len(h)
	for step := callRows(4 * d); len(dst) > 0; {
		n := min(step, len(dst))
		if simd.HasAVX512 {
			asm.RefScanAVX512(&dst[0], &rows[0], n, &h[0], d)
		} else {
			asm.RefScanAVX2(&dst[0], &rows[0], n, &h[0], d)
		}
		dst, rows = dst[n:], rows[n*d:]
	}
}

func refGatherDot(dst []float64, rows []float32, ids []uint32, h []float32) {
	if !simd.HasAVX2 {
		refGatherDotGeneric(dst, rows, ids, h)
		return
	}
	d := len(h)
	for step := callRows(4 * d); len(ids) > 0; {
		n := min(step, len(ids))
		if simd.HasAVX512 {
			asm.RefGatherDotAVX512(&dst[0], &rows[0], &ids[0], n, &h[0], d)
		} else {
			asm.RefGatherDotAVX2(&dst[0], &rows[0], &ids[0], n, &h[0], d)
		}
		dst, ids = dst[n:], ids[n:]
	}
}

func axpy(dst []float64, a float32, x []float32) {
	switch {
	case simd.HasAVX512:
		asm.AxpyAVX512(&dst[0], float64(a), &x[0], len(x))
	case simd.HasAVX2:
		asm.AxpyAVX2(&dst[0], float64(a), &x[0], len(x))
	default:
		axpyGeneric(dst, a, x)
	}
}

// kthOfLanes takes a positive multiple of 16 scores.
func kthOfLanes(scores []float32, k int) float32 {
	var lane [laneCount]float32
	switch {
	case simd.HasAVX512:
		return asm.KthOfLanesAVX512(&lane[0], &scores[0], len(scores), k)
	case simd.HasAVX2:
		return asm.KthOfLanesAVX2(&lane[0], &scores[0], len(scores), k)
	default:
		return kthOfLanesGeneric(scores, k)
	}
}

func nextAbove(scores []float32, threshold float32) int {
	n := len(scores) &^ 15
	if n == 0 || !simd.HasAVX2 {
		return nextAboveGeneric(scores, threshold)
	}
	var i int
	if simd.HasAVX512 {
		i = asm.NextAboveAVX512(&scores[0], n, threshold)
	} else {
		i = asm.NextAboveAVX2(&scores[0], n, threshold)
	}
	if i == n {
		i += nextAboveGeneric(scores[n:], threshold)
	}
	return i
}

func selectAtLeast(dst []uint32, scores []float32, threshold float32) int {
	n := len(scores) &^ 15
	if n == 0 || !simd.HasAVX2 {
		return selectAtLeastGeneric(dst, scores, threshold)
	}
	var count int
	if simd.HasAVX512 {
		count = asm.SelectAtLeastAVX512(&dst[0], &scores[0], n, threshold)
	} else {
		count = asm.SelectAtLeastAVX2(&dst[0], &scores[0], n, threshold)
	}
	for i := n; i < len(scores); i++ {
		if scores[i] >= threshold {
			dst[count] = uint32(i)
			count++
		}
	}
	return count
}

func expBlocks(lane *[expLanes]float64, dst, x []float64, m float64) {
	if !simd.HasAVX2 {
		expBlocksGeneric(lane, dst, x, m)
		return
	}
	const step = maxCallBytes / 8
	for len(x) > 0 {
		n := min(step, len(x))
		switch {
		case dst == nil && simd.HasAVX512:
			asm.ExpSumAVX512(&lane[0], &x[0], n, m)
		case dst == nil:
			asm.ExpSumAVX2(&lane[0], &x[0], n, m)
		case simd.HasAVX512:
			asm.ExpStoreAVX512(&lane[0], &dst[0], &x[0], n, m)
		default:
			asm.ExpStoreAVX2(&lane[0], &dst[0], &x[0], n, m)
		}
		x = x[n:]
		if dst != nil {
			dst = dst[n:]
		}
	}
}

func maxFloat64(x []float64) float64 {
	n := len(x) &^ 15
	if n == 0 || !simd.HasAVX2 {
		return maxFloat64Generic(x)
	}
	m := maxFloat64Generic(x[n:])
	if simd.HasAVX512 {
		return max(m, asm.MaxFloat64AVX512(&x[0], n))
	}
	return max(m, asm.MaxFloat64AVX2(&x[0], n))
}

func maxAbsBits(x []float32) uint32 {
	switch {
	case simd.HasAVX512:
		return asm.MaxAbsBitsAVX512(&x[0], len(x))
	case simd.HasAVX2:
		return asm.MaxAbsBitsAVX2(&x[0], len(x))
	default:
		return maxAbsBitsGeneric(x)
	}
}

func quantize(codes []int8, h []float32, inv float32, sums *quantSums) {
	switch {
	case simd.HasAVX512:
		sums.norm2, sums.err2, sums.code, sums.below = asm.QuantizeAVX512(&codes[0], &h[0], len(h), inv)
	case simd.HasAVX2:
		sums.norm2, sums.err2, sums.code, sums.below = asm.QuantizeAVX2(&codes[0], &h[0], len(h), inv)
	default:
		quantizeGeneric(codes, h, inv, sums)
	}
}

// int8Lanes returns the number of rows that the assembly takes at once, or 0
// where there is none. AVX-512 without VNNI runs the AVX2 form.
func int8Lanes() int {
	switch {
	case simd.HasVNNI:
		return 16
	case simd.HasAVX2:
		return 8
	default:
		return 0
	}
}

// nextCall returns what the next call of assembly takes of n rows, from first
// on and step at most: whole blocks, whose size is a power of two. Where less
// than a block is left, the last block overlaps the one before, since a row's
// interval depends on nothing else.
func nextCall(first, n, step, block int) (from, rows int) {
	if rows = min(step, n-first) &^ (block - 1); rows == 0 {
		return n - block, block
	}
	return first, rows
}

func int8Bounds(lower, upper []float32, data []byte, stride int, b *bound) {
	lanes := int8Lanes()
	n := len(lower)
	if lanes == 0 {
		int8BoundsGeneric(lower, upper, data, stride, b)
		return
	}
	if n < lanes {
		var ids [16]uint32
		for i := range n {
			ids[i] = uint32(i)
		}
		int8GatherBounds(lower, upper, data, stride, ids[:n], b)
		return
	}
	step := callRows(stride)
	for first := 0; first < n; {
		var rows int
		first, rows = nextCall(first, n, step, lanes)
		lo, up, p := &lower[first], &upper[first], &data[first*stride]
		if lanes == 16 {
			asm.Int8BoundsAVX512(lo, up, p, stride, rows, (*byte)(unsafe.Pointer(b)))
		} else {
			asm.Int8BoundsAVX2(lo, up, p, stride, rows, (*byte)(unsafe.Pointer(b)))
		}
		first += rows
	}
}

func int8GatherBounds(lower, upper []float32, data []byte, stride int, ids []uint32, b *bound) {
	lanes := int8Lanes()
	n := len(ids)
	if lanes == 0 {
		int8GatherBoundsGeneric(lower, upper, data, stride, ids, b)
		return
	}
	if n < lanes {
		// Fill the block with the first row again.
		var at [16]uint32
		var lo, up [16]float32
		for i := range lanes {
			at[i] = ids[0]
		}
		copy(at[:], ids)
		int8GatherBounds(lo[:lanes], up[:lanes], data, stride, at[:lanes], b)
		copy(lower, lo[:])
		copy(upper, up[:])
		return
	}
	step := callRows(stride)
	for first := 0; first < n; {
		var rows int
		first, rows = nextCall(first, n, step, lanes)
		lo, up, p := &lower[first], &upper[first], &ids[first]
		if lanes == 16 {
			asm.Int8GatherBoundsAVX512(lo, up, &data[0], stride, p, rows, (*byte)(unsafe.Pointer(b)))
		} else {
			asm.Int8GatherBoundsAVX2(lo, up, &data[0], stride, p, rows, (*byte)(unsafe.Pointer(b)))
		}
		first += rows
	}
}

// batchRows is the number of rows that a block of the batch kernels takes.
const batchRows = 4

// batchBound is the per-context side of the envelope, as the batch kernels
// read it: elements 4c to 4c+3 of an array belong to context c.
type batchBound struct {
	codes  [BatchContexts]*int8
	offset [4 * BatchContexts]int32 // what the level's products hold beyond those of the codes
	scale  [4 * BatchContexts]float32
	norm   [4 * BatchContexts]float32
	err    [4 * BatchContexts]float32
	slack  float32
}

// batchKernel computes the intervals of n rows for the first of vs, and
// returns for how many of them: as many as the level's kernel takes, or 0.
func (m *Int8Rows) batchKernel(lower, upper []float32, ids []uint32, n int, vs []*Int8Vector) int {
	most := 0
	switch {
	case simd.HasVNNI:
		most = 4
	case simd.HasAVX2:
		most = 2
	}
	contexts := min(most, len(vs))
	if contexts < 2 || n < batchRows {
		return 0
	}
	b := batchBound{slack: m.slack}
	for c := range most {
		v := vs[min(c, contexts-1)]
		b.codes[c] = &v.codes[0]
		offset := v.offset
		if !simd.HasVNNI {
			offset = v.below
		}
		for j := 4 * c; j < 4*c+4; j++ {
			b.offset[j], b.scale[j], b.norm[j], b.err[j] = offset, v.scale, v.norm, v.err
		}
	}
	arg := (*byte)(unsafe.Pointer(&b))
	step := callRows(m.stride)
	for first := 0; first < n; {
		var rows int
		first, rows = nextCall(first, n, step, batchRows)
		lo, up := &lower[first], &upper[first]
		switch {
		case ids != nil && simd.HasVNNI:
			asm.Int8GatherBoundsBatchAVX512(lo, up, n, contexts, &m.data[0], m.stride, &ids[first], rows, arg)
		case ids != nil:
			asm.Int8GatherBoundsBatchAVX2(lo, up, n, contexts, &m.data[0], m.stride, &ids[first], rows, arg)
		case simd.HasVNNI:
			asm.Int8BoundsBatchAVX512(lo, up, n, contexts, &m.data[first*m.stride], m.stride, rows, arg)
		default:
			asm.Int8BoundsBatchAVX2(lo, up, n, contexts, &m.data[first*m.stride], m.stride, rows, arg)
		}
		first += rows
	}
	return contexts
}

// int4Bounds leaves less than a block to the plain form: rows of 4-bit codes
// are many.
func int4Bounds(lower, upper []float32, data []byte, stride int, b *bound) {
	lanes := int8Lanes()
	if lanes == 0 || len(lower) < lanes {
		int4BoundsGeneric(lower, upper, data, stride, b)
		return
	}
	n := len(lower)
	step := callRows(stride)
	for first := 0; first < n; {
		var rows int
		first, rows = nextCall(first, n, step, lanes)
		lo, up, p := &lower[first], &upper[first], &data[first*stride]
		if lanes == 16 {
			asm.Int4BoundsAVX512(lo, up, p, stride, rows, (*byte)(unsafe.Pointer(b)))
		} else {
			asm.Int4BoundsAVX2(lo, up, p, stride, rows, (*byte)(unsafe.Pointer(b)))
		}
		first += rows
	}
}
