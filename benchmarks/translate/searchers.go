package main

import (
	"github.com/learning-to-screen/l2s/benchmarks/internal/lstm"
	"github.com/learning-to-screen/l2s/benchmarks/internal/methods"
	"github.com/learning-to-screen/l2s/internal/dense"
	"github.com/learning-to-screen/l2s/internal/grow"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
)

// oneScan is the plain form of the layer in beam search, a context at a time: a
// float32 scan of W and b, the k largest scores, and the log of the sum of e^x
// over all of them.
type oneScan struct {
	*dense.Searcher
	dim int
}

func (s *oneScan) SearchBatch(dst []softmax.Prediction, answers []softmax.Answer, contexts []float32, req softmax.Request) error {
	for i := range answers {
		n := s.TopK(dst[i*req.K:(i+1)*req.K], contexts[i*s.dim:(i+1)*s.dim])
		answers[i] = softmax.Answer{Count: n, LogSum: s.LogSum()}
	}
	return nil
}

// shared is oneScan if the contexts of a step share the loads of rows.
type shared struct {
	layer        *softmax.Layer
	weights      []float32
	scores, best []float32
	ids          []uint32
	terms        []float64
}

func newShared(l *softmax.Layer) *shared {
	return &shared{layer: l, weights: dense.Weights(l)}
}

func (s *shared) SearchBatch(dst []softmax.Prediction, answers []softmax.Answer, contexts []float32, req softmax.Request) error {
	l, n, labels, k := s.layer, len(answers), s.layer.Labels(), req.K
	s.ids, s.best, s.terms, s.scores = grow.Slice(s.ids, k), grow.Slice(s.best, k), grow.Slice(s.terms, labels), grow.Slice(s.scores, n*labels)
	lstm.Products(s.scores, s.weights, l.Bias(), contexts, l.Dim(), n)
	for i := range answers {
		scores := s.scores[i*labels : (i+1)*labels]
		kernels.TopK(s.ids, s.best, scores)
		for j, id := range s.ids {
			dst[i*k+j] = softmax.Prediction{ID: id, Logit: float64(s.best[j])}
		}
		for j, x := range scores {
			s.terms[j] = float64(x)
		}
		answers[i] = softmax.Answer{Count: k, LogSum: kernels.LogSumExp(s.terms)}
	}
	return nil
}

// oneByOne is a method that answers a context at a time, with probabilities
// inside what it found.
type oneByOne struct {
	by  methods.Normaliser
	dim int
}

func (s *oneByOne) SearchBatch(dst []softmax.Prediction, answers []softmax.Answer, contexts []float32, req softmax.Request) error {
	for i := range answers {
		n, sum := s.by.TopKLogSumExp(dst[i*req.K:(i+1)*req.K], contexts[i*s.dim:(i+1)*s.dim])
		answers[i] = softmax.Answer{Count: n, LogSum: sum}
	}
	return nil
}
