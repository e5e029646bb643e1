//go:build amd64 && !purego

package kernels

import (
	"unsafe"

	"github.com/learning-to-screen/l2s/internal/simd"
	"github.com/learning-to-screen/l2s/kernels/asm"
)

func scanLeaf(dst, rows, h []float32, stream bool) {
	switch n, d := len(dst), len(h); {
	case simd.HasAVX2 && stream:
		asm.ScanSingleAVX2(&dst[0], &rows[0], n, &h[0], d)
	case simd.HasAVX512:
		asm.ScanAVX512(&dst[0], &rows[0], n, &h[0], d)
	case simd.HasAVX2:
		asm.ScanAVX2(&dst[0], &rows[0], n, &h[0], d)
	default:
		scanGeneric(dst, rows, h)
	}
}

func addLeaf(dst, x []float32) {
	switch {
	case simd.HasAVX512:
		asm.AddAVX512(&dst[0], &x[0], len(x))
	case simd.HasAVX2:
		asm.AddAVX2(&dst[0], &x[0], len(x))
	default:
		addGeneric(dst, x)
	}
}

func gatherDotLeaf(dst, rows []float32, ids []uint32, h []float32) {
	switch n, d := len(ids), len(h); {
	case simd.HasAVX512:
		asm.GatherDotAVX512(&dst[0], &rows[0], &ids[0], n, &h[0], d)
	case simd.HasAVX2:
		asm.GatherDotAVX2(&dst[0], &rows[0], &ids[0], n, &h[0], d)
	default:
		gatherDotGeneric(dst, rows, ids, h)
	}
}

func maxIDLeaf(ids []uint32) uint32 {
	switch {
	case simd.HasAVX512:
		return asm.MaxIDAVX512(&ids[0], len(ids))
	case simd.HasAVX2:
		return asm.MaxIDAVX2(&ids[0], len(ids))
	}
	return maxIDGeneric(ids)
}

// prefetchLinesLeaf is of every amd64 CPU, but plain Go, which is tested as such, has none.
func prefetchLinesLeaf(lines []unsafe.Pointer) {
	if simd.HasAVX2 {
		asm.PrefetchLinesAVX2((*uintptr)(unsafe.Pointer(&lines[0])), len(lines))
	}
}

func argmaxDotLeaf(rows, h []float32) (int, float32) {
	switch d := len(h); {
	case simd.HasAVX512:
		return asm.ArgmaxDotAVX512(&rows[0], len(rows)/d, &h[0], d)
	case simd.HasAVX2:
		return asm.ArgmaxDotAVX2(&rows[0], len(rows)/d, &h[0], d)
	}
	return argmaxDotGeneric(rows, h)
}

func refScanLeaf(dst []float64, m Rows, h []float32) {
	out, n, y, d, wide := &dst[0], m.n, &h[0], m.dim, simd.HasAVX512
	switch {
	case !simd.HasAVX2:
		m.refScanGeneric(dst, h)
	case m.element == Float32 && wide:
		asm.RefScanAVX512(out, (*float32)(m.data), n, y, d)
	case m.element == Float32:
		asm.RefScanAVX2(out, (*float32)(m.data), n, y, d)
	case m.element == Float16 && wide:
		asm.RefScanF16AVX512(out, (*uint16)(m.data), n, y, d)
	case m.element == Float16:
		asm.RefScanF16AVX2(out, (*uint16)(m.data), n, y, d)
	case m.element == Q8_0 && wide:
		asm.RefScanQ80AVX512(out, (*byte)(m.data), n, y, d)
	case m.element == Q8_0:
		asm.RefScanQ80AVX2(out, (*byte)(m.data), n, y, d)
	case m.element == Q6_K && wide:
		asm.RefScanQ6KAVX512(out, (*byte)(m.data), n, y, d)
	case m.element == Q6_K:
		asm.RefScanQ6KAVX2(out, (*byte)(m.data), n, y, d)
	case wide:
		asm.RefScanBF16AVX512(out, (*uint16)(m.data), n, y, d)
	default:
		asm.RefScanBF16AVX2(out, (*uint16)(m.data), n, y, d)
	}
}

func widenLeaf(dst []float32, x []uint16, e Element) {
	switch n, wide := len(x), simd.HasAVX512; {
	case !simd.HasAVX2:
		widenGeneric(dst, x, e)
	case e == Float16 && wide:
		asm.WidenF16AVX512(&dst[0], &x[0], n)
	case e == Float16:
		asm.WidenF16AVX2(&dst[0], &x[0], n)
	case wide:
		asm.WidenBF16AVX512(&dst[0], &x[0], n)
	default:
		asm.WidenBF16AVX2(&dst[0], &x[0], n)
	}
}

