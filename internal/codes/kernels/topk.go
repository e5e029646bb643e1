package kernels

import (
	"math"
	"slices"
)

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

// lanesOf writes the largest scores of the parts of a multiple of 16 scores, if there are any.
func lanesOf(lane *[laneCount]float32, scores []float32) {
	for c := callsOf(len(scores), MaxCallBytes/4); c.at < c.n; c = c.next() {
		RaceReads(scores[c.at:c.end])
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
	if whole == len(scores) && whole <= MaxCallBytes/4 {
		RaceReads(scores)
		return kthOfLanesLeaf(&lane, scores, k)
	}
	for i := range lane {
		lane[i] = float32(math.Inf(-1))
	}
	lanesOf(&lane, scores[:whole]) // writes nothing for none
	for i, s := range scores[whole:] {
		lane[i] = max(lane[i], s)
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
	for c := callsOf(whole, MaxCallBytes/16); c.at < c.n; c = c.next() {
		part := dst[n : n+c.end-c.at] // n <= c.at
		RaceReads(scores[c.at:c.end])
		RaceWrites(part)
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
