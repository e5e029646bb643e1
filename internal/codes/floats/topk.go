package floats

import (
	"math"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/kernels/asm"
)

// TopK selects the k largest scores, k = len(ids) = len(vals): ids[0] is the
// index of the largest, vals[0] its score, and so on in descending order. Of
// equal scores the lower index comes first. k must not exceed len(scores).
// If scores hold a NaN it is undefined which indices are selected.
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
	// ids and vals are a binary heap with the worst entry at the root. Most scores do not beat the
	// threshold: nextAbove skips over them. The threshold is the root's score or, until the heap is
	// full, just below a bound on the k-th largest. Scores come in order of their index, so an
	// equal score never replaces an earlier one.
	i, m := 0, 0
	threshold := float32(math.Inf(-1))
	if bound, ok := kernels.KthBound(scores, k); ok {
		threshold = math.Nextafter32(bound, threshold)
	}
	if math.IsInf(float64(threshold), -1) {
		for ; m < k; m++ {
			ids[m], vals[m] = uint32(m), scores[m]
		}
		heapify(ids, vals)
		i, threshold = k, vals[0]
	}
	for i += nextAbove(scores[i:], threshold); i < len(scores); i += 1 + nextAbove(scores[i+1:], threshold) {
		if m < k {
			ids[m], vals[m] = uint32(i), scores[i]
			if m++; m < k {
				continue
			}
			heapify(ids, vals)
		} else {
			ids[0], vals[0] = uint32(i), scores[i]
			siftDown(ids, vals, 0)
		}
		threshold = vals[0]
	}
	if m < k {
		// NaNs among the scores: the selection means nothing, but consists of indices of scores.
		for i := range k {
			ids[i], vals[i] = uint32(i), scores[i]
		}
	}
	for n := k - 1; n > 0; n-- {
		ids[0], ids[n] = ids[n], ids[0]
		vals[0], vals[n] = vals[n], vals[0]
		siftDown(ids[:n], vals[:n], 0)
	}
}

func heapify(ids []uint32, vals []float32) {
	for i := len(ids)/2 - 1; i >= 0; i-- {
		siftDown(ids, vals, i)
	}
}

// worse orders by the smaller score, then by the higher index.
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

// nextAbove returns the first i with scores[i] > threshold, or len(scores).
func nextAbove(scores []float32, threshold float32) int {
	whole := len(scores) &^ 15
	for at, end := range kernels.Calls(whole, kernels.MaxCallBytes/4) {
		part := scores[at:end]
		i, ok := asm.NextAbove(&part[0], len(part), threshold)
		if !ok {
			i = nextAboveGeneric(part, threshold)
		}
		kernels.RaceReads(part[:min(i&^15+16, len(part))])
		if i < len(part) {
			return at + i
		}
	}
	return whole + nextAboveGeneric(scores[whole:], threshold)
}

func nextAboveGeneric(scores []float32, threshold float32) int {
	for i, s := range scores {
		if s > threshold {
			return i
		}
	}
	return len(scores)
}
