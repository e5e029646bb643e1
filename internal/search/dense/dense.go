// Package dense is the plain form of a softmax layer: a float32 scan of W and b, then the
// largest scores, as "Learning to Screen for Fast Softmax Inference on Large Vocabulary Neural
// Networks" has it. It is the baseline of every speedup. Logits are rounded to float32 and
// their sums are in the order that the CPU's level likes: near-ties may fall either way and
// levels may differ.
package dense

import (
	"github.com/learning-to-screen/l2s/internal/codes/floats"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// Searcher searches a layer. It belongs to one goroutine.
type Searcher struct {
	weights, bias []float32
	scores, best  []float32
	ids           []uint32
}

// New returns a searcher, with the weights of [Weights].
func New(l *exact.Layer) *Searcher { return &Searcher{weights: Weights(l), bias: l.Bias()} }

// Weights returns W in float32, row-major: the layer's own, or a widened copy if
// its elements are of another type.
func Weights(l *exact.Layer) []float32 {
	w, ok := kernels.AsFloat32(l.Weights())
	if !ok {
		w = make([]float32, l.Labels()*l.Dim())
		for s := range l.Labels() {
			l.Weights().Widen(w[s*l.Dim():(s+1)*l.Dim()], s)
		}
	}
	return w
}

// TopK writes the labels of the largest logits to dst, in order, ties by the
// lower id, and returns their number: the length of dst, or L if that is less.
func (s *Searcher) TopK(dst []exact.Prediction, h []float32) int {
	s.scores = mem.Grow(s.scores, len(s.bias))
	floats.Scan(s.scores, s.weights, s.bias, h)
	k := min(len(dst), len(s.scores))
	s.ids, s.best = mem.Grow(s.ids, k), mem.Grow(s.best, k)
	floats.TopK(s.ids, s.best, s.scores)
	for i, id := range s.ids {
		dst[i] = exact.Prediction{ID: id, Logit: float64(s.best[i])}
	}
	return k
}
