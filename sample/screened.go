package sample

import (
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/grow"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
)

// drawScreened draws by the screen. It reports false if the exact layer is to answer.
func (s *Sampler) drawScreened(h []float32, u float64) (Token, bool, error) {
	if s.edits.Allowed != nil || s.edits.Banned != nil && s.edits.Banned.Count() > maxBanned {
		return Token{}, false, nil
	}
	first, temperature, cut := s.o.firstCut()
	greedy := s.o.temperature() == 0
	if greedy {
		temperature = 1
	}
	extra := s.changed
	if b := s.edits.Banned; b != nil {
		s.extra = b.AppendIDs(append(s.extra[:0], extra...))
		s.extra = distinct(s.extra)
		extra = s.extra
	}
	head, err := s.screened.Head(h, extra, temperature, s.o.Confidence)
	if err != nil || math.IsNaN(head.Tail.Log) && (head.IDs == nil || !cut || first == TopP) {
		return Token{}, false, err
	}
	s.poolIDs, s.poolX = s.poolIDs[:0], s.poolX[:0]
	changed := s.changed
	for i, id := range head.IDs {
		x := head.Logits[i]
		for len(changed) > 0 && changed[0] < id {
			changed = changed[1:]
		}
		if len(changed) > 0 && changed[0] == id {
			x = s.edit(id, x)
		}
		if s.edits.Banned == nil || !s.edits.Banned.Has(id) {
			s.poolIDs, s.poolX = append(s.poolIDs, id), append(s.poolX, x)
		}
	}
	s.pool = pool{ids: s.poolIDs, logits: s.poolX, whole: len(head.IDs) == s.labels, rest: head.Tail}
	if !cut && !greedy {
		return s.drawWithTail(temperature, u)
	}
	if !greedy && !math.IsNaN(head.Tail.Log) {
		inside := s.sumInside(temperature)/temperature + s.pool.inside
		if outside := head.Tail.Log - kernels.LogAddExp(head.Tail.Log, inside); kernels.Exp(outside) > s.o.MaxOutside {
			return Token{}, false, nil
		}
	}
	return s.drawKept(u)
}

// drawWithTail draws from the labels of the pool with the probability that they have at
// least. In the rest of the cases the exact layer draws: from the labels of the pool
// by what they have above that, and from all others.
func (s *Sampler) drawWithTail(temperature, u float64) (Token, bool, error) {
	p := &s.pool
	if p.whole && len(p.logits) > 0 {
		t, err := s.drawFrom(temperature, u)
		return t, true, err
	}
	if len(p.logits) == 0 || math.IsInf(p.rest.High, 1) {
		return Token{}, false, nil
	}
	largest := p.largest()
	logSum := s.weigh(p.logits, largest, temperature)
	// All weights are those relative to the pool.
	relative := func(rest float64) float64 { return rest - largest/temperature - logSum }
	most := kernels.Exp(relative(p.rest.High))
	if math.IsInf(most, 1) {
		return Token{}, false, nil
	}
	token := func(id uint32, x, others float64) Token { // others is the log of their weight
		return Token{id, min((x-largest)/temperature-logSum-kernels.LogAddExp(0, others), 0), Bounded}
	}
	at := u * (1 + most)
	if at < 1 || most == 0 {
		i := walk(s.terms, at)
		return token(p.ids[i], p.logits[i], relative(p.rest.Log)), true, nil
	}
	ids, logits := p.ids, p.logits
	s.stats.Layer++
	if i, others, ok, err := s.drawRest(temperature, most, relative); ok || err != nil {
		return token(i.ID, i.Logit, others), ok, err
	}
	// The probabilities of all other labels, and their weight together.
	if err := s.lookAtAll(); err != nil {
		return Token{}, false, err
	}
	s.tailTrue = grow.Slice(s.tailTrue, s.labels)
	for id, x := range s.all {
		s.tailTrue[id] = (x - largest) / temperature
	}
	for _, id := range ids {
		s.tailTrue[id] = math.Inf(-1)
	}
	log := kernels.Softmax(s.tailTrue, s.tailTrue) - logSum
	others := kernels.Exp(log)
	// What is left of the probability of a label of the pool, in proportion to its
	// probability, and the part of all that is left which belongs to the pool.
	left := max(most-others, 0) / (1 + most)
	above := left * (1 + most) / float64(most*(1+others))
	if len(s.proposed) > 0 && s.chance < left {
		return token(s.proposed[0].ID, s.proposed[0].Logit, log), true, nil
	}
	v := (at - 1) / most
	if v < above || others == 0 {
		i := walk(s.terms, v/above)
		return token(ids[i], logits[i], log), true, nil
	}
	id := walk(s.tailTrue, (v-above)/(1-above))
	return token(uint32(id), s.all[id], log), true, nil
}

// drawRest draws what drawWithTail leaves to the exact layer, by the envelope: labels by
// their probability, of which one of the pool is taken with the share of it that is left.
// It returns the log of the weight of all labels outside the pool too, as it is estimated, but not
// below what a label that is drawn from them has. It reports
// false if all logits are to be computed; a label that is in s.proposed then is the one
// that is drawn if s.chance is below that share.
func (s *Sampler) drawRest(temperature, most float64, relative func(float64) float64) (drawn softmax.Prediction, others float64, ok bool, err error) {
	s.proposed = s.proposed[:0]
	if ok, err := s.enclose(temperature); !ok || err != nil {
		return drawn, 0, false, err
	}
	e, ids := &s.envelope, s.pool.ids
	for i, id := range ids {
		e.pin(id, s.pool.logits[i])
	}
	left := func(others float64) float64 { return max(most-others, 0) / (1 + most) }
	bounded := func() (least, largest float64) {
		outside := e.sumWithout(ids, temperature)
		others = relative(outside.about)
		return left(kernels.Exp(relative(outside.high)) * slack), left(kernels.Exp(relative(outside.low)) / slack)
	}
	least, largest := bounded()
	if !e.weigh(temperature) {
		return drawn, 0, false, nil
	}
	for range maxProposals {
		id, x, ok, err := s.propose()
		if !ok || err != nil {
			return drawn, 0, false, err
		}
		drawn = softmax.Prediction{ID: id, Logit: x}
		if _, in := slices.BinarySearch(ids, id); !in {
			return drawn, max(others, relative(x/temperature)), true, nil
		}
		s.chance = s.random.Float64()
		for _, depth := range tailDepths {
			if s.chance < least || s.chance >= largest {
				break
			}
			more := e.atLeast(e.reference - float64(depth*temperature))
			if float64(len(more)) > float64(maxPinned*float64(s.labels)) {
				break
			}
			if err := s.pinAll(more); err != nil {
				return drawn, 0, false, err
			}
			least, largest = bounded()
		}
		if s.chance < least {
			return drawn, others, true, nil
		}
		if s.chance < largest {
			s.proposed = append(s.proposed, drawn)
			break
		}
	}
	return drawn, 0, false, nil
}
