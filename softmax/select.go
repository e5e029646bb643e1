package softmax

import (
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/grow"
)

const (
	// maxInserted is the largest k for which it is faster to keep the best in order
	// than in a heap.
	maxInserted = 16
	// maxHeaped is the share of the labels above which it is faster to put all in
	// order.
	maxHeaped = 0.125
)

// selectTop fills dst with the best of the labels ids, or first, first+1, ... if
// there are no ids, whose logits are given. There are at least len(dst) of them.
func (s *Searcher) selectTop(dst []Prediction, logits []float64, ids []uint32, first int) {
	if len(dst) == 0 {
		return
	}
	at := func(i int) Prediction {
		if len(ids) > 0 {
			return Prediction{ids[i], logits[i]}
		}
		return Prediction{uint32(first + i), logits[i]}
	}
	if len(dst) <= maxInserted {
		n := 0
		for i := range logits {
			n = insert(dst, n, at(i))
		}
		return
	}
	if float64(len(dst)) > maxHeaped*float64(len(logits)) {
		s.order = grow.Slice(s.order, len(logits))
		for i := range s.order {
			s.order[i] = at(i)
		}
		s.sort()
		copy(dst, s.order)
		return
	}
	// dst is a heap with the worst prediction at the root.
	for i := range dst {
		dst[i] = at(i)
	}
	for i := len(dst)/2 - 1; i >= 0; i-- {
		siftDown(dst, i)
	}
	for i := len(dst); i < len(logits); i++ {
		if x := at(i); x.before(dst[0]) {
			dst[0] = x
			siftDown(dst, 0)
		}
	}
	for n := len(dst) - 1; n > 0; n-- {
		dst[0], dst[n] = dst[n], dst[0]
		siftDown(dst[:n], 0)
	}
}

const (
	// maxBuckets is the number of predictions up to which the sort by buckets pays, and the
	// insertion behind it is quick whatever they are.
	maxBuckets = 1024
	buckets    = 256
)

// sort puts s.order in order. Buckets of equal parts of the range of the logits leave few
// predictions out of place, which are inserted: no comparison of logits in no order,
// which a CPU cannot predict.
func (s *Searcher) sort() {
	largest, least := math.Inf(-1), math.Inf(1)
	for _, p := range s.order {
		largest, least = max(largest, p.Logit), min(least, p.Logit)
	}
	scale := (buckets - 1) / (largest - least)
	if len(s.order) > maxBuckets || !(scale > 0 && scale < math.MaxFloat64) {
		slices.SortFunc(s.order, comparePredictions)
		return
	}
	s.spare = grow.Slice(s.spare, len(s.order))
	bucket := func(x float64) uint8 { return uint8(int((largest - x) * scale)) }
	var next [buckets]uint32
	for i := range s.order {
		next[bucket(s.order[i].Logit)]++
	}
	at := uint32(0)
	for b, n := range next {
		next[b] = at
		at += n
	}
	for _, p := range s.order {
		b := bucket(p.Logit)
		s.spare[next[b]] = p
		next[b]++
	}
	s.order, s.spare = s.spare, s.order
	for i := 1; i < len(s.order); i++ {
		insert(s.order[:i+1], i, s.order[i])
	}
}

// comparePredictions puts the better one first.
func comparePredictions(a, b Prediction) int {
	switch {
	case a.before(b):
		return -1
	case a == b:
		return 0
	}
	return 1
}

func siftDown(heap []Prediction, i int) {
	for {
		c := 2*i + 1
		if c >= len(heap) {
			return
		}
		if c+1 < len(heap) && heap[c].before(heap[c+1]) {
			c++
		}
		if heap[c].before(heap[i]) {
			return
		}
		heap[i], heap[c] = heap[c], heap[i]
		i = c
	}
}
