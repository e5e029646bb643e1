//go:build amd64 && !purego

package kernels

import (
	"math"
	"slices"
	"unsafe"

	"github.com/learning-to-screen/l2s/internal/simd"
	"github.com/learning-to-screen/l2s/kernels/asm"
)

// Each function here picks the form that the level runs. A branch on a
// package variable costs nothing beside the call; a function variable would
// make the arguments escape to the heap.

// maxCallBytes bounds what one call of assembly reads or writes: a goroutine
// inside it cannot be stopped by the scheduler or the garbage collector. At the
// 10 GB/s of a slow memory it is 25 microseconds.
const maxCallBytes = 256 << 10

// callRows returns the number of rows of size bytes that one call of assembly
// may read. A row counts for a cache line at least, since rows that are
// gathered cost as much and rows of few elements cost time of their own.
func callRows(size int) int {
	n := maxCallBytes / max(size, 64)
	if n >= 16 {
		n &^= 15 // whole blocks
	}
	return max(1, n)
}

// callBlocks is callRows for the kernels that take rows in blocks of up to 16:
// a block of the longest rows of codes has 1 MiB.
func callBlocks(size int) int { return max(16, callRows(size)&^15) }

// checkpoint lets the scheduler stop the goroutine between two calls of
// assembly. Of itself it would not: the signal that asks a goroutine to stop is
// without effect inside assembly, where the loops spend all their time, and
// their Go code calls no function that looks for the request, as functions with a
// frame do when they are entered. Tests count the calls.
var checkpoint = stoppable

//go:noinline
func stoppable() { frame() }

// frame makes stoppable a function with a frame.
//
//go:noinline
func frame() {}

// maxCallDim is the largest dimension that assembly takes: longer rows could
// hold a call up for any time, and are left to plain Go.
const maxCallDim = maxCallBytes / 4

