package exact

import (
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/grow"
)

const (
	// maxInserted is the largest k for which insertion is faster than a heap.
	maxInserted = 16
	// maxHeaped is the share of labels above which it is faster to order all.
	maxHeaped = 0.125
)

// selectMany is selectTop for any number of labels.
func (s *Searcher) selectMany(dst []Prediction, logits []float64, ids []uint32) {
	if len(dst) == 0 {
		return
	}
	at := func(i int) Prediction {
		if len(ids) > 0 {
			return Prediction{ids[i], logits[i]}
		}
		return Prediction{uint32(i), logits[i]}
	}
	if float64(len(dst)) > maxHeaped*float64(len(logits)) {
		s.order = grow.Slice(s.order, len(logits))
		for i := range s.order {
			s.order[i] = at(i)
		}
		s.order = s.sorter.Sort(s.order)
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

// Sorter puts predictions in order. Its memory grows to the need of the largest Sort, and stays.
type Sorter struct {
	spare []Prediction
	ends  []uint32 // of the parts of the range
}

const (
	mostParts    = 4096 // of a range
	mostInserted = 12   // predictions of a part that are put in order by insertion
)

// Sort returns the predictions in order, the best first, in their own memory or in the sorter's,
// which keeps the other. Equal parts of the range of the logits, two for a prediction, leave few to
// compare: a CPU could not foretell how comparisons end.
func (s *Sorter) Sort(x []Prediction) []Prediction {
	largest, least := math.Inf(-1), math.Inf(1)
	for _, p := range x {
		if p.Logit > largest {
			largest = p.Logit
		}
		if p.Logit < least {
			least = p.Logit
		}
	}
	s.ends = grow.Slice(s.ends, min(2*len(x), mostParts))
	scale := float64(len(s.ends)-1) / (largest - least)
	if !(scale > 0 && scale < math.MaxFloat64) {
		slices.SortFunc(x, Compare)
		return x
	}
	clear(s.ends)
	part := func(x float64) int { return int((largest - x) * scale) }
	for _, p := range x {
		s.ends[part(p.Logit)]++
	}
	end := uint32(0)
	for i, n := range s.ends { // for now where a part begins
		s.ends[i] = end
		end += n
	}
	sorted := grow.Slice(s.spare, len(x))
	for _, p := range x {
		at := &s.ends[part(p.Logit)]
		sorted[*at] = p
		*at++
	}
	first := uint32(0)
	for _, end := range s.ends {
		same := sorted[first:end]
		if first = end; len(same) > mostInserted {
			slices.SortFunc(same, Compare)
			continue
		}
		for i := 1; i < len(same); i++ {
			insert(same[:i+1], i, same[i])
		}
	}
	s.spare = x
	return sorted
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
