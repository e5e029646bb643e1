package methods

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/dense"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/tests/synthetic"
	"github.com/learning-to-screen/l2s/train"
)

// specK is the number of labels of a query, or less if there are fewer.
const specK = 5

// input returns the input of a method, with the first contexts of d and their labels, and the other
// contexts.
func input(t testing.TB, d *synthetic.Data, learn int) (*Input, [][]float32) {
	t.Helper()
	in := &Input{Layer: d.Exact, Contexts: d.Contexts[:learn*d.Exact.Dim()], K: min(specK, d.Exact.Labels()), Seed: 1}
	var err error
	in.Labels, err = train.Labels(context.Background(), d.Layer, in.Contexts, in.K, train.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return in, contextsOf(d.Exact, d.Contexts[len(in.Contexts):])
}

// contextsOf cuts rows into contexts of a layer.
func contextsOf(l *exact.Layer, rows []float32) [][]float32 {
	return slices.Collect(slices.Chunk(rows, l.Dim()))
}

// small is a layer of 600 labels, small enough for searches through all. Labels
// and contexts lean towards 12 directions.
func small(t testing.TB) (*Input, [][]float32) {
	t.Helper()
	return input(t, synthetic.Structured(600, 24, 12, 1100, 1), 1000)
}

func build(t testing.TB, m Method, in *Input) Index {
	t.Helper()
	x, err := m.Build(context.Background(), in)
	if err != nil {
		t.Fatalf("%s: %v", title(m), err)
	}
	return x
}

func title(m Method) string { return strings.TrimSpace(m.Name() + " " + m.Params()) }

// exactOf returns the exact answer among ids, or all labels where ids is nil.
func exactOf(l *exact.Layer, h []float32, ids []uint32) []exact.Prediction {
	dst, among := make([]exact.Prediction, specK), exact.Labels{}
	if ids != nil {
		among = exact.Only(ids)
	}
	return dst[:newExactSearch(l).topK(dst, h, among)]
}

// logitOf returns the logit of a label.
func logitOf(l *exact.Layer, s uint32, h []float32) float64 {
	return kernels.RefDot(dense.Weights(l)[int(s)*l.Dim():(int(s)+1)*l.Dim()], h) + float64(l.Bias()[s])
}

func answerOf(s Searcher, h []float32) []exact.Prediction {
	dst := make([]exact.Prediction, specK)
	return dst[:s.TopK(dst, h)]
}

// precision returns P@5 of a setting.
func precision(s Setting, l *exact.Layer, contexts [][]float32) float64 {
	hits, sr := 0, s.Searcher()
	for _, h := range contexts {
		best := exactOf(l, h, nil)
		for _, p := range answerOf(sr, h) {
			if slices.ContainsFunc(best, func(e exact.Prediction) bool { return e.ID == p.ID }) {
				hits++
			}
		}
	}
	return float64(hits) / float64(specK*len(contexts))
}

// lastOf returns the most precise setting of an index.
func lastOf(x Index) Setting {
	all := x.Settings()
	return all[len(all)-1]
}