func axpyLeaf(dst []float64, a float32, x []float32) {
	switch {
	case simd.HasAVX512:
		asm.AxpyAVX512(&dst[0], float64(a), &x[0], len(x))
	case simd.HasAVX2:
		asm.AxpyAVX2(&dst[0], float64(a), &x[0], len(x))
	default:
		axpyGeneric(dst, a, x)
	}
}

func kthOfLanesLeaf(lane *[laneCount]float32, scores []float32, k int) float32 {
	switch {
	case simd.HasAVX512:
		return asm.KthOfLanesAVX512(&lane[0], &scores[0], len(scores), k)
	case simd.HasAVX2:
		return asm.KthOfLanesAVX2(&lane[0], &scores[0], len(scores), k)
	}
	return kthOfLanesGeneric(lane, scores, k)
}

func nextAboveLeaf(scores []float32, threshold float32) int {
	switch {
	case simd.HasAVX512:
		return asm.NextAboveAVX512(&scores[0], len(scores), threshold)
	case simd.HasAVX2:
		return asm.NextAboveAVX2(&scores[0], len(scores), threshold)
	}
	return nextAboveGeneric(scores, threshold)
}

func selectAtLeastLeaf(dst []uint32, scores []float32, threshold float32) int {
	switch {
	case simd.HasAVX512:
		return asm.SelectAtLeastAVX512(&dst[0], &scores[0], len(scores), threshold)
	case simd.HasAVX2:
		return asm.SelectAtLeastAVX2(&dst[0], &scores[0], len(scores), threshold)
	}
	return selectAtLeastGeneric(dst, scores, threshold)
}

func expLeaf(lane *[expLanes]float64, dst, x []float64, m float64) {
	switch n := len(x); {
	case !simd.HasAVX2:
		expBlocksGeneric(lane, dst, x, m)
	case dst == nil && simd.HasAVX512:
		asm.ExpSumAVX512(&lane[0], &x[0], n, m)
	case dst == nil:
		asm.ExpSumAVX2(&lane[0], &x[0], n, m)
	case simd.HasAVX512:
		asm.ExpStoreAVX512(&lane[0], &dst[0], &x[0], n, m)
	default:
		asm.ExpStoreAVX2(&lane[0], &dst[0], &x[0], n, m)
	}
}

func maxFloat64Leaf(x []float64) float64 {
	switch {
	case simd.HasAVX512:
		return asm.MaxFloat64AVX512(&x[0], len(x))
	case simd.HasAVX2:
		return asm.MaxFloat64AVX2(&x[0], len(x))
	}
	return maxFloat64Generic(x)
}

func maxCentreLeaf(lower, upper []float32) float32 {
	switch {
	case simd.HasAVX512:
		return asm.MaxCentreAVX512(&lower[0], &upper[0], len(lower))
	case simd.HasAVX2:
		return asm.MaxCentreAVX2(&lower[0], &upper[0], len(lower))
	}
	return maxCentreGeneric(lower, upper)
}

func expCentresLeaf(lane *[centreLanes]float64, lower, upper []float32, m, scale float32) {
	switch {
	case simd.HasAVX512:
		asm.ExpCentresAVX512(&lane[0], &lower[0], &upper[0], len(lower), m, scale)
	case simd.HasAVX2:
		asm.ExpCentresAVX2(&lane[0], &lower[0], &upper[0], len(lower), m, scale)
	default:
		expCentresGeneric(lane, lower, upper, m, scale)
	}
}

func maxAbsBits16Leaf(x []uint16) uint32 {
	switch {
	case simd.HasAVX512:
		return asm.MaxAbsBits16AVX512(&x[0], len(x))
	case simd.HasAVX2:
		return asm.MaxAbsBits16AVX2(&x[0], len(x))
	}
	return maxAbsBits16Generic(x)
}

func encodeLeaf(codes []int8, x []float32, inv, most float32) (s encodeSums) {
	switch {
	case simd.HasAVX512:
		s.err2, s.norm2 = asm.EncodeAVX512(&codes[0], &x[0], len(x), inv, most)
	case simd.HasAVX2:
		s.err2, s.norm2 = asm.EncodeAVX2(&codes[0], &x[0], len(x), inv, most)
	default:
		return encodeGeneric(codes, x, inv, most)
	}
	return s
}

