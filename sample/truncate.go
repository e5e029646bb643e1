package sample

import (
	"cmp"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
	"github.com/learning-to-screen/l2s/internal/ground/ranking"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/tail"
)

// headStep is the natural logarithm of the factor, relative to the first probability, by which each
// step sorts further down a pool: labels are sorted only as far as needed.
const headStep = 3.0

// truncated is the part of the head that truncations keep. If the pool is open, unknown labels may
// belong to the part of all labels that they keep. Their places decide the number of labels of the
// head that belong to it.
type truncated struct {
	n           int  // the first labels of the head that are drawn from
	least, most int  // bounds of the number of first labels that belong to the kept part of all labels
	others      bool // labels that are not known may belong to it
	vague       bool // of the head any labels may
	lacks       bool // a narrow truncation keeps more labels than are known
}

// truncate leaves the kept labels at the front of s.head. It reports false if the pool does not
// include all of them.
func (s *Sampler) truncate() (k truncated, ok bool, err error) {
	p := &s.pool
	temperature := s.plan.at
	if s.plan.temperature == 0 {
		temperature = 1
	}
	whole, largest := !s.plan.cut || len(p.logits) <= fewLabels, 0.0
	if !whole {
		largest = slices.Max(p.logits)
	}
	for depth := headStep; ; depth *= 2 {
		threshold := -math.MaxFloat64
		if !whole && depth <= 1000 {
			threshold = max(largest-float64(temperature*depth), threshold)
		}
		s.head = s.head[:0]
		left := false
		for i, x := range p.logits {
			switch {
			case x >= threshold:
				s.head = append(s.head, exact.Prediction{ID: p.label(i), Logit: x})
			case !math.IsInf(x, -1):
				left = true
			}
		}
		if len(s.head) == 0 {
			if p.whole {
				return k, false, errNone
			}
			return k, false, nil
		}
		s.head = s.sorter.Sort(s.head)
		if k, ok := s.keep(!left && (p.whole || p.open)); ok {
			return k, true, nil
		}
		if !left {
			return k, false, nil
		}
	}
}

// keep applies the truncations to the head, which holds the first labels of the pool in order, or
// all labels of it. It reports false if labels of the pool outside the head, or labels outside the
// pool, may also be kept.
//
// Unknown labels weigh no more together than the upper end W of their interval,
// relative to the labels of the head, and no less than the lower end.
func (s *Sampler) keep(all bool) (k truncated, ok bool) {
	k = truncated{n: len(s.head), least: len(s.head), most: len(s.head), others: s.pool.open}
	if s.plan.temperature == 0 { // the largest, with any truncation
		if k.cut(1, 1, 1); k.others && s.rest(1).High >= s.head[0].Logit {
			k.least = 0
		}
		return k, true
	}
	temperature, first := 1.0, true
	for _, step := range s.plan.steps {
		switch step {
		case Temperature:
			temperature = s.plan.temperature
			continue
		case TopK:
			if s.o.TopK > k.n && !all {
				return k, false
			}
			s.keepTopK(&k, first)
		case MinP:
			if !s.keepMinP(&k, temperature, all, first) {
				return k, false
			}
		case TopP:
			if first && s.pool.nucleus {
				if !all {
					return k, false
				}
			} else if !s.keepTopP(&k, temperature, all, first) {
				return k, false
			}
		case Typical:
			if !all || first && k.others {
				return k, false
			}
			s.keepTypical(&k, temperature)
		}
		all, first = true, false // after a truncation only labels of the head remain
	}
	return k, all
}

// cut takes labels away after the first ones.
func (k *truncated) cut(n, least, most int) {
	k.most = min(k.most, most)
	k.n = min(k.n, n, k.most)
	k.least = min(k.least, least, k.n)
}

// keepTopK keeps the first k labels. d of the last ones may be replaced by d others, none of which
// weighs less than the heaviest of them, so that d times its weight is at most W.
func (s *Sampler) keepTopK(k *truncated, first bool) {
	k.cut(s.o.TopK, s.o.TopK, s.o.TopK)
	if !k.others {
		return
	}
	t := s.plan.temperature
	w, d := kernels.Exp(s.outside(t, k.most).High)*slack, 0
	room := s.o.TopK - k.most // for others that take nobody's place
	for d < k.most && float64(float64(room+d+1)*s.terms[k.most-1-d]) <= w {
		d++
	}
	k.cut(k.n, k.most-d, k.most)
	k.others, k.lacks = d > 0 || room > 0, first && room > 0
}

