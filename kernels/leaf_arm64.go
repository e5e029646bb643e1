//go:build arm64 && !purego

package kernels

import (
	"unsafe"

	"github.com/learning-to-screen/l2s/internal/simd"
	"github.com/learning-to-screen/l2s/kernels/asm"
)

// scanLeaf has no form of its own for a stream: what is faster from beyond the
// caches is not known before it is measured.
func scanLeaf(dst, rows, h []float32, stream bool) {
	if !simd.HasNEON {
		scanGeneric(dst, rows, h)
		return
	}
	asm.ScanNEON(&dst[0], &rows[0], len(dst), &h[0], len(h))
}

func addLeaf(dst, x []float32) {
	if !simd.HasNEON {
		addGeneric(dst, x)
		return
	}
	asm.AddNEON(&dst[0], &x[0], len(x))
}

func gatherDotLeaf(dst, rows []float32, ids []uint32, h []float32) {
	if !simd.HasNEON {
		gatherDotGeneric(dst, rows, ids, h)
		return
	}
	asm.GatherDotNEON(&dst[0], &rows[0], &ids[0], len(ids), &h[0], len(h))
}

func maxIDLeaf(ids []uint32) uint32 {
	if !simd.HasNEON {
		return maxIDGeneric(ids)
	}
	return asm.MaxIDNEON(&ids[0], len(ids))
}

func prefetchLinesLeaf(lines []unsafe.Pointer) {
	if simd.HasNEON {
		asm.PrefetchLinesNEON((*uintptr)(unsafe.Pointer(&lines[0])), len(lines))
	}
}

func argmaxDotLeaf(rows, h []float32) (int, float32) {
	if !simd.HasNEON {
		return argmaxDotGeneric(rows, h)
	}
	return asm.ArgmaxDotNEON(&rows[0], len(rows)/len(h), &h[0], len(h))
}

func refScanLeaf(dst []float64, m Rows, h []float32) {
	switch out, first := &dst[0], &h[0]; {
	case !simd.HasNEON || m.element.quantised():
		m.refScanGeneric(dst, h)
	case m.element == Float32:
		asm.RefScanNEON(out, (*float32)(m.data), m.n, first, m.dim)
	case m.element == Float16:
		asm.RefScanF16NEON(out, (*uint16)(m.data), m.n, first, m.dim)
	default:
		asm.RefScanBF16NEON(out, (*uint16)(m.data), m.n, first, m.dim)
	}
}

func refGatherDotLeaf(dst []float64, m Rows, ids []uint32, h []float32) {
	switch out, n, first := &dst[0], len(ids), &h[0]; {
	case !simd.HasNEON || m.element.quantised():
		m.refGatherDotGeneric(dst, ids, h)
	case m.element == Float32:
		asm.RefGatherDotNEON(out, (*float32)(m.data), &ids[0], n, first, m.dim)
	case m.element == Float16:
		asm.RefGatherDotF16NEON(out, (*uint16)(m.data), &ids[0], n, first, m.dim)
	default:
		asm.RefGatherDotBF16NEON(out, (*uint16)(m.data), &ids[0], n, first, m.dim)
	}
}

func widenLeaf(dst []float32, x []uint16, e Element) {
	switch {
	case !simd.HasNEON:
		widenGeneric(dst, x, e)
	case e == Float16:
		asm.WidenF16NEON(&dst[0], &x[0], len(x))
	default:
		asm.WidenBF16NEON(&dst[0], &x[0], len(x))
	}
}

func axpyLeaf(dst []float64, a float32, x []float32) {
	if !simd.HasNEON {
		axpyGeneric(dst, a, x)
		return
	}
	asm.AxpyNEON(&dst[0], float64(a), &x[0], len(x))
}

func kthOfLanesLeaf(lane *[laneCount]float32, scores []float32, k int) float32 {
	if !simd.HasNEON {
		return kthOfLanesGeneric(lane, scores, k)
	}
	return asm.KthOfLanesNEON(&lane[0], &scores[0], len(scores), k)
}

func nextAboveLeaf(scores []float32, threshold float32) int {
	if !simd.HasNEON {
		return nextAboveGeneric(scores, threshold)
	}
	return asm.NextAboveNEON(&scores[0], len(scores), threshold)
}

func selectAtLeastLeaf(dst []uint32, scores []float32, threshold float32) int {
	if !simd.HasNEON {
		return selectAtLeastGeneric(dst, scores, threshold)
	}
	return asm.SelectAtLeastNEON(&dst[0], &scores[0], len(scores), threshold)
}

func expLeaf(lane *[expLanes]float64, dst, x []float64, m float64) {
	switch {
	case !simd.HasNEON:
		expBlocksGeneric(lane, dst, x, m)
	case dst == nil:
		asm.ExpSumNEON(&lane[0], &x[0], len(x), m)
	default:
		asm.ExpStoreNEON(&lane[0], &dst[0], &x[0], len(x), m)
	}
}

func maxFloat64Leaf(x []float64) float64 {
	if !simd.HasNEON {
		return maxFloat64Generic(x)
	}
	return asm.MaxFloat64NEON(&x[0], len(x))
}

func maxCentreLeaf(lower, upper []float32) float32 {
	if !simd.HasNEON {
		return maxCentreGeneric(lower, upper)
	}
	return asm.MaxCentreNEON(&lower[0], &upper[0], len(lower))
}

func expCentresLeaf(lane *[centreLanes]float64, lower, upper []float32, m, scale float32) {
	if !simd.HasNEON {
		expCentresGeneric(lane, lower, upper, m, scale)
		return
	}
	asm.ExpCentresNEON(&lane[0], &lower[0], &upper[0], len(lower), m, scale)
}

