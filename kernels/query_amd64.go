//go:build amd64 && !purego

package kernels

import (
	"unsafe"

	"github.com/learning-to-screen/l2s/internal/simd"
	"github.com/learning-to-screen/l2s/kernels/asm"
)

// The leaves of query.go, beside it.

func maxAbsBitsLeaf(x []float32) uint32 {
	switch {
	case simd.HasAVX512:
		return asm.MaxAbsBitsAVX512(&x[0], len(x))
	case simd.HasAVX2:
		return asm.MaxAbsBitsAVX2(&x[0], len(x))
	}
	return maxAbsBitsGeneric(x)
}

func quantizeLeaf(codes []int8, h []float32, inv float32) (s quantSums) {
	switch {
	case simd.HasAVX512:
		s.norm2, s.err2, s.code, s.below = asm.QuantizeAVX512(&codes[0], &h[0], len(h), inv)
	case simd.HasAVX2:
		s.norm2, s.err2, s.code, s.below = asm.QuantizeAVX2(&codes[0], &h[0], len(h), inv)
	default:
		return quantizeGeneric(codes, h, inv)
	}
	return s
}

// survivorsLeaf chooses once for three operations. The bound is KthBound's: the lower ends after
// the rows are -Inf.
func survivorsLeaf(lower, upper []float32, rows []uint32, data []byte, panels, k int, p *Int8Panels, b *bound) int {
	if !simd.HasVNNI {
		return survivorsByLeaves(lower, upper, rows, data, panels, k, p, b)
	}
	var lane [laneCount]float32
	asm.Int8PanelBoundsAVX512(&lower[0], &upper[0], &data[0], panels, p.steps, (*byte)(unsafe.Pointer(b)))
	threshold := asm.KthOfLanesAVX512(&lane[0], &lower[0], PanelRows*panels, k)
	return asm.SelectAtLeastAVX512(&rows[0], &upper[0], PanelRows*panels, threshold)
}

func refGatherDotLeaf(dst []float64, m Rows, ids []uint32, h []float32) {
	out, id, n, y, d, wide := &dst[0], &ids[0], len(ids), &h[0], m.dim, simd.HasAVX512
	switch {
	case m.element == Float32 && wide:
		asm.RefGatherDotAVX512(out, (*float32)(m.data), id, n, y, d)
	case !simd.HasAVX2:
		m.refGatherDotGeneric(dst, ids, h)
	case m.element == Float32:
		asm.RefGatherDotAVX2(out, (*float32)(m.data), id, n, y, d)
	case m.element == Float16 && wide:
		asm.RefGatherDotF16AVX512(out, (*uint16)(m.data), id, n, y, d)
	case m.element == Float16:
		asm.RefGatherDotF16AVX2(out, (*uint16)(m.data), id, n, y, d)
	case m.element == Q8_0 && wide:
		asm.RefGatherDotQ80AVX512(out, (*byte)(m.data), id, n, y, d)
	case m.element == Q8_0:
		asm.RefGatherDotQ80AVX2(out, (*byte)(m.data), id, n, y, d)
	case m.element == Q6_K && wide:
		asm.RefGatherDotQ6KAVX512(out, (*byte)(m.data), id, n, y, d)
	case m.element == Q6_K:
		asm.RefGatherDotQ6KAVX2(out, (*byte)(m.data), id, n, y, d)
	case wide:
		asm.RefGatherDotBF16AVX512(out, (*uint16)(m.data), id, n, y, d)
	default:
		asm.RefGatherDotBF16AVX2(out, (*uint16)(m.data), id, n, y, d)
	}
}