// The leaves of codes take rows in blocks of codesBlock for one context, and of
// batchBlock for as many as batchContexts says, which share the load of a row.
// AVX-512 without VNNI runs the forms of AVX2.

func codesBlock() int {
	switch {
	case simd.HasVNNI:
		return 16
	case simd.HasAVX2:
		return 8
	}
	return 1
}

func batchBlock() int {
	if simd.HasAVX2 {
		return 4
	}
	return 1
}

// batchContexts returns the number of contexts for n rows.
func batchContexts(n int) int {
	switch {
	case n < batchBlock():
		return 1
	case simd.HasAVX2 && !simd.HasVNNI:
		return 2
	}
	return BatchContexts
}

// excess8 returns what the sums of the products of 8-bit rows with v hold beyond
// the sums of the codes: AVX2 takes the rows' 128 out beforehand, but the sign of v
// goes to the row by a complement.
func excess8(v *Int8Vector) int32 {
	if simd.HasVNNI {
		return codeBias * v.sum
	}
	return v.below
}

func excess4(v *Int8Vector) int32 { return code4Bias * v.sum }

// minStream is the size of a record from which it is faster to read rows one by one
// than four side by side.
const minStream = 512

func int8Leaf(lower, upper *float32, m *codeRows, first int, ids *uint32, n int, b *bound) {
	p, stride, arg := &m.data[first*m.stride], m.stride, (*byte)(unsafe.Pointer(b))
	switch {
	case ids != nil && simd.HasVNNI:
		asm.Int8GatherBoundsAVX512(lower, upper, p, stride, ids, n, arg)
	case simd.HasVNNI && stride >= minStream:
		asm.Int8BoundsStreamAVX512(lower, upper, p, stride, n, arg)
	case simd.HasVNNI:
		asm.Int8BoundsAVX512(lower, upper, p, stride, n, arg)
	case ids != nil && simd.HasAVX2:
		asm.Int8GatherBoundsAVX2(lower, upper, p, stride, ids, n, arg)
	case simd.HasAVX2:
		asm.Int8BoundsAVX2(lower, upper, p, stride, n, arg)
	default:
		codesGeneric(lower, upper, m, first, ids, n, b)
	}
}

func panelLeaf(lower, upper *float32, data []byte, n int, p *Int8Panels, b *bound) {
	switch arg := (*byte)(unsafe.Pointer(b)); {
	case simd.HasVNNI:
		asm.Int8PanelBoundsAVX512(lower, upper, &data[0], n, p.steps, arg)
	case simd.HasAVX2:
		asm.Int8PanelBoundsAVX2(lower, upper, &data[0], n, p.steps, arg)
	default:
		panelGeneric(lower, upper, data, n, p, b)
	}
}

func int4Leaf(lower, upper *float32, m *codeRows, first, n int, b *bound) {
	p, stride, arg := &m.data[first*m.stride], m.stride, (*byte)(unsafe.Pointer(b))
	switch {
	case simd.HasVNNI && stride >= minStream:
		asm.Int4BoundsStreamAVX512(lower, upper, p, stride, n, arg)
	case simd.HasVNNI:
		asm.Int4BoundsAVX512(lower, upper, p, stride, n, arg)
	case simd.HasAVX2:
		asm.Int4BoundsAVX2(lower, upper, p, stride, n, arg)
	default:
		codesGeneric(lower, upper, m, first, nil, n, b)
	}
}

func batchLeaf(lower, upper *float32, ld int, m *codeRows, first int, ids *uint32, n int, b *batchBound) {
	p, stride, contexts, arg := &m.data[first*m.stride], m.stride, len(b.vs), (*byte)(unsafe.Pointer(b))
	switch {
	case ids != nil && simd.HasVNNI:
		asm.Int8GatherBoundsBatchAVX512(lower, upper, ld, contexts, p, stride, ids, n, arg)
	case simd.HasVNNI:
		asm.Int8BoundsBatchAVX512(lower, upper, ld, contexts, p, stride, n, arg)
	case ids != nil && simd.HasAVX2:
		asm.Int8GatherBoundsBatchAVX2(lower, upper, ld, contexts, p, stride, ids, n, arg)
	case simd.HasAVX2:
		asm.Int8BoundsBatchAVX2(lower, upper, ld, contexts, p, stride, n, arg)
	default:
		batchGeneric(lower, upper, ld, m, first, ids, n, b)
	}
}
