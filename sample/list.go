package sample

import (
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/exact"
	"github.com/learning-to-screen/l2s/internal/grow"
	"github.com/learning-to-screen/l2s/internal/kernels"
	"github.com/learning-to-screen/l2s/internal/logsum"
	"github.com/learning-to-screen/l2s/internal/screening"
	"github.com/learning-to-screen/l2s/internal/tail"
)

// Over a screen a draw knows its candidates, and only an interval of the weight of all other
// labels. The truncations keep a first part of the labels in the order of their logits, so that
// these labels matter in two ways: some may belong to that part, and candidates at its end may not.
// In every case, a candidate that certainly belongs to it has a probability of at least its weight
// over the largest possible weight of all kept labels together. This part of the distribution is
// certain. A draw within it has the layer's distribution, without more knowledge; any other draw is
// from the rest, for which a longer list, or the layer, has more knowledge.

// maxBanned bounds the banned labels whose share of the tail is taken off.
const maxBanned = 256

// list is the knowledge of a draw over a screen.
type list struct {
	outsideSums  [2]outsideAt
	outsideCount int       // of outsideSums
	beyond       []float64 // logits without edits of labels of the pool that the tail counts
	lower        []float32 // lower ends of other candidates that it counts
	rows         []uint32  // scratch: places of candidates,
	narrowIDs    []uint32  // some of them,
	low, upper   []float32 // their edited intervals,
	order        []float32 // and the lower ends, to select from

	shares []float64 // of each label, the probability that is sure
	ids    []uint32  // the candidates that have one
	sure   float64   // the sum of the shares

	outside tail.Rest // of the context
	view    *screening.View
}

// outsideAt describes the labels outside the pool at a temperature.
type outsideAt struct {
	temperature float64
	log         tail.Interval
}

// forget takes the shares back.
func (l *list) forget() {
	for _, id := range l.ids {
		l.shares[id] = 0
	}
	l.ids, l.sure = l.ids[:0], 0
}

// share is the probability of a label that is sure.
func (l *list) share(id uint32) float64 {
	if len(l.ids) == 0 {
		return 0
	}
	return l.shares[id]
}

// rest is the log of the sum of e^(x/T) over the labels that are not in the pool. After a narrow
// truncation only its upper end is used, and only that is valid.
func (s *Sampler) rest(temperature float64) tail.Interval {
	l := &s.list
	for _, r := range l.outsideSums[:l.outsideCount] {
		if r.temperature == temperature {
			return r.log
		}
	}
	x := l.outside.At(temperature, s.confidence)
	if len(l.beyond) > 0 || len(l.lower) > 0 {
		b := logSumOf(l.lower, l.lower, temperature)
		if len(l.beyond) > 0 {
			s.terms = grow.Slice(s.terms, len(l.beyond))
			for i, x := range l.beyond {
				s.terms[i] = x / temperature
			}
			b = kernels.LogSumExp(s.terms) // such a chain has no lower ends
		}
		if x.High = kernels.LogSubExp(x.High, b); !s.narrow {
			x.Log, x.Low = kernels.LogSubExp(x.Log, b), kernels.LogSubExp(x.Low, b)
		}
	}
	if l.outsideCount == len(l.outsideSums) {
		l.outsideCount = 0
	}
	l.outsideSums[l.outsideCount] = outsideAt{temperature, x}
	l.outsideCount++
	return x
}

// outside leaves the probabilities among the first n labels of the head in s.terms, and returns the
// logs of the weights of the labels outside the pool in the same unit.
func (s *Sampler) outside(temperature float64, n int) tail.Interval {
	x := s.rest(temperature)
	unit := s.weighHead(n, temperature) + s.head[0].Logit/temperature
	return tail.Interval{Log: x.Log - unit, Low: x.Low - unit, High: x.High - unit}
}

// drawListed draws by the screen. It reports false if the exact layer is to answer; the sure part
// then is in s.list.
func (s *Sampler) drawListed(h []float32, u float64) (Token, bool, error) {
	if s.request.Allowed != nil {
		return Token{}, false, nil
	}
	if b := s.request.Banned; b != nil && !s.narrow {
		if b.Count() > maxBanned {
			return Token{}, false, nil
		}
		for id := range b.All() {
			s.mark(id, noted)
		}
	}
	for i, budget := range s.budgets {
		if i > 0 {
			s.stats.More++
		}
		head, ok, err := logsum.HeadOf(s.screened, h, budget, &s.list.outside)
		if err != nil || !ok {
			return Token{}, false, err
		}
		if err := s.gather(&head); err != nil {
			return Token{}, false, err
		}
		k, ok, err := s.truncate()
		if err != nil {
			return Token{}, false, err
		}
		if ok {
			if t, ok := s.drawKept(k, u, i+1 < len(s.budgets)); ok {
				return t, true, nil
			}
		}
	}
	return Token{}, false, nil
}

