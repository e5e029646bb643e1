package sample

import (
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// A draw from all labels does not need the logits of all labels. The int8 codes give an
// upper end for each logit. A label is proposed with a probability in proportion to
// e^(upper/T), and is taken with the probability e^((x-upper)/T), for which only its own
// logit x is computed. So a label is taken in proportion to e^(x/T): rejection sampling,
// whose result does not depend on how wide the intervals are. The upper end of a label
// that was rejected becomes its logit.
const (
	// leastEnveloped is the number of labels from which this is faster than all logits.
	leastEnveloped = 1024
	// blockLabels is the number of labels whose upper ends have one sum.
	blockLabels = 128
	// maxProposals bounds the proposals, and maxRedraws the labels that are drawn, before
	// all logits are computed.
	maxProposals = 256
	maxRedraws   = 64
	// fewLabels is a number of logits whose time does not matter.
	fewLabels = 256
	// manyLabels is the share of all labels whose logits take far less time than all.
	manyLabels = 8
	// maxOpen is the largest difference of the logs of the sums over lower and over upper ends for
	// an estimate between them to be a log-probability.
	maxOpen = 1
	// mostRounding bounds the rounding of a logit to float32, in units of the temperature.
	mostRounding = 0x1p-10
	// slack bounds the ratio of a sum of float32 exponentials to the true sum.
	slack = 1 + 1e-4
	// The temperatures at which the exponents keep their precision in float32.
	leastTemperature = 0x1p-7
	mostTemperature  = 0x1p10
)

// envelope holds an interval for the edited logit of each label, and sums of the
// exponentials of the upper ends.
type envelope struct {
	lower, upper []float32
	proposed     []float32 // upper ends by which labels are proposed: less where a part is sure
	lowered      []float32 // the memory of these, if they are not the upper ends
	temperature  float64
	reference    float64   // all weights are relative to e^(reference/temperature)
	tops         []float32 // of each block the largest upper end of the proposed labels,
	weights      []float64 // and the sum of e^(upper/temperature)
	total        float64   // of the weights
	terms        [blockLabels]float64

	ids, open []uint32
	keep      [2][]float32 // the intervals of labels that are out of a sum for a while
	logits    []float64
	one       [1]uint32
	oneLogit  [1]float64
}

// enclose makes the envelope of the edited logits. It reports false if all logits must be computed.
func (s *Sampler) enclose(temperature float64) (bool, error) {
	if s.labels < leastEnveloped || temperature < leastTemperature || temperature > mostTemperature {
		return false, nil
	}
	e := &s.envelope
	var err error
	if e.lower, e.upper, err = s.finder.layer.Bounds(s.finder.query, exact.Labels{}); e.lower == nil || err != nil {
		return false, err
	}
	e.logits = mem.Grow(e.logits, len(s.edits.changed))
	if err := s.finder.logits(e.logits, exact.Only(s.edits.changed)); err != nil {
		return false, err
	}
	for i, id := range s.edits.changed {
		x := s.edits.logit(id, e.logits[i])
		if !(math.Abs(x) < math.MaxFloat32/4) {
			return false, nil
		}
		e.pin(id, x)
	}
	none := float32(math.Inf(-1))
	for id := range s.edits.refused {
		e.lower[id], e.upper[id] = none, none
	}
	return true, nil
}

// pin makes the interval of a label the narrowest that contains its logit.
func (e *envelope) pin(id uint32, x float64) { e.lower[id], e.upper[id] = below(x), above(x) }

// below is the largest float32 that is at most x, above the least that is at least x.
func below(x float64) float32 {
	f := float32(x)
	if float64(f) > x {
		f = math.Nextafter32(f, float32(math.Inf(-1)))
	}
	return f
}

func above(x float64) float32 { return -below(-x) }

// isPinned reports whether the interval of a label is as narrow as pin makes it.
func (e *envelope) isPinned(id uint32) bool {
	return math.Nextafter32(e.lower[id], e.upper[id]) == e.upper[id]
}

// scaleOf is the factor of exponents in float32.
func scaleOf(temperature float64) float32 {
	return float32(min(max(1/temperature, 0x1p-126), math.MaxFloat32))
}

// weigh sums the exponentials of the upper ends at a temperature. It reports false if
// float32 is too coarse for the largest of them.
func (e *envelope) weigh(temperature float64) bool {
	e.temperature = temperature
	n := (len(e.proposed) + blockLabels - 1) / blockLabels
	e.tops, e.weights = mem.Grow(e.tops, n), mem.Grow(e.weights, n)
	top := float32(math.Inf(-1))
	for b := range n {
		upper := e.block(b)
		e.tops[b], e.weights[b] = kernels.SumExpCentres(upper, upper, scaleOf(temperature))
		top = max(top, e.tops[b])
	}
	e.reference, e.total = float64(top), 0
	for b, sum := range e.weights {
		e.weights[b] = e.relative(float64(e.tops[b])) * sum
		e.total += e.weights[b]
	}
	return math.Abs(e.reference)*0x1p-23 <= float64(mostRounding*temperature)
}

// block are the upper ends by which the labels of a block are proposed.
func (e *envelope) block(b int) []float32 {
	return e.proposed[b*blockLabels : min((b+1)*blockLabels, len(e.proposed))]
}

// relative is e^((x - reference)/T).
func (e *envelope) relative(x float64) float64 {
	if math.IsInf(x, -1) {
		return 0
	}
	return kernels.Exp((x - e.reference) / e.temperature)
}

// tighten takes the logit of a label of block b into account, which is not above the
// upper end that the label had.
func (e *envelope) tighten(b int, id uint32, x float64) {
	e.pin(id, x)
	e.proposed[id] = e.upper[id]
	upper := e.block(b)
	top, sum := kernels.SumExpCentres(upper, upper, scaleOf(e.temperature))
	e.tops[b], e.weights[b] = top, e.relative(float64(top))*sum
	e.total = 0
	for _, w := range e.weights {
		e.total += w
	}
}

// logit returns the edited logit of a label.
func (s *Sampler) logit(id uint32) (float64, error) {
	e := &s.envelope
	e.one[0] = id
	if err := s.finder.logits(e.oneLogit[:], exact.Only(e.one[:])); err != nil {
		return 0, err
	}
	return s.edits.logit(id, e.oneLogit[0]), nil
}

// propose draws a label with a probability in proportion to e^(x/T), by the envelope that was
// weighed at T, and also returns its logit x; the probability of a label with a certain share is
// multiplied by part. It reports false if too many proposals were rejected.
func (s *Sampler) propose(part float64) (id uint32, x float64, ok bool, err error) {
	e := &s.envelope
	for range maxProposals {
		if !(e.total > 0) {
			break
		}
		b := walk(e.weights, s.random.Float64()*e.total)
		upper, top := e.block(b), float64(e.tops[b])
		terms, sum := e.terms[:len(upper)], 0.0
		for i, u := range upper {
			terms[i] = kernels.Exp((float64(u) - top) / e.temperature)
			sum += terms[i]
		}
		i := walk(terms, s.random.Float64()*sum)
		id = uint32(b*blockLabels + i)
		if x, err = s.logit(id); err != nil {
			return 0, 0, false, err
		}
		// The weight that the label was proposed with. It is at least the label's own, except for
		// roundings, which the slack covers.
		proposed := e.weights[b] * terms[i] / sum * slack
		some, weight := s.list.share(id) > 0, e.relative(x)
		if some {
			weight *= part
		}
		if s.random.Float64()*proposed < weight {
			return id, x, true, nil
		}
		if !some {
			e.tighten(b, id, x)
		}
	}
	return 0, 0, false, nil
}

// bounds are the logs of three sums: over lower ends, over centres and over upper ends.
type bounds struct{ low, about, high float64 }

// logSumOf is the log of the sum of e^(c/T) over the centres c of intervals.
func logSumOf(lower, upper []float32, temperature float64) float64 {
	top, sum := kernels.SumExpCentres(lower, upper, scaleOf(temperature))
	if sum == 0 {
		return math.Inf(-1)
	}
	return float64(top)/temperature + kernels.Log(sum)
}

// sumWithout bounds the log of the sum of e^(x/T) over all labels but some.
func (e *envelope) sumWithout(ids []uint32, temperature float64) bounds {
	none := float32(math.Inf(-1))
	e.keep[0], e.keep[1] = mem.Grow(e.keep[0], len(ids)), mem.Grow(e.keep[1], len(ids))
	for i, id := range ids {
		e.keep[0][i], e.keep[1][i] = e.lower[id], e.upper[id]
		e.lower[id], e.upper[id] = none, none
	}
	b := bounds{logSumOf(e.lower, e.lower, temperature), logSumOf(e.lower, e.upper, temperature), logSumOf(e.upper, e.upper, temperature)}
	for i, id := range ids {
		e.lower[id], e.upper[id] = e.keep[0][i], e.keep[1][i]
	}
	return b
}

// atLeast finds the labels whose upper ends are at least x, and leaves them in e.ids.
func (e *envelope) atLeast(x float64) []uint32 {
	e.ids = mem.Grow(e.ids, len(e.upper))
	return e.ids[:kernels.SelectAtLeast(e.ids, e.upper, below(x))]
}

// pinAll computes the logits of labels.
func (s *Sampler) pinAll(ids []uint32) error {
	e := &s.envelope
	e.open = slices.DeleteFunc(append(e.open[:0], ids...), e.isPinned) // as labels are that edits change
	e.logits = mem.Grow(e.logits, len(e.open))
	if err := s.finder.logits(e.logits, exact.Only(e.open)); err != nil {
		return err
	}
	for i, id := range e.open {
		e.pin(id, e.logits[i])
	}
	return nil
}

// drawEnclosed draws from all labels. It is undecided if all logits must be computed; a label
// that it proposes is drawn if less of its probability is certain than the chance allows.
func (s *Sampler) drawEnclosed() (outcome, error) {
	temperature := s.plan.temperature
	if ok, err := s.enclose(temperature); !ok || err != nil {
		return outcome{}, err
	}
	e := &s.envelope
	e.proposed, e.temperature = e.upper, temperature
	// Labels with a certain share are proposed by the rest of their probability. It is the same for
	// all of them, 1 - c times the weight of all labels: at most part, at least fewer.
	part, fewer, all := 1.0, 1.0, bounds{}
	ids := s.list.ids
	if len(ids) > 0 {
		err := s.pinAll(ids)
		if err == nil {
			part, fewer, all, err = s.leftOf(fewLabels)
		}
		if err != nil || !(part > 0) {
			return outcome{}, err
		}
		down := temperature * kernels.Log(part)
		e.lowered = append(e.lowered[:0], e.upper...)
		e.proposed = e.lowered
		for _, id := range ids {
			e.proposed[id] = above(float64(e.upper[id]) + down)
		}
	}
	if !e.weigh(temperature) {
		return outcome{}, nil
	}
	for range maxRedraws {
		id, x, ok, err := s.propose(part)
		if !ok || err != nil {
			return outcome{}, err
		}
		if len(ids) == 0 {
			all, err := s.logSum(temperature, fewLabels)
			if all.high-all.low > maxOpen || err != nil {
				return outcome{}, err
			}
			return enclosed(id, x/temperature-all.about), nil
		}
		chance := s.random.Float64() * part
		if s.list.share(id) > 0 && chance >= fewer {
			var most, least float64
			if most, least, all, err = s.leftOf(s.labels / manyLabels); err != nil {
				return outcome{}, err
			} else if most > 0 && chance >= most {
				continue
			} else if !(chance < least) {
				return outcome{Token: Token{ID: id}, how: proposed, chance: chance}, nil
			}
		}
		return enclosed(id, x/temperature-all.about), nil
	}
	return outcome{}, nil
}

func enclosed(id uint32, logProb float64) outcome {
	return outcome{Token: Token{ID: id, LogProb: min(logProb, 0)}, how: drawn}
}

// leftOf returns the rest of the probability of labels with a certain share, as an upper and a
// lower bound, and the log of the weight of all labels, with that number of logits. The rest is 0
// if it is not known.
func (s *Sampler) leftOf(many int) (part, fewer float64, all bounds, err error) {
	e, l := &s.envelope, &s.list
	all, err = s.logSum(e.temperature, many)
	if err != nil || all.high-all.low > maxOpen {
		return 0, 0, all, err
	}
	x, err := s.logit(l.ids[0])
	left := func(sum float64) float64 {
		return 1 - l.shares[l.ids[0]]*kernels.Exp(sum-x/e.temperature)
	}
	return min(left(all.low)+(slack-1), 1), left(all.high) - (slack - 1), all, err
}

// logSum bounds the log of the sum of e^(x/T) over all labels. It computes the largest logits, a
// few of which have most of the weight, up to the given number.
func (s *Sampler) logSum(temperature float64, many int) (sum bounds, err error) {
	e := &s.envelope
	top, _ := kernels.SumExpCentres(e.upper, e.upper, scaleOf(temperature))
	for _, depth := range [...]float64{6, 4, 2} {
		if ids := e.atLeast(float64(top) - float64(depth*temperature)); len(ids) <= many {
			if err := s.pinAll(ids); err != nil {
				return sum, err
			}
			break
		}
	}
	return e.sumWithout(nil, temperature), nil
}
