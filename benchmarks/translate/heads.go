package main

import (
	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/benchmarks/internal/marian"
	"github.com/learning-to-screen/l2s/internal/codes/floats"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
)

// head is a way to find the best labels of contexts.
type head struct {
	name string
	open func() (finder, error) // for a goroutine
}

// finder is a head at work.
type finder interface {
	// begin prepares for contexts of some sentences.
	begin(sentences [][]uint32) error
	// find writes the best labels of contexts to dst, as l2s.Searcher.SearchBatch does, with the
	// log-sum of those that it looks at if sum is true, or 0. of has the sentence of each context.
	find(dst []l2s.Prediction, answers []l2s.Answer, contexts []float32, of []int, sum bool) error
	// looked returns the number of labels that it has looked at with all codes, of all contexts.
	looked() int
}

// scan computes all logits: in float32, or from the codes of the model.
type scan struct {
	product      func(logits, contexts []float32, n int)
	labels, sum  int
	logits, best []float32
	ids          []uint32
	terms        []float64
}

func (s *scan) begin([][]uint32) error { return nil }

func (s *scan) looked() int { return s.sum }

func (s *scan) find(dst []l2s.Prediction, answers []l2s.Answer, contexts []float32, _ []int, sum bool) error {
	n, k := len(answers), len(dst)/len(answers)
	s.sum += n * s.labels
	s.logits = mem.Grow(s.logits, n*s.labels)
	s.product(s.logits, contexts, n)
	s.ids, s.best, s.terms = mem.Grow(s.ids, k), mem.Grow(s.best, k), mem.Grow(s.terms, s.labels)
	for i := range answers {
		logits := s.logits[i*s.labels:][:s.labels]
		floats.TopK(s.ids, s.best, logits)
		for j, id := range s.ids {
			dst[i*k+j] = l2s.Prediction{ID: id, Logit: float64(s.best[j])}
		}
		answers[i] = l2s.Answer{Count: k}
		if sum {
			for j, x := range logits {
				s.terms[j] = float64(x)
			}
			answers[i].LogSum = kernels.LogSumExp(s.terms)
		}
	}
	return nil
}

// dense computes all logits in float32.
func dense(m *marian.Model) head {
	w, bias := m.Rows()
	d := m.Dim()
	return head{"dense float32", func() (finder, error) {
		return &scan{labels: m.Labels(), product: func(logits, contexts []float32, n int) {
			for i := range n {
				floats.Scan(logits[i*len(bias):][:len(bias)], w, bias, contexts[i*d:][:d])
			}
		}}, nil
	}}
}

// codes computes all logits from the codes of the model and of the context.
func codes(m *marian.Model) head {
	return head{"dense int8", func() (finder, error) {
		return &scan{labels: m.Labels(), product: m.NewHead(marian.Int8)}, nil
	}}
}

// index searches by an index, or exactly.
type index struct {
	*l2s.Searcher
	labels int
}

func (s index) begin([][]uint32) error { return nil }

// looked is the number of labels that an index chose among; the exact search has all.
func (s index) looked() int {
	n := s.Stats()
	return int(n.Scored) + int(n.Exact)*s.labels
}

func (s index) find(dst []l2s.Prediction, answers []l2s.Answer, contexts []float32, _ []int, sum bool) error {
	return s.SearchBatch(dst, answers, contexts, l2s.Request{LogSum: sum})
}

func indexed(name string, l *l2s.Layer, x *l2s.Index, o l2s.Options) head {
	return head{name, func() (finder, error) {
		s, err := l2s.NewSearcher(l, x, o)
		return index{s, l.Labels()}, err
	}}
}

// lists chooses among the labels of a dictionary's list of the sentence, or looks at these besides
// those that an index finds.
type lists struct {
	*l2s.Searcher
	list *marian.Shortlist
	of   [][]uint32
	dim  int
	also bool

	sum int // of the labels of lists
}

func (s *lists) looked() int {
	if s.also {
		return int(s.Stats().Scored)
	}
	return s.sum
}

func (s *lists) count(of []int) {
	for _, i := range of {
		s.sum += len(s.of[i])
	}
}

func (s *lists) begin(sentences [][]uint32) error {
	for len(s.of) < len(sentences) {
		s.of = append(s.of, nil)
	}
	s.of = s.of[:len(sentences)]
	for i, pieces := range sentences {
		s.of[i] = s.list.Of(s.of[i][:0], pieces)
	}
	return nil
}

func (s *lists) find(dst []l2s.Prediction, answers []l2s.Answer, contexts []float32, of []int, sum bool) (err error) {
	k := len(dst) / len(answers)
	s.count(of)
	for i := range answers {
		r := l2s.Request{LogSum: sum}
		if list := s.of[of[i]]; s.also {
			r.Also = list
		} else {
			r.Among = l2s.Only(list)
		}
		if answers[i], err = s.Search(dst[i*k:][:k], contexts[i*s.dim:][:s.dim], r); err != nil {
			return err
		}
	}
	return nil
}

// listed chooses among the list of a sentence, or with an index among both.
func listed(name string, l *l2s.Layer, x *l2s.Index, o l2s.Options, list *marian.Shortlist) head {
	return head{name, func() (finder, error) {
		s, err := l2s.NewSearcher(l, x, o)
		return &lists{Searcher: s, list: list, dim: l.Dim(), also: x != nil}, err
	}}
}
