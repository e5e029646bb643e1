package methods

import (
	"errors"

	"github.com/learning-to-screen/l2s/internal/dense"
	"github.com/learning-to-screen/l2s/internal/grow"
	"github.com/learning-to-screen/l2s/internal/kernels"
	"github.com/learning-to-screen/l2s/internal/screening"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// Paper asks a screen in the paper's own arithmetic, float32 throughout: argmax
// over V (Eq. 2), a gather-dot over the candidates, and the dense scan if there are fewer
// than k.
type Paper struct {
	model *screen.Model
	sets  [][]uint32 // of each cluster: the candidates within the model's budget
	layer *dense.Searcher

	weights, bias []float32
	scores, best  []float32
	places        []uint32
}

// NewPaper returns a searcher for a screen of the layer l with the paper's form: clusters
// alone.
func NewPaper(m *screen.Model, l *softmax.Layer) (*Paper, error) {
	if (*screening.Model)(m).Cells() > m.Clusters() {
		return nil, errors.New("methods: found a screen with shells, expected one of clusters alone")
	}
	p := &Paper{model: m, layer: dense.New(l), weights: dense.Weights(l), bias: l.Bias()}
	for cell := range (*screening.Model)(m).Cells() {
		set, err := (*screening.Model)(m).Candidates(cell, m.Budget())
		if err != nil {
			return nil, err
		}
		p.sets = append(p.sets, set)
	}
	return p, nil
}

// TopK answers as Searcher describes.
func (p *Paper) TopK(dst []softmax.Prediction, h []float32) int {
	z, _ := kernels.ArgmaxDot((*screening.Model)(p.model).ClusterWeights(), h)
	set, k := p.sets[z], len(dst)
	if len(set) < k {
		return p.layer.TopK(dst, h)
	}
	p.scores = grow.Slice(p.scores, len(set))
	p.places, p.best = grow.Slice(p.places, k), grow.Slice(p.best, k)
	kernels.GatherDot(p.scores, p.weights, p.bias, set, h)
	kernels.TopK(p.places, p.best, p.scores)
	for i, at := range p.places {
		dst[i] = softmax.Prediction{ID: set[at], Logit: float64(p.best[i])}
	}
	return k
}
