//go:build !amd64 || purego

package kernels

func dot(x, y []float32) float32                               { return dotGeneric(x, y) }
func scan(dst, rows, h []float32)                              { scanGeneric(dst, rows, h) }
func add(dst, x []float32)                                     { addGeneric(dst, x) }
func gatherDot(dst, rows []float32, ids []uint32, h []float32) { gatherDotGeneric(dst, rows, ids, h) }
func maxID(ids []uint32) uint32                                { return maxIDGeneric(ids) }
func argmaxDot(rows, h []float32) (int, float32)               { return argmaxDotGeneric(rows, h) }
func refDot(x, y []float32) float64                            { return refDotGeneric(x, y) }
func refScan(dst []float64, rows, h []float32)                 { refScanGeneric(dst, rows, h) }
func refGatherDot(dst []float64, rows []float32, ids []uint32, h []float32) {
	refGatherDotGeneric(dst, rows, ids, h)
}
func axpy(dst []float64, a float32, x []float32)        { axpyGeneric(dst, a, x) }
func nextAbove(scores []float32, threshold float32) int { return nextAboveGeneric(scores, threshold) }
func kthOfLanes(scores []float32, k int) float32        { return kthOfLanesGeneric(scores, k) }
func selectAtLeast(dst []uint32, scores []float32, threshold float32) int {
	return selectAtLeastGeneric(dst, scores, threshold)
}
func expBlocks(lane *[expLanes]float64, dst, x []float64, m float64) {
	expBlocksGeneric(lane, dst, x, m)
}
func maxFloat64(x []float64) float64 { return maxFloat64Generic(x) }
func maxAbsBits(x []float32) uint32  { return maxAbsBitsGeneric(x) }
func quantize(codes []int8, h []float32, inv float32, sums *quantSums) {
	quantizeGeneric(codes, h, inv, sums)
}
func int8Bounds(lower, upper []float32, data []byte, stride int, b *bound) {
	int8BoundsGeneric(lower, upper, data, stride, b)
}
func int8GatherBounds(lower, upper []float32, data []byte, stride int, ids []uint32, b *bound) {
	int8GatherBoundsGeneric(lower, upper, data, stride, ids, b)
}
func (m *Int8Rows) batchKernel(lower, upper []float32, ids []uint32, n int, vs []*Int8Vector) int {
	return 0
}

func int4Bounds(lower, upper []float32, data []byte, stride int, b *bound) {
	int4BoundsGeneric(lower, upper, data, stride, b)
}
