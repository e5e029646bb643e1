package sample

import (
	"math"

	"github.com/learning-to-screen/l2s/internal/grow"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
)

// The logits of all labels are put in buckets, from the largest down, so that only those
// of one bucket need be put in order to find where a nucleus ends.
const (
	nucleusBuckets = 1024
	nucleusSteps   = 16 // buckets to a factor of e of the probability
)

// drawAll draws from all labels, which are the pool, or from those that top-p keeps at a
// temperature.
func (s *Sampler) drawAll(temperature float64, nucleus bool, u float64) (Token, error) {
	x := s.pool.logits
	largest := s.pool.largest()
	if math.IsInf(largest, -1) {
		return Token{}, errNone
	}
	logSum := s.weigh(x, largest, temperature)
	if nucleus {
		last := s.lastOfNucleus(x, largest, temperature)
		if t := s.temperature; t != temperature {
			temperature = t
			logSum = s.weigh(x, largest, temperature)
		}
		for id, v := range x {
			if v < last.Logit || v == last.Logit && uint32(id) > last.ID {
				s.terms[id] = 0
			}
		}
		kept := sumOf(s.terms)
		for id := range s.terms {
			s.terms[id] /= kept
		}
		logSum += kernels.Log(kept)
	}
	var id uint32
	if len(s.proposed) > 0 && s.takes(s.proposed[0].ID, s.terms[s.proposed[0].ID]) {
		id = s.proposed[0].ID
	} else {
		id = uint32(s.pick(u, func(i int) uint32 { return uint32(i) }))
	}
	return Token{ID: id, LogProb: min((x[id]-largest)/temperature-logSum, 0)}, nil
}

// lastOfNucleus returns the last of the fewest first labels that hold the share TopP,
// whose probabilities at a temperature are s.terms.
func (s *Sampler) lastOfNucleus(x []float64, largest, temperature float64) softmax.Prediction {
	s.places = grow.Slice(s.places, len(x))
	if s.buckets == nil {
		s.buckets = new([nucleusBuckets]float64)
	}
	clear(s.buckets[:])
	scale := min(nucleusSteps/temperature, math.MaxFloat64)
	for i, v := range x {
		b := uint16(min((largest-v)*scale, nucleusBuckets-1))
		s.places[i] = b
		s.buckets[b%nucleusBuckets] += s.terms[i]
	}
	end, sum := 0, 0.0
	for end < nucleusBuckets-1 && sum+s.buckets[end] < s.o.TopP {
		sum += s.buckets[end]
		end++
	}
	s.head = s.head[:0]
	for i, b := range s.places {
		if int(b) == end {
			s.head = append(s.head, softmax.Prediction{ID: uint32(i), Logit: x[i]})
		}
	}
	s.head = s.sorter.Sort(s.head)
	last := softmax.Prediction{ID: math.MaxUint32, Logit: -math.MaxFloat64} // all, if roundings leave less than the share
	for _, p := range s.head {
		last = p
		if sum += s.terms[p.ID]; sum >= s.o.TopP {
			break
		}
	}
	return last
}