// gather makes candidates the pool: those that the first truncation may keep if it is narrow, and
// otherwise all, and other labels that edits change.
func (s *Sampler) gather(head *logsum.Head) error {
	l := &s.list
	l.view, l.outsideCount, l.beyond, l.lower = head.View, 0, l.beyond[:0], nil
	s.poolIDs, s.poolX = s.poolIDs[:0], s.poolX[:0]
	every := true
	if s.narrow { // other labels, whose logits the edits do not raise, stay after the candidates
		l.lower = head.Lower[head.Known:]
		var err error
		if every, err = s.best(head); err != nil {
			return err
		}
	} else {
		s.poolIDs = append(s.poolIDs, head.IDs...)
		for _, id := range head.IDs {
			if s.marks[id] != 0 {
				s.marks[id] |= listed // and is also listed in a longer list
			}
		}
		for _, id := range s.changed {
			if s.marks[id]&listed == 0 {
				s.poolIDs = append(s.poolIDs, id)
			}
		}
		s.poolX = grow.Slice(s.poolX, len(s.poolIDs))
		if err := s.list.view.Logits(s.poolX, s.poolIDs); err != nil {
			return err
		}
		l.beyond = append(l.beyond, s.poolX[head.Known:]...)
		n := 0
		for i, id := range s.poolIDs {
			if exact.Permits(&s.request, id) {
				s.poolIDs[n], s.poolX[n] = id, s.edit(id, s.poolX[i])
				n++
			}
		}
		s.poolIDs, s.poolX = s.poolIDs[:n], s.poolX[:n]
	}
	open := len(head.IDs) < s.labels
	s.pool = pool{ids: s.poolIDs, logits: s.poolX, whole: !open, open: open, every: every}
	return nil
}

// look computes the edited logits of the labels of the pool from the place first on.
func (s *Sampler) look(first int) error {
	s.poolX = slices.Grow(s.poolX[:first], len(s.poolIDs)-first)[:len(s.poolIDs)]
	ids, x := s.poolIDs[first:], s.poolX[first:]
	err := s.list.view.Logits(x, ids)
	for i, id := range ids {
		x[i] = s.edit(id, x[i])
	}
	return err
}

// best makes the labels the pool that a narrow truncation may keep: candidates, and labels that
// edits raise. It reports whether all candidates that may be drawn are in it.
//
// By the intervals of the logits without edits some candidates may be kept. The edited lower ends
// of these bound the kept labels from below. Unless a candidate reaches that bound without edits,
// it does not with edits. The logits of the k that have the largest lower ends are a closer bound.
func (s *Sampler) best(head *logsum.Head) (every bool, err error) {
	l := &s.list
	l.rows = grow.Slice(l.rows, len(head.IDs))
	threshold := s.threshold(head.Lower)
	bound := s.narrowed(head, threshold)
	if bound < threshold { // by edits, and no row has less
		threshold = bound
		bound = s.narrowed(head, threshold)
	}
	every = true
	for i := len(head.IDs) - 1; every && i >= 0; i-- { // the last one mostly decides
		every = head.Upper[i] >= threshold || !exact.Permits(&s.request, head.IDs[i])
	}
	if none := float32(math.Inf(-1)); s.fewest > 0 && bound > none {
		for _, at := range l.rows[:kernels.SelectAtLeast(l.rows, l.low, bound)] {
			s.poolIDs = append(s.poolIDs, l.narrowIDs[at])
			l.upper[at] = none
		}
		if err := s.look(0); err != nil {
			return false, err
		}
		bound = max(bound, below(slices.Min(s.poolX)))
	}
	first := len(s.poolIDs)
	for _, at := range l.rows[:kernels.SelectAtLeast(l.rows, l.upper, bound)] {
		s.poolIDs = append(s.poolIDs, l.narrowIDs[at])
	}
	every = every && len(s.poolIDs) == len(l.narrowIDs)
	for _, id := range s.raised {
		if exact.Permits(&s.request, id) {
			s.poolIDs = append(s.poolIDs, id)
		}
	}
	return every, s.look(first)
}

// narrowed leaves the candidates that may be drawn, whose upper ends are at least a threshold, and
// which edits do not raise, with their edited intervals in s.list. It returns the bound by these.
func (s *Sampler) narrowed(head *logsum.Head, threshold float32) (bound float32) {
	l := &s.list
	rows := l.rows[:kernels.SelectAtLeast(l.rows, head.Upper, threshold)]
	// Not by append: a CPU waits for a length that is in memory.
	ids, lowers, uppers := grow.Slice(l.narrowIDs, len(rows)), grow.Slice(l.low, len(rows)), grow.Slice(l.upper, len(rows))
	n := 0
	for _, row := range rows {
		id, lower, upper := head.IDs[row], head.Lower[row], head.Upper[row]
		if !exact.Permits(&s.request, id) {
			continue
		}
		if mark := s.marks[id]; mark != 0 {
			if mark&mayGrow != 0 {
				continue
			}
			lower, upper = below(s.edit(id, float64(lower))), above(s.edit(id, float64(upper)))
		}
		ids[n], lowers[n], uppers[n] = id, lower, upper
		n++
	}
	l.narrowIDs, l.low, l.upper = ids[:n], lowers[:n], uppers[:n]
	l.order = append(l.order[:0], l.low...)
	return s.bound(l.order)
}

