package perplexity

import (
	"fmt"
	"math"
	"strings"

	"github.com/learning-to-screen/l2s/benchmarks/internal/methods"
	"github.com/learning-to-screen/l2s/internal/codes/floats"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/dense"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/logsum"
	"github.com/learning-to-screen/l2s/internal/search/screening"
)

// whole is the whole softmax.
type whole struct {
	weights, bias []float32
	narrow        []float32
	logits        []float64
}

// Exact is the row of the layer itself: a dense float32 scan and the sum over all
// labels. It is the speedup of 1.
func Exact(l *exact.Layer) Row {
	return Row{Method: "Exact", New: func() LogProber {
		return &whole{dense.Weights(l), l.Bias(), make([]float32, l.Labels()), make([]float64, l.Labels())}
	}}
}

func (e *whole) LogProb(h []float32, id uint32) float64 {
	floats.Scan(e.narrow, e.weights, e.bias, h)
	for i, x := range e.narrow {
		e.logits[i] = float64(x)
	}
	return e.logits[id] - kernels.LogSumExp(e.logits)
}

// screened is L2S with the sums of the screen itself.
type screened struct{ *screening.Searcher }

// Screened is the row of a screen: exact logits for the candidates of the context, and outside the
// tail t, or the screen's own estimate for the others if t is nil. It returns an error if screen
// and layer do not fit each other, or if both tails are missing.
func Screened(method, params string, l *exact.Layer, t *LowRank, m *screening.Model) (Row, error) {
	if _, err := screening.NewSearcher(m, l, screening.Options{}); err != nil {
		return Row{}, err
	}
	if t == nil && m.Tail() == nil {
		return Row{}, logsum.ErrNoTail
	}
	most := 0
	for cell := range m.Cells() {
		ids, err := m.Candidates(cell, m.Budget())
		if err != nil {
			return Row{}, err
		}
		most = max(most, len(ids))
	}
	return Row{Method: method, Params: params, Rank: rank(t), New: func() LogProber {
		s, err := screening.NewSearcher(m, l, screening.Options{})
		if err != nil {
			panic(err) // it was made before
		}
		if t == nil {
			return screened{s}
		}
		// All candidates are answered.
		return &found{newTailed(l, t, 0), candidates{s}, make([]exact.Prediction, most)}
	}}, nil
}

func rank(t *LowRank) int {
	if t == nil {
		return 0
	}
	return t.rank
}

func (s screened) LogProb(h []float32, id uint32) float64 {
	p, err := logsum.LogProb(s.Searcher, h, id, 1)
	if err != nil {
		panic(err) // contexts and labels were checked
	}
	return p
}

// candidates answers with the candidates of a context.
type candidates struct{ *screening.Searcher }

func (c candidates) TopK(dst []exact.Prediction, h []float32) int {
	v, err := c.Searcher.Look(h, 0)
	if err != nil {
		panic(err) // contexts were checked
	}
	a, err := v.Find(dst[:min(len(dst), v.N)], &exact.Request{Among: v.First(v.N)})
	if err != nil {
		panic(err)
	}
	return a.Count
}

// tailed is a layer with low-rank logits outside of some labels.
type tailed struct {
	weights, bias []float32
	tail          *LowRank
	logits        []float64
	ids           []uint32
}

func newTailed(l *exact.Layer, t *LowRank, n int) tailed {
	return tailed{weights: dense.Weights(l), bias: l.Bias(), tail: t, logits: make([]float64, l.Labels()), ids: make([]uint32, n)}
}

// tailLogits leaves the logits of all labels by the tail in t.logits: -Inf without one.
func (t *tailed) tailLogits(h []float32) {
	if t.tail != nil {
		t.tail.logits(t.logits, t.bias, h)
		return
	}
	for i := range t.logits {
		t.logits[i] = math.Inf(-1)
	}
}

// found is a method that finds some labels.
type found struct {
	tailed
	searcher methods.Searcher
	top      []exact.Prediction
}