func dot(x, y []float32) float32 {
	if !simd.HasAVX2 || len(x) > maxCallDim {
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
	if !simd.HasAVX2 || len(h) > maxCallDim {
		scanGeneric(dst, rows, h)
		return
	}
	d := len(h)
	single := 4*d <= shortRow && 4*len(rows) > manyShorts
	for step := callRows(4 * d); len(dst) > 0; {
		n := min(step, len(dst))
		raceReads(rows[:n*d])
		raceReads(h)
		raceWrites(dst[:n])
		switch {
		case single:
			asm.ScanSingleAVX2(&dst[0], &rows[0], n, &h[0], d)
		case simd.HasAVX512:
			asm.ScanAVX512(&dst[0], &rows[0], n, &h[0], d)
		default:
			asm.ScanAVX2(&dst[0], &rows[0], n, &h[0], d)
		}
		if dst, rows = dst[n:], rows[n*d:]; len(dst) > 0 {
			checkpoint()
		}
	}
}

func add(dst, x []float32) {
	if !simd.HasAVX2 {
		addGeneric(dst, x)
		return
	}
	const step = maxCallBytes / 8
	for len(dst) >= 16 {
		n := min(step, len(dst)&^15)
		raceReads(x[:n])
		raceWrites(dst[:n])
		if simd.HasAVX512 {
			asm.AddAVX512(&dst[0], &x[0], n)
		} else {
			asm.AddAVX2(&dst[0], &x[0], n)
		}
		if dst, x = dst[n:], x[n:]; len(x) > 0 {
			checkpoint()
		}
	}
	addGeneric(dst, x)
}

func gatherDot(dst, rows []float32, ids []uint32, h []float32) {
	if !simd.HasAVX2 || len(h) > maxCallDim {
		gatherDotGeneric(dst, rows, ids, h)
		return
	}
	d := len(h)
	for step := callRows(4 * d); len(ids) > 0; {
		n := min(step, len(ids))
		raceReadsRows(rows, d, ids[:n])
		raceReads(h)
		raceWrites(dst[:n])
		if simd.HasAVX512 {
			asm.GatherDotAVX512(&dst[0], &rows[0], &ids[0], n, &h[0], d)
		} else {
			asm.GatherDotAVX2(&dst[0], &rows[0], &ids[0], n, &h[0], d)
		}
		if dst, ids = dst[n:], ids[n:]; len(ids) > 0 {
			checkpoint()
		}
	}
}

func maxID(ids []uint32) uint32 {
	if !simd.HasAVX2 {
		return maxIDGeneric(ids)
	}
	var m uint32
	for len(ids) >= 16 {
		n := min(maxCallBytes/4, len(ids)&^15)
		raceReads(ids[:n])
		if simd.HasAVX512 {
			m = max(m, asm.MaxIDAVX512(&ids[0], n))
		} else {
			m = max(m, asm.MaxIDAVX2(&ids[0], n))
		}
		if ids = ids[n:]; len(ids) > 0 {
			checkpoint()
		}
	}
	return max(m, maxIDGeneric(ids))
}

func argmaxDot(rows, h []float32) (index int, score float32) {
	if !simd.HasAVX2 || len(h) > maxCallDim {
		return argmaxDotGeneric(rows, h)
	}
	d := len(h)
	score = float32(math.Inf(-1))
	step := callRows(4 * d)
	for first := 0; first*d < len(rows); first += step {
		n := min(step, len(rows)/d-first)
		raceReads(rows[first*d : (first+n)*d])
		raceReads(h)
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
		if (first+n)*d < len(rows) {
			checkpoint()
		}
	}
	return index, score
}

func refDot(x, y []float32) float64 {
	if !simd.HasAVX2 || len(x) > maxCallDim {
		return refDotGeneric(x, y)
	}
	var s [1]float64
	refScan(s[:], x, y)
	return s[0]
}

func refScan(dst []float64, rows, h []float32) {
	if !simd.HasAVX2 || len(h) > maxCallDim {
		refScanGeneric(dst, rows, h)
		return
	}
	d := len(h)
	for step := callRows(4 * d); len(dst) > 0; {
		n := min(step, len(dst))
		raceReads(rows[:n*d])
		raceReads(h)
		raceWrites(dst[:n])
		if simd.HasAVX512 {
			asm.RefScanAVX512(&dst[0], &rows[0], n, &h[0], d)
		} else {
			asm.RefScanAVX2(&dst[0], &rows[0], n, &h[0], d)
		}
		if dst, rows = dst[n:], rows[n*d:]; len(dst) > 0 {
			checkpoint()
		}
	}
}

func refGatherDot(dst []float64, rows []float32, ids []uint32, h []float32) {
	if !simd.HasAVX2 || len(h) > maxCallDim {
		refGatherDotGeneric(dst, rows, ids, h)
		return
	}
	d := len(h)
	for step := callRows(4 * d); len(ids) > 0; {
		n := min(step, len(ids))
		raceReadsRows(rows, d, ids[:n])
		raceReads(h)
		raceWrites(dst[:n])
		if simd.HasAVX512 {
			asm.RefGatherDotAVX512(&dst[0], &rows[0], &ids[0], n, &h[0], d)
		} else {
			asm.RefGatherDotAVX2(&dst[0], &rows[0], &ids[0], n, &h[0], d)
		}
		if dst, ids = dst[n:], ids[n:]; len(ids) > 0 {
			checkpoint()
		}
	}
}

func axpy(dst []float64, a float32, x []float32) {
	if !simd.HasAVX2 {
		axpyGeneric(dst, a, x)
		return
	}
	const step = maxCallBytes / 16
	for len(x) > 0 {
		n := min(step, len(x))
		raceReads(x[:n])
		raceWrites(dst[:n])
		if simd.HasAVX512 {
			asm.AxpyAVX512(&dst[0], float64(a), &x[0], n)
		} else {
			asm.AxpyAVX2(&dst[0], float64(a), &x[0], n)
		}
		if dst, x = dst[n:], x[n:]; len(x) > 0 {
			checkpoint()
		}
	}
}

// kthOfLanes takes a positive multiple of 16 scores.
func kthOfLanes(scores []float32, k int) float32 {
	if !simd.HasAVX2 {
		return kthOfLanesGeneric(scores, k)
	}
	const step = maxCallBytes / 4
	var lane [laneCount]float32
	call := func(lane *[laneCount]float32, part []float32) float32 {
		raceReads(part)
		if simd.HasAVX512 {
			return asm.KthOfLanesAVX512(&lane[0], &part[0], len(part), k)
		}
		return asm.KthOfLanesAVX2(&lane[0], &part[0], len(part), k)
	}
	if len(scores) <= step {
		return call(&lane, scores)
	}
	call(&lane, scores[:step])
	for at := step; at < len(scores); at += step {
		checkpoint()
		var part [laneCount]float32
		call(&part, scores[at:min(at+step, len(scores))])
		for j, s := range part {
			lane[j] = max(lane[j], s)
		}
	}
	slices.Sort(lane[:])
	return lane[laneCount-k]
}

func nextAbove(scores []float32, threshold float32) int {
	if !simd.HasAVX2 {
		return nextAboveGeneric(scores, threshold)
	}
	i, whole := 0, len(scores)&^15
	for i < whole {
		n := min(maxCallBytes/4, whole-i)
		var at int
		if simd.HasAVX512 {
			at = asm.NextAboveAVX512(&scores[i], n, threshold)
		} else {
			at = asm.NextAboveAVX2(&scores[i], n, threshold)
		}
		raceReads(scores[i : i+min(at&^15+16, n)])
		i += at
		if at < n {
			return i
		}
		if i < whole {
			checkpoint()
		}
	}
	return i + nextAboveGeneric(scores[i:], threshold)
}

func selectAtLeast(dst []uint32, scores []float32, threshold float32) int {
	if !simd.HasAVX2 {
		return selectAtLeastGeneric(dst, scores, threshold)
	}
	count, at, whole := 0, 0, len(scores)&^15
	for at < whole {
		// It writes as much as it reads, and at random.
		n := min(maxCallBytes/16, whole-at)
		part := dst[count : count+n] // count <= at
		raceReads(scores[at : at+n])
		raceWrites(part)
		var found int
		if simd.HasAVX512 {
			found = asm.SelectAtLeastAVX512(&part[0], &scores[at], n, threshold)
		} else {
			found = asm.SelectAtLeastAVX2(&part[0], &scores[at], n, threshold)
		}
		if at > 0 {
			for j := range part[:found] {
				part[j] += uint32(at)
			}
		}
		count += found
		if at += n; at < whole {
			checkpoint()
		}
	}
	for i := whole; i < len(scores); i++ {
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
	const step = maxCallBytes / 16
	for len(x) > 0 {
		n := min(step, len(x))
		raceReads(x[:n])
		if dst != nil {
			raceWrites(dst[:n])
		}
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
		if x = x[n:]; len(x) > 0 {
			checkpoint()
		}
		if dst != nil {
			dst = dst[n:]
		}
	}
}

func maxFloat64(x []float64) float64 {
	if !simd.HasAVX2 {
		return maxFloat64Generic(x)
	}
	m := math.Inf(-1)
	for len(x) >= 16 {
		n := min(maxCallBytes/8, len(x)&^15)
		raceReads(x[:n])
		if simd.HasAVX512 {
			m = max(m, asm.MaxFloat64AVX512(&x[0], n))
		} else {
			m = max(m, asm.MaxFloat64AVX2(&x[0], n))
		}
		if x = x[n:]; len(x) > 0 {
			checkpoint()
		}
	}
	return max(m, maxFloat64Generic(x))
}

func maxAbsBits(x []float32) uint32 {
	if !simd.HasAVX2 {
		return maxAbsBitsGeneric(x)
	}
	var m uint32
	for len(x) >= 16 {
		n := min(maxCallBytes/4, len(x)&^15)
		raceReads(x[:n])
		if simd.HasAVX512 {
			m = max(m, asm.MaxAbsBitsAVX512(&x[0], n))
		} else {
			m = max(m, asm.MaxAbsBitsAVX2(&x[0], n))
		}
		if x = x[n:]; len(x) > 0 {
			checkpoint()
		}
	}
	return max(m, maxAbsBitsGeneric(x))
}

func quantize(codes []int8, h []float32, inv float32, sums *quantSums) {
	if simd.HasAVX2 {
		raceReads(h)
		raceWrites(codes)
	}
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
	step := callBlocks(stride)
	for first := 0; first < n; {
		var rows int
		first, rows = nextCall(first, n, step, lanes)
		raceReads(data[first*stride : (first+rows)*stride])
		raceReadsBound(b, stride)
		raceWrites(lower[first : first+rows])
		raceWrites(upper[first : first+rows])
		lo, up, p := &lower[first], &upper[first], &data[first*stride]
		if lanes == 16 {
			asm.Int8BoundsAVX512(lo, up, p, stride, rows, (*byte)(unsafe.Pointer(b)))
		} else {
			asm.Int8BoundsAVX2(lo, up, p, stride, rows, (*byte)(unsafe.Pointer(b)))
		}
		if first += rows; first < n {
			checkpoint()
		}
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
	step := callBlocks(stride)
	for first := 0; first < n; {
		var rows int
		first, rows = nextCall(first, n, step, lanes)
		raceReadsRows(data, stride, ids[first:first+rows])
		raceReadsBound(b, stride)
		raceWrites(lower[first : first+rows])
		raceWrites(upper[first : first+rows])
		lo, up, p := &lower[first], &upper[first], &ids[first]
		if lanes == 16 {
			asm.Int8GatherBoundsAVX512(lo, up, &data[0], stride, p, rows, (*byte)(unsafe.Pointer(b)))
		} else {
			asm.Int8GatherBoundsAVX2(lo, up, &data[0], stride, p, rows, (*byte)(unsafe.Pointer(b)))
		}
		if first += rows; first < n {
			checkpoint()
		}
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
	step := callBlocks(m.stride)
	for first := 0; first < n; {
		var rows int
		first, rows = nextCall(first, n, step, batchRows)
		if ids != nil {
			raceReadsRows(m.data, m.stride, ids[first:first+rows])
		} else {
			raceReads(m.data[first*m.stride : (first+rows)*m.stride])
		}
		for c := range contexts {
			raceReads(vs[c].codes)
			raceWrites(lower[c*n+first : c*n+first+rows])
			raceWrites(upper[c*n+first : c*n+first+rows])
		}
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
		if first += rows; first < n {
			checkpoint()
		}
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
	step := callBlocks(stride)
	for first := 0; first < n; {
		var rows int
		first, rows = nextCall(first, n, step, lanes)
		raceReads(data[first*stride : (first+rows)*stride])
		raceReadsBound(b, stride)
		raceWrites(lower[first : first+rows])
		raceWrites(upper[first : first+rows])
		lo, up, p := &lower[first], &upper[first], &data[first*stride]
		if lanes == 16 {
			asm.Int4BoundsAVX512(lo, up, p, stride, rows, (*byte)(unsafe.Pointer(b)))
		} else {
			asm.Int4BoundsAVX2(lo, up, p, stride, rows, (*byte)(unsafe.Pointer(b)))
		}
		if first += rows; first < n {
			checkpoint()
		}
	}
}
