package kernels

import "math"

// TopK selects the k largest scores, k = len(ids) = len(vals): ids[0] is the
// index of the largest, vals[0] its score, and so on in descending order. Of
// equal scores the lower index comes first. k must not exceed len(scores),
// which must not hold a NaN.
func TopK(ids []uint32, vals, scores []float32) {
	k := len(ids)
	if len(vals) != k {
		panic("kernels: TopK: lengths of ids and vals differ")
	}
	if k > len(scores) {
		panic("kernels: TopK: k is larger than the number of scores")
	}
	if uint64(len(scores)) > math.MaxUint32 {
		panic("kernels: TopK: more scores than 32-bit indices")
	}
	if k == 0 {
		return
	}
	// ids and vals are a binary heap with the worst entry (smallest score,
	// then highest index) at the root. Most scores do not beat the root:
	// nextAbove skips over them. Scores come in order of their index, so an
	// equal one never displaces one that is there.
	for i := range k {
		ids[i], vals[i] = uint32(i), scores[i]
	}
	for i := k/2 - 1; i >= 0; i-- {
		siftDown(ids, vals, i)
	}
	for i := k; ; i++ {
		i += nextAbove(scores[i:], vals[0])
		if i == len(scores) {
			break
		}
		ids[0], vals[0] = uint32(i), scores[i]
		siftDown(ids, vals, 0)
	}
	for n := k - 1; n > 0; n-- {
		ids[0], ids[n] = ids[n], ids[0]
		vals[0], vals[n] = vals[n], vals[0]
		siftDown(ids[:n], vals[:n], 0)
	}
}

func worse(ids []uint32, vals []float32, i, j int) bool {
	return vals[i] < vals[j] || vals[i] == vals[j] && ids[i] > ids[j]
}

func siftDown(ids []uint32, vals []float32, i int) {
	for {
		c := 2*i + 1
		if c >= len(ids) {
			return
		}
		if c+1 < len(ids) && worse(ids, vals, c+1, c) {
			c++
		}
		if worse(ids, vals, i, c) {
			return
		}
		ids[i], ids[c] = ids[c], ids[i]
		vals[i], vals[c] = vals[c], vals[i]
		i = c
	}
}

// nextAboveGeneric returns the first i with scores[i] > threshold, or
// len(scores).
func nextAboveGeneric(scores []float32, threshold float32) int {
	for i, s := range scores {
		if s > threshold {
			return i
		}
	}
	return len(scores)
}

// SelectAtLeast writes the indices of the scores that are at least threshold
// to dst, ascending, and returns their number. dst must have room for
// len(scores) of them; what lies behind the ones returned is overwritten at
// will.
func SelectAtLeast(dst []uint32, scores []float32, threshold float32) int {
	if len(dst) < len(scores) {
		panic("kernels: SelectAtLeast: dst is shorter than scores")
	}
	if uint64(len(scores)) > math.MaxUint32 {
		panic("kernels: SelectAtLeast: more scores than 32-bit indices")
	}
	return selectAtLeast(dst, scores, threshold)
}

func selectAtLeastGeneric(dst []uint32, scores []float32, threshold float32) int {
	n := 0
	for i, s := range scores {
		if s >= threshold {
			dst[n] = uint32(i)
			n++
		}
	}
	return n
}
