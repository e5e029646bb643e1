package screen

import (
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
)

// Tail returns the low-rank stand-in for the weights of the layer, for labels
// outside the candidate set, or nil where the model has none.
func (m *Model) Tail() *softmax.Tail { return m.tail }

// WithTail returns the model with that tail in place of its own, nil for none:
// a screen that was trained without one needs no other training for it. The two
// share all else. It returns an error where the tail is for another shape of
// layer.
func (m *Model) WithTail(t *softmax.Tail) (*Model, error) {
	if err := checkTail(t, m.Labels(), m.Dim()); err != nil {
		return nil, fmt.Errorf("screen: %w", err)
	}
	with := *m
	with.tail = t
	return &with, nil
}

func checkTail(t *softmax.Tail, labels, dim int) error {
	if t != nil && (t.Labels() != labels || t.Dim() != dim) {
		return fmt.Errorf("tail: found one for %d labels and dim %d, expected %d and %d", t.Labels(), t.Dim(), labels, dim)
	}
	return nil
}

// LogProb returns the log-probability of the label id for the context h, as the
// paper defines it to compute perplexity (its appendix): logits are exact within
// the candidate set and w~_s.h + b_s outside, with W~ of the model's tail, and
// the softmax is that over all L labels.
//
// Where the model has no tail the labels outside are impossible: they get -Inf,
// and the softmax is that over the set, as in [Searcher.LogProbs]. All logits
// are exact where the lead of the best cluster is below the exact margin.
// [Float32] concerns the exact logits alone: without it the result has the same
// bits on every CPU.
//
// It returns an error where id is not below L, or where h is not a context, as
// TopK does. It takes memory for L logits with the first query, then none.
func (s *Searcher) LogProb(h []float32, id uint32) (float64, error) {
	if int64(id) >= int64(s.model.labels) {
		return 0, fmt.Errorf("screen: id: found %d, expected one below the %d labels", id, s.model.labels)
	}
	if err := s.query.Set(h); err != nil {
		return 0, err
	}
	ids, logits := s.probabilityLogits(h)
	at := int(id)
	if ids != nil {
		var ok bool
		if at, ok = slices.BinarySearch(ids, id); !ok {
			return math.Inf(-1), nil
		}
	}
	return logits[at] - kernels.LogSumExp(logits), nil
}

// LogPartition returns the logarithm of the sum of e^x_s over all labels, with
// the logits of [Searcher.LogProb]. The log-probability of a label that
// TopK found in the candidate set is its Logit less this number. It is -Inf
// where the set is empty and there is no tail. It returns an error where h is
// not a context, as TopK does.
func (s *Searcher) LogPartition(h []float32) (float64, error) {
	if err := s.query.Set(h); err != nil {
		return 0, err
	}
	_, logits := s.probabilityLogits(h)
	return kernels.LogSumExp(logits), nil
}

// probabilityLogits returns the logits of LogProb for the query's context h:
// those of the labels ids, ascending and not nil, which alone are possible; or
// those of all labels where ids is nil.
func (s *Searcher) probabilityLogits(h []float32) (ids []uint32, logits []float64) {
	l, f := s.layer, s.find()
	switch {
	case f.exact:
		return nil, s.exactLogits(l.Labels(), nil, h)
	case s.model.tail == nil:
		if f.set == nil {
			f.set = []uint32{}
		}
		return f.set, s.exactLogits(len(f.set), f.set, h)
	}
	s.wide = grow(s.wide, l.Labels())
	if !s.float32 {
		l.TailLogits(s.wide, s.query, s.model.tail, f.set)
		return nil, s.wide
	}
	l.TailLogits(s.wide, s.query, s.model.tail, nil)
	narrow := s.logits[:len(f.set)]
	kernels.GatherDot(narrow, l.Weights(), l.Bias(), f.set, h)
	for j, id := range f.set {
		s.wide[id] = float64(narrow[j])
	}
	return nil, s.wide
}

// exactLogits returns the n logits of the labels ids, of all where ids is nil.
func (s *Searcher) exactLogits(n int, ids []uint32, h []float32) []float64 {
	w, b := s.layer.Weights(), s.layer.Bias()
	s.wide = grow(s.wide, n)
	switch {
	case !s.float32 && ids == nil:
		kernels.RefScan(s.wide, w, b, h)
	case !s.float32:
		kernels.RefGatherDot(s.wide, w, b, ids, h)
	default:
		s.logits = grow(s.logits, n)
		if ids == nil {
			kernels.Scan(s.logits, w, b, h)
		} else {
			kernels.GatherDot(s.logits, w, b, ids, h)
		}
		for i, x := range s.logits {
			s.wide[i] = float64(x)
		}
	}
	return s.wide
}
