package sample

import (
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// A nucleus of all labels does not need the logits of all labels. The logits of the first labels
// are computed, and the intervals of all others bound their common weight. That bounds the end of
// the nucleus: a label is drawn from the longest possible nucleus. Usually it also belongs to the
// shortest possible one. If it does not, all logits are computed, and the label is drawn again if
// it is outside the nucleus.
const (
	// widestNucleus is the share of the labels whose logits take less time than all.
	widestNucleus = 1. / 3
	// nucleusDepth is the largest depth of the end of a nucleus below the best label, in units of
	// the temperature.
	nucleusDepth = 12
	// sumError is more than sums in float64 lose.
	sumError = 1e-12
)

// furtherDown are the depths below the end of a nucleus, in units of the temperature, down to which
// logits are computed.
var furtherDown = [...]float64{0.1, 1, 3}

// drawNucleus draws if a top-p comes first. It is undecided if that takes the logits of all labels;
// a label that it proposes is drawn if it belongs to the nucleus.
func (s *Sampler) drawNucleus(u float64) (outcome, error) {
	temperature, e := s.plan.at, &s.envelope
	if ok, err := s.enclose(temperature); !ok || err != nil {
		return outcome{}, err
	}
	largest, all := kernels.SumExpCentres(e.lower, e.upper, scaleOf(temperature))
	if !(all > 0) {
		return outcome{}, nil
	}
	top := float64(largest)
	near := e.atLeast(top - float64(nucleusDepth*temperature))
	end, ok := e.endOfNucleus(near, top, temperature, float64(s.o.TopP*all))
	if !ok {
		return outcome{}, nil
	}
	for _, more := range furtherDown {
		least := below(top - float64((end+more)*temperature))
		s.pool.empty()
		for _, id := range near {
			if e.upper[id] >= least {
				s.pool.ids = append(s.pool.ids, id)
			}
		}
		if float64(len(s.pool.ids)) > float64(widestNucleus*float64(s.labels)) {
			return outcome{}, nil
		}
		fewest, most, err := s.nucleusAmong(s.pool.ids, temperature)
		if err != nil {
			return outcome{}, err
		}
		switch {
		case most > len(s.head):
			continue
		case fewest == most:
			s.keepPool(most)
			k, _, err := s.truncate()
			if err != nil {
				return outcome{}, err
			}
			return s.drawHead(k.n, u), nil
		case !s.plan.onlyTopP() || s.o.ExactLogProb || s.list.sure > 0:
			continue
		}
		logSum := s.weighHead(most, s.plan.temperature)
		i := walk(s.terms, u)
		if i < fewest {
			return outcome{Token: Token{ID: s.head[i].ID, LogProb: min((s.head[i].Logit-s.head[0].Logit)/s.plan.temperature-logSum, 0)}, how: drawn}, nil
		}
		return outcome{Token: Token{ID: s.head[i].ID}, how: proposed}, nil
	}
	return outcome{}, nil
}

// endOfNucleus tells, by the centres of the intervals of labels, the depth below the best label, in
// units of the temperature, within which the labels have that weight together. It reports false if
// they all weigh less.
func (e *envelope) endOfNucleus(ids []uint32, top, temperature, weight float64) (depth float64, ok bool) {
	var counts [nucleusDepth*nucleusSteps + 1]uint32
	scale := nucleusSteps / temperature
	for _, id := range ids {
		down := (top - (float64(e.lower[id])+float64(e.upper[id]))/2) * scale
		counts[int(min(max(down, 0), nucleusDepth*nucleusSteps))]++ // the best centre is rounded to float32
	}
	for part, n := range counts {
		depth = float64(part+1) / nucleusSteps
		if weight -= float64(n) * kernels.Exp(1./(2*nucleusSteps)-depth); weight <= 0 {
			return depth, true
		}
	}
	return 0, false
}

// nucleusAmong makes labels the head, in order, and bounds the number of them that top-p keeps: it
// is larger than their number if top-p may keep others. All others follow.
func (s *Sampler) nucleusAmong(ids []uint32, temperature float64) (fewest, most int, err error) {
	s.pool.logits = mem.Grow(s.pool.logits, len(ids))
	if err := s.finder.logits(s.pool.logits, exact.Only(ids)); err != nil {
		return 0, 0, err
	}
	s.head = s.head[:0]
	for i, id := range ids {
		s.head = append(s.head, exact.Prediction{ID: id, Logit: s.edits.logit(id, s.pool.logits[i])})
	}
	s.head = s.sorter.Sort(s.head)
	others := s.envelope.sumWithout(ids, temperature)
	unit := s.weighHead(len(s.head), temperature) + s.head[0].Logit/temperature
	low := float64(s.o.TopP*(1+kernels.Exp(others.low-unit)/slack)) * (1 - sumError)
	high := float64(s.o.TopP*(1+kernels.Exp(others.high-unit)*slack)) * (1 + sumError)
	sum := 0.0
	for _, w := range s.terms {
		if sum < low {
			fewest++
		}
		if sum < high {
			most++
		}
		sum += w
	}
	if sum < high {
		most = len(s.head) + 1
	}
	return fewest, most, nil
}

// keepPool makes the first labels of the head the pool, which top-p has kept.
func (s *Sampler) keepPool(n int) {
	s.pool.empty()
	for _, p := range s.head[:n] {
		s.pool.add(p.ID, p.Logit)
	}
	s.pool.filled(extent{whole: true, nucleus: true})
}
