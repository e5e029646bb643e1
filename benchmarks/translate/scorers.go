package main

import (
	"github.com/learning-to-screen/l2s/benchmarks/internal/methods"
	"github.com/learning-to-screen/l2s/internal/grow"
	"github.com/learning-to-screen/l2s/internal/lstm"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
)

// dense is the plain form of the layer in beam search, a context at a time: a
// float32 scan of W and b, the k largest scores, and the log of the sum of e^x
// over all of them.
type dense struct {
	layer  *softmax.Layer
	query  *softmax.Query
	counts []int
}

func (s *dense) TopKLogSumExp(dst []softmax.Prediction, lse []float64, k int, contexts []float32) ([]int, error) {
	d := s.layer.Dim()
	s.counts = s.counts[:0]
	for i := range lse {
		if err := s.query.Set(contexts[i*d : (i+1)*d]); err != nil {
			return nil, err
		}
		n, sum := s.layer.TopKLogSumExpFloat32(dst[i*k:(i+1)*k], s.query, nil)
		lse[i], s.counts = sum, append(s.counts, n)
	}
	return s.counts, nil
}

// shared is dense where the contexts of a step share the loads of rows.
type shared struct {
	layer        *softmax.Layer
	scores, best []float32
	ids          []uint32
	wide         []float64
	counts       []int
}

func (s *shared) TopKLogSumExp(dst []softmax.Prediction, lse []float64, k int, contexts []float32) ([]int, error) {
	l, n, labels := s.layer, len(lse), s.layer.Labels()
	s.ids, s.best, s.wide, s.scores = grow.Slice(s.ids, k), grow.Slice(s.best, k), grow.Slice(s.wide, labels), grow.Slice(s.scores, n*labels)
	lstm.Products(s.scores, l.Weights(), l.Bias(), 0, contexts, n, l.Dim())
	s.counts = s.counts[:0]
	for i := range n {
		scores := s.scores[i*labels : (i+1)*labels]
		kernels.TopK(s.ids, s.best, scores)
		for j, id := range s.ids {
			dst[i*k+j] = softmax.Prediction{ID: id, Logit: float64(s.best[j])}
		}
		for j, x := range scores {
			s.wide[j] = float64(x)
		}
		lse[i] = kernels.LogSumExp(s.wide)
		s.counts = append(s.counts, k)
	}
	return s.counts, nil
}

// oneByOne is a method that answers a context at a time, with probabilities
// inside what it found.
type oneByOne struct {
	by     methods.Normaliser
	dim    int
	counts []int
}

func (s *oneByOne) TopKLogSumExp(dst []softmax.Prediction, lse []float64, k int, contexts []float32) ([]int, error) {
	s.counts = s.counts[:0]
	for i := range lse {
		n, sum := s.by.TopKLogSumExp(dst[i*k:(i+1)*k], contexts[i*s.dim:(i+1)*s.dim])
		lse[i], s.counts = sum, append(s.counts, n)
	}
	return s.counts, nil
}
