package main

import (
	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/benchmarks/internal/lstm"
	"github.com/learning-to-screen/l2s/benchmarks/internal/methods"
	"github.com/learning-to-screen/l2s/internal/dense"
	"github.com/learning-to-screen/l2s/internal/exact"
	"github.com/learning-to-screen/l2s/internal/floats"
	"github.com/learning-to-screen/l2s/internal/grow"
	"github.com/learning-to-screen/l2s/internal/kernels"
)

// scan is the plain form of the layer in beam search: a float32 scan of W and b, the k
// largest scores, and the log of the sum of e^x over all of them.
type scan struct {
	layer        *exact.Layer
	weights      []float32
	scores, best []float32
	ids          []uint32
	terms        []float64
}

// answers answers by the scores of all labels for each context.
func (s *scan) answers(dst []l2s.Prediction, answers []l2s.Answer, k int) {
	labels := s.layer.Labels()
	s.ids, s.best, s.terms = grow.Slice(s.ids, k), grow.Slice(s.best, k), grow.Slice(s.terms, labels)
	for i := range answers {
		scores := s.scores[i*labels : (i+1)*labels]
		floats.TopK(s.ids, s.best, scores)
		for j, id := range s.ids {
			dst[i*k+j] = l2s.Prediction{ID: id, Logit: float64(s.best[j])}
		}
		for j, x := range scores {
			s.terms[j] = float64(x)
		}
		answers[i] = l2s.Answer{Count: k, LogSum: kernels.LogSumExp(s.terms)}
	}
}

// alone is the Search of a searcher of batches: a batch of one.
func alone(by interface {
	SearchBatch([]l2s.Prediction, []l2s.Answer, []float32, l2s.Request) error
}, dst []l2s.Prediction, h []float32, req l2s.Request) (l2s.Answer, error) {
	answers := make([]l2s.Answer, 1)
	err := by.SearchBatch(dst, answers, h, req)
	return answers[0], err
}

// oneScan is scan for a context at a time.
type oneScan struct{ scan }

func (s *oneScan) Search(dst []l2s.Prediction, h []float32, req l2s.Request) (l2s.Answer, error) {
	return alone(s, dst, h, req)
}

func newOneScan(l *exact.Layer) *oneScan {
	return &oneScan{scan{layer: l, weights: dense.Weights(l)}}
}

func (s *oneScan) SearchBatch(dst []l2s.Prediction, answers []l2s.Answer, contexts []float32, req l2s.Request) error {
	d, k := s.layer.Dim(), len(dst)/len(answers)
	s.scores = grow.Slice(s.scores, s.layer.Labels())
	for i := range answers {
		floats.Scan(s.scores, s.weights, s.layer.Bias(), contexts[i*d:(i+1)*d])
		s.answers(dst[i*k:(i+1)*k], answers[i:i+1], k)
	}
	return nil
}

// shared is scan if the contexts of a step share the loads of rows.
type shared struct{ scan }

func (s *shared) Search(dst []l2s.Prediction, h []float32, req l2s.Request) (l2s.Answer, error) {
	return alone(s, dst, h, req)
}

func newShared(l *exact.Layer) *shared {
	return &shared{scan{layer: l, weights: dense.Weights(l)}}
}

func (s *shared) SearchBatch(dst []l2s.Prediction, answers []l2s.Answer, contexts []float32, req l2s.Request) error {
	l, n := s.layer, len(answers)
	s.scores = grow.Slice(s.scores, n*l.Labels())
	lstm.Products(s.scores, s.weights, l.Bias(), contexts, l.Dim(), n)
	s.answers(dst, answers, len(dst)/n)
	return nil
}

// oneByOne is a method that answers one context at a time, with probabilities over the labels that
// it found.
type oneByOne struct {
	by   methods.Normaliser
	dim  int
	best []exact.Prediction
}

func (s *oneByOne) Search(dst []l2s.Prediction, h []float32, req l2s.Request) (l2s.Answer, error) {
	return alone(s, dst, h, req)
}

func (s *oneByOne) SearchBatch(dst []l2s.Prediction, answers []l2s.Answer, contexts []float32, req l2s.Request) error {
	for i := range answers {
		k := len(dst) / len(answers)
		s.best = grow.Slice(s.best, k)
		n, sum := s.by.TopKLogSumExp(s.best, contexts[i*s.dim:(i+1)*s.dim])
		for j, p := range s.best[:n] {
			dst[i*k+j] = l2s.Prediction(p)
		}
		answers[i] = l2s.Answer{Count: n, LogSum: sum}
	}
	return nil
}
