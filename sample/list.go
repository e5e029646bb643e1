package sample

import (
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/logsum"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/search/tail"
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
	screened *screening.Searcher // nil over a layer or a preview
	budgets  []float64           // to look at one after the other

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
	x := l.outside.At(temperature, s.plan.confidence)
	if len(l.beyond) > 0 || len(l.lower) > 0 {
		b := logSumOf(l.lower, l.lower, temperature)
		if len(l.beyond) > 0 {
			s.terms = mem.Grow(s.terms, len(l.beyond))
			for i, x := range l.beyond {
				s.terms[i] = x / temperature
			}
			b = kernels.LogSumExp(s.terms) // such a chain has no lower ends
		}
		if x.High = kernels.LogSubExp(x.High, b); !s.plan.narrow {
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

// drawListed draws by the screen. If it is undecided the exact layer is to answer; the sure part then
// is in s.list.
func (s *Sampler) drawListed(h []float32, u float64) (outcome, error) {
	if s.edits.request.Allowed != nil {
		return outcome{}, nil
	}
	if b := s.edits.request.Banned; b != nil && !s.plan.narrow {
		if b.Count() > maxBanned {
			return outcome{}, nil
		}
		for id := range b.All() {
			s.edits.mark(id, noted)
		}
	}
	for i, budget := range s.list.budgets {
		if i > 0 {
			s.stats.More++
		}
		head, ok, err := logsum.HeadOf(s.list.screened, h, budget, &s.list.outside)
		if err != nil || !ok {
			return outcome{}, err
		}
		if err := s.gather(&head); err != nil {
			return outcome{}, err
		}
		k, ok, err := s.truncate()
		if err != nil {
			return outcome{}, err
		}
		if ok {
			if x := s.drawKept(k, u, i+1 < len(s.list.budgets)); x.how == drawn {
				return x, nil
			}
		}
	}
	return outcome{}, nil
}

// gather makes candidates the pool: those that the first truncation may keep if it is narrow, and
// otherwise all, and other labels that edits change.
func (s *Sampler) gather(head *logsum.Head) error {
	l := &s.list
	l.view, l.outsideCount, l.beyond, l.lower = head.View, 0, l.beyond[:0], nil
	p := &s.pool
	p.empty()
	every := true
	if s.plan.narrow { // other labels, whose logits the edits do not raise, stay after the candidates
		l.lower = head.Lower[head.Known:]
		var err error
		if every, err = s.best(head); err != nil {
			return err
		}
	} else {
		p.ids = append(p.ids, head.IDs...)
		for _, id := range head.IDs {
			if s.edits.marks[id] != 0 {
				s.edits.marks[id] |= listed // and is also listed in a longer list
			}
		}
		for _, id := range s.edits.changed {
			if s.edits.marks[id]&listed == 0 {
				p.ids = append(p.ids, id)
			}
		}
		p.logits = mem.Grow(p.logits, len(p.ids))
		if err := s.list.view.Logits(p.logits, p.ids); err != nil {
			return err
		}
		l.beyond = append(l.beyond, p.logits[head.Known:]...)
		n := 0
		for i, id := range p.ids {
			if s.edits.permits(id) {
				p.ids[n], p.logits[n] = id, s.edits.logit(id, p.logits[i])
				n++
			}
		}
		p.ids, p.logits = p.ids[:n], p.logits[:n]
	}
	open := len(head.IDs) < s.labels
	p.filled(extent{whole: !open, open: open, every: every})
	return nil
}

// look computes the edited logits of the labels of the pool from the place first on.
func (s *Sampler) look(first int) error {
	s.pool.logits = slices.Grow(s.pool.logits[:first], len(s.pool.ids)-first)[:len(s.pool.ids)]
	ids, x := s.pool.ids[first:], s.pool.logits[first:]
	err := s.list.view.Logits(x, ids)
	for i, id := range ids {
		x[i] = s.edits.logit(id, x[i])
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
	l.rows = mem.Grow(l.rows, len(head.IDs))
	threshold := s.threshold(head.Lower)
	bound := s.narrowed(head, threshold)
	if bound < threshold { // by edits, and no row has less
		threshold = bound
		bound = s.narrowed(head, threshold)
	}
	every = true
	for i := len(head.IDs) - 1; every && i >= 0; i-- { // the last one mostly decides
		every = head.Upper[i] >= threshold || !s.edits.permits(head.IDs[i])
	}
	if none := float32(math.Inf(-1)); s.plan.fewest > 0 && bound > none {
		for _, at := range l.rows[:kernels.SelectAtLeast(l.rows, l.low, bound)] {
			s.pool.ids = append(s.pool.ids, l.narrowIDs[at])
			l.upper[at] = none
		}
		if err := s.look(0); err != nil {
			return false, err
		}
		bound = max(bound, below(slices.Min(s.pool.logits)))
	}
	first := len(s.pool.ids)
	for _, at := range l.rows[:kernels.SelectAtLeast(l.rows, l.upper, bound)] {
		s.pool.ids = append(s.pool.ids, l.narrowIDs[at])
	}
	every = every && len(s.pool.ids) == len(l.narrowIDs)
	for _, id := range s.edits.raised {
		if s.edits.permits(id) {
			s.pool.ids = append(s.pool.ids, id)
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
	ids, lowers, uppers := mem.Grow(l.narrowIDs, len(rows)), mem.Grow(l.low, len(rows)), mem.Grow(l.upper, len(rows))
	n := 0
	for _, row := range rows {
		id, lower, upper := head.IDs[row], head.Lower[row], head.Upper[row]
		if !s.edits.permits(id) {
			continue
		}
		if mark := s.edits.marks[id]; mark != 0 {
			if mark&mayGrow != 0 {
				continue
			}
			lower, upper = below(s.edits.logit(id, float64(lower))), above(s.edits.logit(id, float64(upper)))
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
	if s.plan.fewest == 0 {
		return s.bound(lower)
	}
	if bound, ok := kernels.KthBound(lower, s.plan.fewest); ok {
		return bound
	}
	return float32(math.Inf(-1))
}

// bound is the largest such number. It puts the lower ends in another order.
func (s *Sampler) bound(lower []float32) float32 {
	if s.plan.fewest > len(lower) {
		return float32(math.Inf(-1))
	} else if s.plan.fewest > 0 {
		return kernels.KthLargest(lower, s.plan.fewest)
	}
	largest := float32(math.Inf(-1))
	for _, x := range lower {
		largest = max(largest, x)
	}
	return below(float64(largest) + float64(s.plan.at*(kernels.Log(s.o.MinP)-0x1p-20)))
}

// poorBound is the bound above which a draw that could use its list looks at a longer one, or at
// the layer if the list has fewer labels than the truncation keeps.
const poorBound = 0.2

// drawKept draws from the kept part of the head if that is as near to the layer's distribution as
// the options require, or from the certain part. It is undecided if neither is possible, or if there
// is a longer list and the bound is poor; the certain part then is in s.list.
func (s *Sampler) drawKept(k truncated, u float64, more bool) outcome {
	allowed := s.plan.allowed
	if allowed == 1 && (more || k.lacks && s.o.MaxVariation == ByChain) {
		allowed = poorBound
	}
	temperature := s.plan.temperature
	if temperature == 0 {
		if variation := float64(1 - k.least); variation <= allowed {
			return outcome{Token: Token{ID: s.head[0].ID, Variation: variation}, how: drawn, kept: 1}
		}
		return outcome{}
	}
	w := s.weighKept(k)
	first := kernels.Log(s.terms[0] / w.sum)
	draw := func(kept int, variation float64) outcome { // from the probabilities in s.terms
		i := s.pick(u, func(i int) uint32 { return s.head[i].ID })
		return outcome{Token: Token{s.head[i].ID, min((s.head[i].Logit-s.head[0].Logit)/temperature+first, 0), variation}, how: drawn, kept: kept}
	}
	if w.variation <= allowed {
		s.terms = s.terms[:k.n]
		for i := range s.terms {
			s.terms[i] /= w.drawn
		}
		if !s.plan.cut {
			return draw(0, w.variation)
		}
		return draw(k.n, w.variation)
	}
	// The certain part of a longer list is at least as large, unless the interval of the tail is
	// wrong.
	l, share := &s.list, w.least/w.most
	if s.plan.allowed == 1 || k.vague || !(share > l.sure) {
		return outcome{}
	}
	s.terms = s.terms[:k.least]
	for i := range s.terms {
		s.terms[i] /= w.most
	}
	if sure := s.head[:k.least]; !l.grows(sure, s.terms, s.labels) {
		return outcome{}
	} else if u >= share {
		l.keep(sure, s.terms, share)
		return outcome{}
	}
	if !more {
		allowed = 0
	} // otherwise a longer list may be near enough for the rest
	return draw(0, allowed)
}

// keptWeights are weights of the part of the head that truncations keep, in one unit.
type keptWeights struct {
	least, drawn, most float64 // of the labels that are certain, of those to draw from, and of all that may be kept
	sum                float64 // of all labels that may be drawn, as far as is known
	variation          float64 // bounds the total variation of the part to draw from
}

// weighKept leaves the weights of the kept labels of the head in s.terms.
func (s *Sampler) weighKept(k truncated) (w keptWeights) {
	others, high := tail.Interval{Log: math.Inf(-1)}, 0.0
	if k.others {
		others = s.outside(s.plan.temperature, k.most)
		high = kernels.Exp(others.High)
	} else {
		s.weighHead(k.most, s.plan.temperature)
	}
	w.least, w.drawn, w.most = sumOf(s.terms[:k.least]), sumOf(s.terms[:k.n]), sumOf(s.terms)+high
	switch {
	case k.vague:
		w.variation = 1
	case k.others || k.least < k.most:
		w.variation = min(max(1-w.least/max(w.drawn, w.least+high), 1-w.drawn/w.most, 0), 1)
	}
	w.sum = w.drawn
	if !s.plan.cut {
		if rest := kernels.Exp(others.Log); !math.IsInf(rest, 1) { // a tail that overflows bounds nothing
			w.sum += rest
		}
	}
	return w
}

// grows reports whether the certain probabilities of labels, the best first, are no less than those
// that are certain already. All shares have room for labels.
func (l *list) grows(sure []exact.Prediction, p []float64, labels int) bool {
	l.shares = mem.Grow(l.shares, labels)
	before := 0
	for i, x := range sure {
		if old := l.shares[x.ID]; old > 0 {
			before++
			if old > p[i] {
				return false
			}
		}
	}
	return before == len(l.ids)
}

// keep makes probabilities of labels certain, which sum to share.
func (l *list) keep(sure []exact.Prediction, p []float64, share float64) {
	for i, x := range sure {
		if l.shares[x.ID] == 0 {
			l.ids = append(l.ids, x.ID)
		}
		l.shares[x.ID] = p[i]
	}
	l.sure = share
}

// takes reports whether a proposed label is drawn, given its probability, 0 if it is not kept.
func (l *list) takes(id uint32, p, chance float64) bool {
	share := l.share(id)
	return p > 0 && (share == 0 || chance < 1-share/p)
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
