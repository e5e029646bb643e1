package perplexity

import (
	"math"

	"github.com/learning-to-screen/l2s/benchmarks/internal/methods"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// exact is the whole softmax.
type exact struct {
	layer  *softmax.Layer
	narrow []float32
	logits []float64
}

// NewExact returns the probabilities of the layer itself: a dense float32 scan
// and the sum over all labels. It is the speedup of 1.
func NewExact(l *softmax.Layer) LogProber {
	return &exact{l, make([]float32, l.Labels()), make([]float64, l.Labels())}
}

func (e *exact) LogProb(h []float32, id uint32) float64 {
	kernels.Scan(e.narrow, e.layer.Weights(), e.layer.Bias(), h)
	for i, x := range e.narrow {
		e.logits[i] = float64(x)
	}
	return e.logits[id] - kernels.LogSumExp(e.logits)
}

// screened is L2S.
type screened struct{ *screen.Searcher }

// NewScreened returns the probabilities of a screen, which is to have a tail:
// exact logits within the candidate set of the context's cluster.
func NewScreened(l *softmax.Layer, m *screen.Model) (LogProber, error) {
	s, err := screen.NewSearcher(m, l)
	return screened{s}, err
}

func (s screened) LogProb(h []float32, id uint32) float64 {
	p, err := s.Searcher.LogProb(h, id)
	if err != nil {
		panic(err) // contexts and labels were checked
	}
	return p
}

// tailed is a layer with low-rank logits outside of some labels.
type tailed struct {
	layer  *softmax.Layer
	tail   *softmax.Tail
	query  *softmax.Query
	logits []float64
	ids    []uint32
}

func newTailed(l *softmax.Layer, t *softmax.Tail, n int) tailed {
	return tailed{layer: l, tail: t, query: softmax.NewQuery(l.Dim()), logits: make([]float64, l.Labels()), ids: make([]uint32, n)}
}

func (t *tailed) set(h []float32) {
	if err := t.query.Set(h); err != nil {
		panic(err) // contexts were checked
	}
}

// found is a method that finds some labels.
type found struct {
	tailed
	searcher methods.Searcher
	top      []softmax.Prediction
}

// NewFound returns the probabilities of a method that finds the labels of the
// largest logits, such as FGD: those of the n that it finds are exact, and
// outside is the tail.
func NewFound(l *softmax.Layer, t *softmax.Tail, s methods.Setting, n int) LogProber {
	n = min(n, l.Labels())
	return &found{newTailed(l, t, n), s.Searcher(), make([]softmax.Prediction, n)}
}

func (f *found) LogProb(h []float32, id uint32) float64 {
	f.set(h)
	n := f.searcher.TopK(f.top, h)
	for i, p := range f.top[:n] {
		f.ids[i] = p.ID
	}
	f.layer.TailLogits(f.logits, f.query, f.tail, f.ids[:n])
	return f.logits[id] - kernels.LogSumExp(f.logits)
}

// svd is SVD-softmax.
type svd struct {
	tailed
	n        int
	previews []float32
	sample   []float32 // of the previews
	ranked   []uint32
	scores   []float32
}

// sampleStep is the distance of the previews of a sample.
const sampleStep = 16

// NewSVD returns the probabilities of SVD-softmax (Shim et al., NIPS 2017): the
// logits of the tail are the preview, whose rank is the width of the preview
// window; those of the n labels with the largest previews are exact, and the
// others keep their preview. n is at least 1.
//
// The preview is A (B h), with B the leading right singular vectors and A = U S
// in the leading columns. The n largest previews are found by a bound, which is
// cheaper than to rank them, so that some more than n are exact.
func NewSVD(l *softmax.Layer, t *softmax.Tail, n int) LogProber {
	n = min(n, l.Labels())
	return &svd{newTailed(l, t, l.Labels()), n, make([]float32, l.Labels()), make([]float32, (l.Labels()+sampleStep-1)/sampleStep), make([]uint32, l.Labels()), make([]float32, l.Labels())}
}

func (s *svd) LogProb(h []float32, id uint32) float64 {
	s.set(h)
	s.layer.TailLogits(s.logits, s.query, s.tail, nil)
	for i, x := range s.logits {
		s.previews[i] = float32(x)
	}
	ids := s.largest()
	kernels.GatherDot(s.scores[:len(ids)], s.layer.Weights(), s.layer.Bias(), ids, h)
	for j, at := range ids {
		s.logits[at] = float64(s.scores[j])
	}
	return s.logits[id] - kernels.LogSumExp(s.logits)
}

// largest returns the labels of the n largest previews, and of some more. One
// preview in sampleStep tells about where the n-th is, with a margin of two
// standard deviations; where fewer reach it a lower one of the sample is next.
func (s *svd) largest() []uint32 {
	for i := range s.sample {
		s.sample[i] = s.previews[i*sampleStep]
	}
	expected := float64(s.n) / sampleStep
	for k := int(math.Ceil(expected + 2*math.Sqrt(expected))); k < len(s.sample); k += k/8 + 1 {
		if m := kernels.SelectAtLeast(s.ids, s.previews, s.kth(k)); m >= s.n {
			return s.ids[:m]
		}
	}
	for i := range s.ids {
		s.ids[i] = uint32(i)
	}
	return s.ids
}

// kth returns about the k-th largest of the sample, or less.
func (s *svd) kth(k int) float32 {
	if bound, ok := kernels.KthBound(s.sample, k); ok {
		return bound
	}
	kernels.TopK(s.ranked[:k], s.scores[:k], s.sample)
	return s.scores[k-1]
}