func maxAbsBitsLeaf(x []float32) uint32 {
	if !simd.HasNEON {
		return maxAbsBitsGeneric(x)
	}
	return asm.MaxAbsBitsNEON(&x[0], len(x))
}

func maxAbsBits16Leaf(x []uint16) uint32 {
	if !simd.HasNEON {
		return maxAbsBits16Generic(x)
	}
	return asm.MaxAbsBits16NEON(&x[0], len(x))
}

func quantizeLeaf(codes []int8, h []float32, inv float32) (s quantSums) {
	if !simd.HasNEON {
		return quantizeGeneric(codes, h, inv)
	}
	s.norm2, s.err2, s.code, s.below = asm.QuantizeNEON(&codes[0], &h[0], len(h), inv)
	return s
}

func encodeLeaf(codes []int8, x []float32, inv, most float32) (s encodeSums) {
	if !simd.HasNEON {
		return encodeGeneric(codes, x, inv, most)
	}
	s.err2, s.norm2 = asm.EncodeNEON(&codes[0], &x[0], len(x), inv, most)
	return s
}

// The leaves of codes take rows in blocks of codesBlock for one context, and of
// batchBlock for as many as batchContexts says, which share the load of a row.

func codesBlock() int {
	if simd.HasNEON {
		return 8
	}
	return 1
}

func batchBlock() int {
	switch {
	case simd.HasI8MM:
		return 8
	case simd.HasNEON:
		return 4
	}
	return 1
}

// batchContexts returns the number of contexts for n rows.
func batchContexts(n int) int {
	if n < batchBlock() {
		return 1
	}
	return BatchContexts
}

// excess8 is what the sums of the products of 8-bit rows with v hold beyond the sums
// of the codes for the leaves with I8MM; all others take the rows' 128 out beforehand, and
// do not ask.
func excess8(v *Int8Vector) int32 { return codeBias * v.sum }

func excess4(v *Int8Vector) int32 { return code4Bias * v.sum }

func int8Leaf(lower, upper *float32, m *codeRows, first int, ids *uint32, n int, b *bound) {
	p, stride, arg := &m.data[first*m.stride], m.stride, (*byte)(unsafe.Pointer(b))
	switch {
	case ids != nil && simd.HasNEONDot:
		asm.Int8GatherBoundsNEONDOT(lower, upper, p, stride, ids, n, arg)
	case simd.HasNEONDot:
		asm.Int8BoundsNEONDOT(lower, upper, p, stride, n, arg)
	case ids != nil && simd.HasNEON:
		asm.Int8GatherBoundsNEON(lower, upper, p, stride, ids, n, arg)
	case simd.HasNEON:
		asm.Int8BoundsNEON(lower, upper, p, stride, n, arg)
	default:
		codesGeneric(lower, upper, m, first, ids, n, b)
	}
}

func panelLeaf(lower, upper *float32, data []byte, n int, p *Int8Panels, b *bound) {
	switch arg := (*byte)(unsafe.Pointer(b)); {
	case simd.HasNEONDot:
		asm.Int8PanelBoundsNEONDOT(lower, upper, &data[0], n, p.steps, arg)
	case simd.HasNEON:
		asm.Int8PanelBoundsNEON(lower, upper, &data[0], n, p.steps, arg)
	default:
		panelGeneric(lower, upper, data, n, p, b)
	}
}

func int4Leaf(lower, upper *float32, m *codeRows, first, n int, b *bound) {
	p, stride, arg := &m.data[first*m.stride], m.stride, (*byte)(unsafe.Pointer(b))
	switch {
	case simd.HasNEONDot:
		asm.Int4BoundsNEONDOT(lower, upper, p, stride, n, arg)
	case simd.HasNEON:
		asm.Int4BoundsNEON(lower, upper, p, stride, n, arg)
	default:
		codesGeneric(lower, upper, m, first, nil, n, b)
	}
}

func batchLeaf(lower, upper *float32, ld int, m *codeRows, first int, ids *uint32, n int, b *batchBound) {
	p, stride, contexts, arg := &m.data[first*m.stride], m.stride, len(b.vs), (*byte)(unsafe.Pointer(b))
	switch {
	case ids != nil && simd.HasI8MM:
		asm.Int8GatherBoundsBatchNEONI8MM(lower, upper, ld, contexts, p, stride, ids, n, arg)
	case simd.HasI8MM:
		asm.Int8BoundsBatchNEONI8MM(lower, upper, ld, contexts, p, stride, n, arg)
	case ids != nil && simd.HasNEONDot:
		asm.Int8GatherBoundsBatchNEONDOT(lower, upper, ld, contexts, p, stride, ids, n, arg)
	case simd.HasNEONDot:
		asm.Int8BoundsBatchNEONDOT(lower, upper, ld, contexts, p, stride, n, arg)
	case ids != nil && simd.HasNEON:
		asm.Int8GatherBoundsBatchNEON(lower, upper, ld, contexts, p, stride, ids, n, arg)
	case simd.HasNEON:
		asm.Int8BoundsBatchNEON(lower, upper, ld, contexts, p, stride, n, arg)
	default:
		batchGeneric(lower, upper, ld, m, first, ids, n, b)
	}
}

func survivorsLeaf(lower, upper []float32, rows []uint32, data []byte, panels, k int, p *Int8Panels, b *bound) int {
	return survivorsByLeaves(lower, upper, rows, data, panels, k, p, b)
}
