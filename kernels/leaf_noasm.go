//go:build !(amd64 || arm64) || purego

package kernels

import "unsafe"

// The leaves of CPUs without assembly are the plain Go forms.

func scanLeaf(dst, rows, h []float32, stream bool) { scanGeneric(dst, rows, h) }
func addLeaf(dst, x []float32)                     { addGeneric(dst, x) }
func gatherDotLeaf(dst, rows []float32, ids []uint32, h []float32) {
	gatherDotGeneric(dst, rows, ids, h)
}
func maxIDLeaf(ids []uint32) uint32                  { return maxIDGeneric(ids) }
func argmaxDotLeaf(rows, h []float32) (int, float32) { return argmaxDotGeneric(rows, h) }
func refScanLeaf(dst []float64, m Rows, h []float32) { m.refScanGeneric(dst, h) }
func refGatherDotLeaf(dst []float64, m Rows, ids []uint32, h []float32) {
	m.refGatherDotGeneric(dst, ids, h)
}
func widenLeaf(dst []float32, x []uint16, e Element) { widenGeneric(dst, x, e) }
func maxAbsBits16Leaf(x []uint16) uint32             { return maxAbsBits16Generic(x) }
func axpyLeaf(dst []float64, a float32, x []float32) { axpyGeneric(dst, a, x) }
func kthOfLanesLeaf(lane *[laneCount]float32, scores []float32, k int) float32 {
	return kthOfLanesGeneric(lane, scores, k)
}
func nextAboveLeaf(scores []float32, threshold float32) int {
	return nextAboveGeneric(scores, threshold)
}
func selectAtLeastLeaf(dst []uint32, scores []float32, threshold float32) int {
	return selectAtLeastGeneric(dst, scores, threshold)
}
func expLeaf(lane *[expLanes]float64, dst, x []float64, m float64) { expBlocksGeneric(lane, dst, x, m) }
func maxFloat64Leaf(x []float64) float64                           { return maxFloat64Generic(x) }
func maxCentreLeaf(lower, upper []float32) float32                 { return maxCentreGeneric(lower, upper) }
func expCentresLeaf(lane *[centreLanes]float64, lower, upper []float32, m, scale float32) {
	expCentresGeneric(lane, lower, upper, m, scale)
}
func maxAbsBitsLeaf(x []float32) uint32 { return maxAbsBitsGeneric(x) }
func quantizeLeaf(codes []int8, h []float32, inv float32) quantSums {
	return quantizeGeneric(codes, h, inv)
}
func encodeLeaf(codes []int8, x []float32, inv, most float32) encodeSums {
	return encodeGeneric(codes, x, inv, most)
}

func prefetchLinesLeaf([]unsafe.Pointer) {}

func codesBlock() int           { return 1 }
func batchBlock() int           { return 1 }
func batchContexts(int) int     { return BatchContexts }
func excess8(*Int8Vector) int32 { return 0 }
func excess4(*Int8Vector) int32 { return 0 }
func int8Leaf(lower, upper *float32, m *codeRows, first int, ids *uint32, n int, b *bound) {
	codesGeneric(lower, upper, m, first, ids, n, b)
}
func int4Leaf(lower, upper *float32, m *codeRows, first, n int, b *bound) {
	codesGeneric(lower, upper, m, first, nil, n, b)
}
func batchLeaf(lower, upper *float32, ld int, m *codeRows, first int, ids *uint32, n int, b *batchBound) {
	batchGeneric(lower, upper, ld, m, first, ids, n, b)
}
func panelLeaf(lower, upper *float32, data []byte, n int, p *Int8Panels, b *bound) {
	panelGeneric(lower, upper, data, n, p, b)
}

func survivorsLeaf(lower, upper []float32, rows []uint32, data []byte, panels, k int, p *Int8Panels, b *bound) int {
	return survivorsByLeaves(lower, upper, rows, data, panels, k, p, b)
}
