package sample

import (
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/grow"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
)

// headStep is the natural logarithm of the share, of the first probability, that one
// look further down the order of a pool adds: labels are put in order as far as they
// are needed.
const headStep = 3.0

// drawKept draws from the labels that the truncations keep. It reports false if the
// pool does not hold them all.
func (s *Sampler) drawKept(u float64) (Token, bool, error) {
	p := &s.pool
	largest := p.largest()
	if math.IsInf(largest, -1) {
		if p.whole {
			return Token{}, false, errNone
		}
		return Token{}, false, nil
	}
	_, temperature, _ := s.o.firstCut()
	if temperature == 0 {
		temperature = 1
	}
	for depth := headStep; ; depth *= 2 {
		threshold := max(largest-float64(temperature*depth), -math.MaxFloat64)
		if depth > 1000 {
			threshold = -math.MaxFloat64
		}
		s.head = s.head[:0]
		left := false
		for i, x := range p.logits {
			switch {
			case x >= threshold:
				s.head = append(s.head, softmax.Prediction{ID: p.label(i), Logit: x})
			case !math.IsInf(x, -1):
				left = true
			}
		}
		slices.SortFunc(s.head, compare)
		if n, grade, ok := s.keep(!left && p.whole); ok {
			return s.drawHead(n, grade, u), true, nil
		}
		if !left {
			return Token{}, false, nil
		}
	}
}

// drawHead draws from the first n labels of the head.
func (s *Sampler) drawHead(n int, grade Grade, u float64) Token {
	temperature := s.o.temperature()
	if temperature == 0 {
		return Token{ID: s.head[0].ID, Grade: grade}
	}
	logSum := s.weighHead(n, temperature)
	i := walk(s.terms, u)
	return Token{ID: s.head[i].ID, LogProb: (s.head[i].Logit-s.head[0].Logit)/temperature - logSum, Grade: grade}
}

// weighHead is weigh for the first n labels of the head.
func (s *Sampler) weighHead(n int, temperature float64) float64 {
	s.terms = grow.Slice(s.terms, n)
	for i, x := range s.head[:n] {
		s.terms[i] = (x.Logit - s.head[0].Logit) / temperature
	}
	return kernels.Softmax(s.terms, s.terms)
}

// keep applies the truncations to the head, which holds the first labels of the pool in
// order, or all labels that may be drawn, and returns how many labels are kept and their grade.
// It reports false if labels beyond the head may be kept too.
func (s *Sampler) keep(all bool) (n int, grade Grade, ok bool) {
	_, first, _ := s.o.firstCut()
	if s.o.temperature() == 0 {
		return 1, s.gradeOf(1, 1, true), true // the largest, whatever is cut
	}
	n = len(s.head)
	temperature, certain := 1.0, true
	for _, step := range s.o.Order {
		if step == Temperature {
			temperature = s.o.Temperature
		}
		if !s.o.cuts(step) {
			continue
		}
		var m int
		switch {
		case step == TopK:
			m = s.o.TopK
		case step == MinP:
			m = s.firstOfMinP(n, temperature)
		case all:
			s.weighHead(n, temperature)
			m = s.firstOfTopP(1)
		default:
			m, certain = s.firstOfOpenTopP(temperature)
		}
		// Behind a truncation no label beyond the head is left.
		if m > n && !all {
			return 0, 0, false
		}
		n, all = min(m, n), true
	}
	return n, s.gradeOf(n, first, certain), all
}

// firstOfMinP counts the first labels, of n of the head, that min-p keeps at a temperature. It
// is n + 1 if it keeps all n: more might follow.
func (s *Sampler) firstOfMinP(n int, temperature float64) int {
	least := kernels.Log(s.o.MinP)
	for i, x := range s.head[:n] {
		if (x.Logit-s.head[0].Logit)/temperature < least {
			return i
		}
	}
	return n + 1
}

// firstOfTopP counts the first labels of the head, whose weights are s.terms, that hold the
// share TopP of a total. It is one more than there are if all together do not, be it by roundings.
func (s *Sampler) firstOfTopP(total float64) int {
	want, sum := s.o.TopP*total, 0.0
	for i, w := range s.terms {
		if sum += w; sum >= want {
			return i + 1
		}
	}
	return len(s.terms) + 1
}

// firstOfOpenTopP counts the first labels of the head that top-p keeps of all labels at a
// temperature, as far as the rest of them is known. It is one more than there are if the head
// holds too little. The number is certain if all of the interval of the rest gives it.
func (s *Sampler) firstOfOpenTopP(temperature float64) (n int, certain bool) {
	// Weights are shares of the sum over the pool, and the head is a part of that.
	p := &s.pool
	share := kernels.Exp(s.weighHead(len(s.head), temperature) - p.inside)
	for i := range s.terms {
		s.terms[i] *= share
	}
	count := func(rest float64) int {
		return s.firstOfTopP(1 + kernels.Exp(rest-s.head[0].Logit/temperature-p.inside))
	}
	n = count(p.rest.Log)
	return n, count(p.rest.Low) == n && count(p.rest.High) == n
}

// gradeOf grades the first n labels of the head as those that a truncation keeps, first
// at a temperature: no other label is among them unless it weighs more than all others
// together can.
func (s *Sampler) gradeOf(n int, temperature float64, certain bool) Grade {
	switch {
	case s.pool.whole || s.pool.exact:
		return Exact
	case certain && s.head[n-1].Logit/temperature > s.pool.rest.High:
		return Bounded
	}
	return Approximate
}
