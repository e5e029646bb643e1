package kernels

import (
	"math"
	"slices"

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
	if bound, ok := KthBound(scores, k); ok {
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

// laneCount is the number of interleaved parts that KthBound looks at.
const laneCount = 16

// The parts that KthBound looks at for a k above 16: 16 interleaved ones of each of several blocks,
// at least 2k.
const (
	maxBlocks  = 64
	blockShare = laneCount / 2 // of k, for a block
	leastBlock = 2 * laneCount // scores
)

// KthBound returns a number that at least k of the scores reach, and usually few more: the k-th
// largest of the largest scores of 16 interleaved parts, and for k > 16 of the parts of several
// blocks of the scores. It takes a fraction of the time of TopK. Whether it has an answer depends
// on its arguments' sizes alone: it has none (false) for fewer than k scores, for k > 512, and for
// k > 16 unless there are about 4k scores. k must be at least 1, and no score a NaN.
func KthBound(scores []float32, k int) (bound float32, ok bool) {
	if k < 1 {
		panic("kernels: KthBound: k is less than 1")
	}
	if k <= laneCount {
		if len(scores) < k {
			return 0, false
		}
		return kthOfLanes(scores, k), true
	}
	blocks := (k + blockShare - 1) / blockShare
	if blocks > maxBlocks || len(scores)/blocks < leastBlock {
		return 0, false
	}
	var largest [maxBlocks * laneCount]float32
	size := len(scores) / blocks &^ (laneCount - 1)
	for i := range blocks {
		lanesOf((*[laneCount]float32)(largest[i*laneCount:]), scores[i*size:(i+1)*size])
	}
	return KthLargest(largest[:blocks*laneCount], k), true
}

// lanesOf writes the largest scores of the parts of a positive multiple of 16 scores.
func lanesOf(lane *[laneCount]float32, scores []float32) {
	for c := callsOf(len(scores), maxCallBytes/4); c.at < c.n; c = c.next() {
		raceReads(scores[c.at:c.end])
		if c.at == 0 {
			kthOfLanesLeaf(lane, scores[:c.end], 1)
			continue
		}
		var part [laneCount]float32
		kthOfLanesLeaf(&part, scores[c.at:c.end], 1)
		for j, s := range part {
			lane[j] = max(lane[j], s)
		}
	}
}

// KthLargest returns the k-th largest of the scores, 1 <= k <= len(scores), and puts them in
// another order (Hoare's selection). No score may be a NaN.
func KthLargest(scores []float32, k int) float32 {
	if k < 1 || k > len(scores) {
		panic("kernels: KthLargest: k is not within 1 and the number of scores")
	}
	for {
		pivot := medianOf(scores[0], scores[len(scores)/2], scores[len(scores)-1])
		at, larger := ordered(pivot), 0 // A CPU could not predict a branch on a score: there is none.
		for i, x := range scores {
			scores[i], scores[larger] = scores[larger], x
			larger += negative(at - ordered(x))
		}
		switch {
		case k <= larger:
			scores = scores[:larger]
			continue
		case k == larger+1:
			return pivot
		case larger > 0:
			scores, k = scores[larger:], k-larger
			continue
		}
		equal := 0 // The pivot is the largest. Its equals are removed at once, since many would make it slow.
		for i, x := range scores {
			if x == pivot {
				scores[i], scores[equal] = scores[equal], x
				equal++
			}
		}
		if k <= equal || equal == 0 { // a NaN: the selection means nothing
			return pivot
		}
		scores, k = scores[equal:], k-equal
	}
}

// ordered is a number that orders as x does, with -0 before 0.
func ordered(x float32) int64 {
	bits := int32(math.Float32bits(x))
	return int64(bits ^ int32(uint32(bits>>31)>>1))
}

// negative is 1 for a negative x, 0 otherwise.
func negative(x int64) int { return int(uint64(x) >> 63) }

func medianOf(a, b, c float32) float32 {
	return max(min(a, b), min(max(a, b), c))
}

// kthOfLanes returns the k-th largest of the largest scores of the parts, at least k of which have
// scores.
func kthOfLanes(scores []float32, k int) float32 {
	var lane, order [laneCount]float32
	whole := len(scores) &^ (laneCount - 1)
	if whole == len(scores) && whole <= maxCallBytes/4 {
		raceReads(scores)
		return kthOfLanesLeaf(&lane, scores, k)
	}
	if whole > 0 {
		lanesOf(&lane, scores[:whole])
	} else {
		for i := range lane {
			lane[i] = float32(math.Inf(-1))
		}
	}
	for i, s := range scores[whole:] {
		if s > lane[i] {
			lane[i] = s
		}
	}
	return kthOfLanesLeaf(&order, lane[:], k)
}

// kthOfLanesGeneric is kthOfLanesLeaf in plain Go.
func kthOfLanesGeneric(lane *[laneCount]float32, scores []float32, k int) float32 {
	copy(lane[:], scores)
	for i, s := range scores {
		if s > lane[i%laneCount] {
			lane[i%laneCount] = s
		}
	}
	sorted := *lane
	slices.Sort(sorted[:])
	return sorted[laneCount-k]
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
	for c := callsOf(whole, maxCallBytes/4); c.at < c.n; c = c.next() {
		part := scores[c.at:c.end]
		i, ok := asm.NextAbove(&part[0], len(part), threshold)
		if !ok {
			i = nextAboveGeneric(part, threshold)
		}
		raceReads(part[:min(i&^15+16, len(part))])
		if i < len(part) {
			return c.at + i
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

// SelectAtLeast writes the indices of the scores that are at least threshold to dst, ascending, and
// returns their number. dst has room for len(scores) of them; the rest may be overwritten.
func SelectAtLeast(dst []uint32, scores []float32, threshold float32) int {
	if len(dst) < len(scores) {
		panic("kernels: SelectAtLeast: dst is shorter than scores")
	}
	if uint64(len(scores)) > math.MaxUint32 {
		panic("kernels: SelectAtLeast: more scores than 32-bit indices")
	}
	n, whole := 0, len(scores)&^15
	// A call writes the number of bytes that it reads, and at random places.
	for c := callsOf(whole, maxCallBytes/16); c.at < c.n; c = c.next() {
		part := dst[n : n+c.end-c.at] // n <= c.at
		raceReads(scores[c.at:c.end])
		raceWrites(part)
		n += shift(part[:selectAtLeastLeaf(part, scores[c.at:c.end], threshold)], c.at)
	}
	rest := dst[n:len(scores)]
	return n + shift(rest[:selectAtLeastGeneric(rest, scores[whole:], threshold)], whole)
}

// shift adds by to the indices and returns their number.
func shift(ids []uint32, by int) int {
	if by > 0 {
		for j := range ids {
			ids[j] += uint32(by)
		}
	}
	return len(ids)
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
