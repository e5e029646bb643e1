package sample

import (
	"github.com/learning-to-screen/l2s/internal/ground/mem"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/previewing"
)

// finder finds logits of the context of a draw by the layer, and the best labels by the preview, as
// long as that answers, or by the layer.
type finder struct {
	layer   *exact.Searcher
	query   *exact.Query
	preview *previewing.Searcher // nil without a preview
	context []float32            // of the draw, for the preview; nil if the layer answers
	budget  float64              // of the preview

	answers [1]exact.Answer
	queries [1]*exact.Query
	found   []exact.Prediction
}

// begin gives it the context of a draw, which a preview may answer or not.
func (f *finder) begin(h []float32, previewed bool) error {
	if previewed && f.preview != nil {
		f.context = h
	}
	return f.query.Set(h)
}

// end forgets the context. It reports whether the layer has answered, at least in part.
func (f *finder) end() bool {
	exactly := f.context == nil
	f.context = nil
	return exactly
}

// logits writes the logits of labels, without edits.
func (f *finder) logits(dst []float64, of exact.Labels) error {
	return f.layer.Logits(dst, f.query, of)
}

// best returns the labels of the k largest logits that answer a request, until the next call.
func (f *finder) best(k int, r *exact.Request) ([]exact.Prediction, error) {
	f.found = mem.Grow(f.found, k)
	if f.context == nil {
		f.queries[0] = f.query
		if err := f.layer.Find(f.found, f.answers[:], f.queries[:], r); err != nil {
			return nil, err
		}
		return f.found[:f.answers[0].Count], nil
	}
	r.Budget = f.budget
	a, err := f.preview.Search(f.found, f.context, *r)
	if err != nil {
		return nil, err
	}
	if a.Source == exact.FromLayer {
		f.context = nil
	}
	return f.found[:a.Count], nil
}