// keepMinP keeps labels of a share of the first one's weight. If W is below that none of the
// others is kept; if one of them weighs more than the first, its share counts.
func (s *Sampler) keepMinP(k *truncated, temperature float64, all, first bool) (ok bool) {
	share := kernels.Log(s.o.MinP)
	count := func(from float64) int { // the least logit is share below it, in units of the temperature
		for i, x := range s.head[:k.most] {
			if (x.Logit-s.head[0].Logit)/temperature-from < share {
				return i
			}
		}
		return k.most + 1
	}
	n := count(0)
	if n > k.most && !all {
		return false
	}
	least := n
	if k.others {
		w := s.rest(temperature).High - s.head[0].Logit/temperature
		if w > 0 {
			least = count(w)
		}
		k.others = !(w < share-0x1p-20)
		k.lacks = k.others && first && n > k.most && s.pool.every
	}
	k.cut(n, least, n)
	return true
}

// keepTopP keeps the first labels that have a share of the rest. W before all of them gives the
// fewest, and W after them the most; if no label with the weight W can come before the last one,
// all of it comes after.
func (s *Sampler) keepTopP(k *truncated, temperature float64, all, first bool) (ok bool) {
	more := 0.0 // the pool without the head
	if first && len(s.pool.logits) > len(s.head) {
		inside := s.sumInside(temperature)
		more = max(kernels.Exp(inside-s.weighHead(k.most, temperature))-1, 0)
	}
	var rest tail.Interval // weights
	if k.others {
		x := s.outside(temperature, k.most)
		if rest.High = kernels.Exp(x.High); first {
			rest.Log, rest.Low = kernels.Exp(x.Log), kernels.Exp(x.Low)
		}
	} else {
		s.weighHead(k.most, temperature)
	}
	total, high, low := sumOf(s.terms[:k.n])+more, sumOf(s.terms)+more, sumOf(s.terms[:k.least])+more
	if first {
		total += rest.Log
	}
	p := s.o.TopP
	count := func(want float64) int {
		sum := 0.0
		for i, w := range s.terms {
			if sum += w; sum >= want {
				return i + 1
			}
		}
		return len(s.terms) + 1
	}
	n, most := count(p*total), count(p*(high+rest.High))
	if !all && max(n, most) > k.most {
		return false
	}
	least := count(p * low)
	if k.others {
		most = min(most, k.most)
		if k.others = !(rest.High*slack < s.terms[most-1]); k.others {
			least = 0
			if want := float64(p*low) - float64((1-p)*rest.High); want > 0 {
				least = count(want)
			}
		} else if first {
			least = count(p * (low + rest.Low))
		}
	}
	k.cut(n, least, most)
	return true
}

// keepTypical keeps the labels whose -log p is nearest to the entropy of the rest. Where the
// rest is uncertain, any may be.
func (s *Sampler) keepTypical(k *truncated, temperature float64) {
	logSum := s.weighHead(k.n, temperature)
	surprise := func(i int) float64 { return logSum - (s.head[i].Logit-s.head[0].Logit)/temperature }
	entropy := 0.0
	for i, w := range s.terms {
		entropy += float64(w * surprise(i))
	}
	s.order = s.order[:0]
	for i := range s.terms {
		s.order = append(s.order, exact.Prediction{ID: uint32(i), Logit: -math.Abs(surprise(i) - entropy)})
	}
	slices.SortFunc(s.order, ranking.Compare)
	n, sum := 0, 0.0
	for n < len(s.order) && sum < s.o.Typical {
		sum += s.terms[s.order[n].ID]
		n++
	}
	slices.SortFunc(s.order[:n], func(a, b exact.Prediction) int { return cmp.Compare(a.ID, b.ID) })
	for i, x := range s.order[:n] {
		s.head[i] = s.head[x.ID]
	}
	sure := !k.vague && !k.others && k.least == k.most
	k.n, k.least, k.most = n, n, n
	if !sure {
		k.least, k.others, k.vague = 0, true, true
	}
}

func sumOf(x []float64) (sum float64) {
	for _, w := range x {
		sum += w
	}
	return sum
}

// weighHead leaves the probabilities among the first n labels of the head in s.terms, and
// returns the log of the sum of their e^((x-largest)/T).
func (s *Sampler) weighHead(n int, temperature float64) float64 {
	s.terms = mem.Grow(s.terms, n)
	for i, x := range s.head[:n] {
		s.terms[i] = (x.Logit - s.head[0].Logit) / temperature
	}
	return kernels.Softmax(s.terms, s.terms)
}

// drawHead draws from the first n labels of the head.
func (s *Sampler) drawHead(n int, u float64) outcome {
	x := outcome{Token: Token{ID: s.head[0].ID}, how: drawn, kept: n}
	if temperature := s.plan.temperature; temperature > 0 {
		logSum := s.weighHead(n, temperature)
		i := s.pick(u, func(i int) uint32 { return s.head[i].ID })
		x.Token = Token{ID: s.head[i].ID, LogProb: min((s.head[i].Logit-s.head[0].Logit)/temperature-logSum, 0)}
	}
	return x
}