// threshold is a number that the upper end of a candidate reaches if a narrow truncation may keep
// it, by the lower ends of all.
func (s *Sampler) threshold(lower []float32) float32 {
	if s.fewest == 0 {
		return s.bound(lower)
	}
	if bound, ok := kernels.KthBound(lower, s.fewest); ok {
		return bound
	}
	return float32(math.Inf(-1))
}

// bound is the largest such number. It puts the lower ends in another order.
func (s *Sampler) bound(lower []float32) float32 {
	if s.fewest > len(lower) {
		return float32(math.Inf(-1))
	} else if s.fewest > 0 {
		return kernels.KthLargest(lower, s.fewest)
	}
	largest := float32(math.Inf(-1))
	for _, x := range lower {
		largest = max(largest, x)
	}
	return below(float64(largest) + float64(s.at*(kernels.Log(s.o.MinP)-0x1p-20)))
}

// poorBound is the bound above which a draw that could use its list looks at a longer one, or at
// the layer if the list has fewer labels than the truncation keeps.
const poorBound = 0.2

// drawKept draws from the kept part of the head if that is as near to the layer's distribution as
// the options require, or from the certain part. It reports false if neither is possible, or if
// there is a longer list and the bound is poor.
func (s *Sampler) drawKept(k truncated, u float64, more bool) (Token, bool) {
	allowed := s.allowed
	if allowed == 1 && (more || k.lacks && s.o.MaxVariation == ByChain) {
		allowed = poorBound
	}
	temperature := s.temperature
	if temperature == 0 {
		variation := float64(1 - k.least)
		s.lastKept = 1
		return Token{ID: s.head[0].ID, Variation: variation}, variation <= allowed
	}
	others, high := tail.Interval{Log: math.Inf(-1)}, 0.0
	if k.others {
		others = s.outside(temperature, k.most)
		high = kernels.Exp(others.High)
	} else {
		s.weighHead(k.most, temperature)
	}
	least, drawn, most := sumOf(s.terms[:k.least]), sumOf(s.terms[:k.n]), sumOf(s.terms)+high
	variation := 0.0
	switch {
	case k.vague:
		variation = 1
	case k.others || k.least < k.most:
		variation = min(max(1-least/max(drawn, least+high), 1-drawn/most, 0), 1)
	}
	sum := drawn
	if !s.cut && !math.IsInf(kernels.Exp(others.Log), 1) { // a tail that overflows bounds nothing
		sum += kernels.Exp(others.Log)
	}
	first := kernels.Log(s.terms[0] / sum)
	token := func(i int, variation float64) Token {
		return Token{s.head[i].ID, min((s.head[i].Logit-s.head[0].Logit)/temperature+first, 0), variation}
	}
	if variation <= allowed {
		if s.lastKept = k.n; !s.cut {
			s.lastKept = 0
		}
		s.terms = s.terms[:k.n]
		for i := range s.terms {
			s.terms[i] /= drawn
		}
		return token(s.pick(u, func(i int) uint32 { return s.head[i].ID }), variation), true
	}
	// The certain part of a longer list is at least as large, unless the interval of the tail is
	// wrong.
	l, share := &s.list, least/most
	if s.allowed == 1 || k.vague || !(share > l.sure) {
		return Token{}, false
	}
	l.shares = grow.Slice(l.shares, s.labels)
	before := 0
	for i, x := range s.head[:k.least] {
		s.terms[i] /= most
		if old := l.shares[x.ID]; old > 0 {
			before++
			if old > s.terms[i] {
				return Token{}, false
			}
		}
	}
	if before < len(l.ids) {
		return Token{}, false
	}
	if u < share {
		s.terms = s.terms[:k.least]
		if !more {
			allowed = 0
		} // otherwise a longer list may be near enough for the rest
		return token(s.pick(u, func(i int) uint32 { return s.head[i].ID }), allowed), true
	}
	for i, x := range s.head[:k.least] {
		if l.shares[x.ID] == 0 {
			l.ids = append(l.ids, x.ID)
		}
		l.shares[x.ID] = s.terms[i]
	}
	l.sure = share
	return Token{}, false
}

// takes reports whether the label that intervals left undecided is drawn, given its probability,
// 0 if it is not kept.
func (s *Sampler) takes(id uint32, p float64) bool {
	share := s.list.share(id)
	return p > 0 && (share == 0 || s.chance < 1-share/p)
}

// pick returns the place of a label that is drawn from the probabilities in s.terms, without the
// part that was certain before.
func (s *Sampler) pick(u float64, label func(i int) uint32) int {
	l := &s.list
	if l.sure == 0 {
		return walk(s.terms, u)
	}
	all, left := 0.0, 0.0
	for i, p := range s.terms {
		all += p
		left += max(p-l.shares[label(i)], 0)
	}
	if !(left > 0 && all > l.sure) { // roundings
		return walk(s.terms, u*all)
	}
	for i, p := range s.terms {
		s.terms[i] = max(p-l.shares[label(i)], 0)
	}
	return walk(s.terms, (u-l.sure)/(all-l.sure)*left)
}
