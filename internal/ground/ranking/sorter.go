package ranking

import (
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/ground/mem"
)

// Sorter puts predictions in order. Its memory grows to the need of the largest Sort, and stays.
type Sorter struct {
	spare []Prediction
	ends  []uint32     // of the parts of the range
	order []Prediction // of Best
}

const (
	mostParts    = 4096 // of a range
	mostInserted = 12   // predictions of a part that are put in order by insertion
)

// Best fills dst with the best of the labels ids, or 0, 1, ... if there are no ids, whose logits are
// given. There are at least len(dst) of them.
func (s *Sorter) Best(dst []Prediction, logits []float64, ids []uint32) {
	s.order = mem.Grow(s.order, len(logits))
	for i, x := range logits {
		if s.order[i] = (Prediction{uint32(i), x}); len(ids) > 0 {
			s.order[i].ID = ids[i]
		}
	}
	s.order = s.Sort(s.order)
	copy(dst, s.order)
}

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
	s.ends = mem.Grow(s.ends, min(2*len(x), mostParts))
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
	sorted := mem.Grow(s.spare, len(x))
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
			Insert(same[:i+1], i, same[i])
		}
	}
	s.spare = x
	return sorted
}