// Found is the row of a method that finds the labels of the largest logits, such as FGD: the logits
// of the n that it finds come from its answer, and outside is the tail. params are the parameters
// of the construction, to which Found adds n and the parameters of the search: ParamsOf(n) of a
// setting that has this method, because it searches for n labels with other parameters, and Params
// otherwise.
func Found(method, params string, l *exact.Layer, t *LowRank, s methods.Setting, n int) Row {
	n = min(n, l.Labels())
	search := s.Params()
	if s, ok := s.(interface{ ParamsOf(k int) string }); ok {
		search = s.ParamsOf(n)
	}
	return Row{Method: method, Params: words(params, search, fmt.Sprintf("top-%d", n)), Rank: rank(t), New: func() LogProber {
		return &found{newTailed(l, t, 0), s.Searcher(), make([]exact.Prediction, n)}
	}}
}

// words joins the strings that are not empty.
func words(s ...string) string { return strings.Join(strings.Fields(strings.Join(s, " ")), " ") }

func (f *found) LogProb(h []float32, id uint32) float64 {
	f.tailLogits(h)
	for _, p := range f.top[:f.searcher.TopK(f.top, h)] {
		f.logits[p.ID] = p.Logit
	}
	return f.logits[id] - kernels.LogSumExp(f.logits)
}

// opened is a method that looks at parts of the layer.
type opened struct {
	tailed
	searcher methods.LogitSearcher
	k        int
}

// Opened is the row of a method that looks at parts of the layer, such as adaptive softmax with its
// head and the tails that it opens: all logits there are exact, not the logits of its answer alone,
// and outside is the tail. Parts are opened as in a query for the k largest logits, at which
// settings are compared. params are the parameters of the construction, to which Opened adds the
// parameters of the setting and k. The searchers of the setting are methods.LogitSearchers.
func Opened(method, params string, l *exact.Layer, t *LowRank, s methods.Setting, k int) Row {
	return Row{Method: method, Params: words(params, s.Params(), fmt.Sprintf("opened for top-%d", k)), Rank: rank(t), New: func() LogProber {
		return &opened{newTailed(l, t, 0), s.Searcher().(methods.LogitSearcher), k}
	}}
}

func (o *opened) LogProb(h []float32, id uint32) float64 {
	o.tailLogits(h)
	o.searcher.Logits(o.logits, h, o.k)
	return o.logits[id] - kernels.LogSumExp(o.logits)
}

// svd is SVD-softmax.
type svd struct {
	tailed
	n        int
	previews []float32
	bounds   methods.Largest
	scores   []float32
}

// SVD is the row of SVD-softmax (Shim et al., NIPS 2017): the logits of the tail are the preview,
// whose rank is the width of the preview window; the logits of the n labels with the largest
// previews are exact, and the others keep their preview. n is at least 1.
//
// The preview is A (B h), with B the leading right singular vectors and A = U S
// in the leading columns. The n largest previews are found by a bound, which is
// cheaper than to rank them, so that some more than n are exact.
func SVD(l *exact.Layer, t *LowRank, n int) Row {
	labels := l.Labels()
	n = min(n, labels)
	return Row{Method: "SVD-softmax", Params: fmt.Sprintf("w=%d N=%d", rank(t), n), Rank: rank(t), New: func() LogProber {
		return &svd{tailed: newTailed(l, t, labels), n: n, previews: make([]float32, labels), scores: make([]float32, labels)}
	}}
}

func (s *svd) LogProb(h []float32, id uint32) float64 {
	s.tailLogits(h)
	for i, x := range s.logits {
		s.previews[i] = float32(x)
	}
	ids := s.bounds.AtLeast(s.ids, s.previews, s.n)
	floats.GatherDot(s.scores[:len(ids)], s.weights, s.bias, ids, h)
	for j, at := range ids {
		s.logits[at] = float64(s.scores[j])
	}
	return s.logits[id] - kernels.LogSumExp(s.logits)
}
