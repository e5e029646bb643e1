package methods

import (
	"context"
	"errors"
	"fmt"

	"github.com/learning-to-screen/l2s/softmax"
)

// WeightedSVD is SVD-softmax (see [SVDSoftmax]) in the coordinates in which logits differ most over
// contexts, and not in those in which rows differ most: the factors are those of P. Chen, H.-F. Yu, I.
// Dhillon and C.-J. Hsieh, "DRONE: Data-aware Low-rank Compression for Large NLP Models", NeurIPS 2021,
// which compresses layers by them. It is [softmax.View], which chooses the number of coordinates.
//
//   - Deviations are the settings, ascending: how many standard deviations of what the coordinates
//     leave out the intervals around previews have. With a very large number all labels get
//     their logits.
type WeightedSVD struct {
	Deviations []float64
}

// Name returns "Weighted SVD".
func (WeightedSVD) Name() string { return "Weighted SVD" }

// Params returns nothing: the settings say all.
func (WeightedSVD) Params() string { return "" }

// Build makes the views from in.Contexts.
func (m WeightedSVD) Build(ctx context.Context, in *Input) (Index, error) {
	if len(m.Deviations) == 0 {
		return nil, errors.New("methods: deviations: found none, expected at least one")
	}
	var x weightedIndex
	for i, deviations := range m.Deviations {
		if i > 0 && !(deviations > m.Deviations[i-1]) {
			return nil, fmt.Errorf("methods: deviations: found %v, expected ascending numbers", m.Deviations)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		v, err := softmax.NewViewAt(in.Layer, in.Contexts, deviations)
		if err != nil {
			return nil, fmt.Errorf("methods: %w", err)
		}
		x = append(x, weightedSetting{v, in.Layer, deviations})
	}
	return x, nil
}

type weightedIndex []weightedSetting

// Bytes returns the memory of the largest setting.
func (x weightedIndex) Bytes() (most int64) {
	for _, s := range x {
		most = max(most, s.view.Bytes()+layerCodes(s.layer))
	}
	return most
}

func (x weightedIndex) Settings() (all []Setting) {
	for _, s := range x {
		all = append(all, s)
	}
	return all
}

type weightedSetting struct {
	view       *softmax.View
	layer      *softmax.Layer
	deviations float64
}

func (s weightedSetting) Params() string { return fmt.Sprintf("c=%g", s.deviations) }

func (s weightedSetting) Searcher() Searcher {
	by := exactSearch{s.view.NewSearcher(), s.layer.Labels()}
	return searcherFunc(func(dst []softmax.Prediction, h []float32) int { return by.topK(dst, h, softmax.Labels{}) })
}
