package methods

import (
	"github.com/learning-to-screen/l2s/internal/dense"
	"github.com/learning-to-screen/l2s/internal/grow"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// Paper asks a screen in the paper's own arithmetic, float32 throughout: argmax
// over V (Eq. 2), a gather-dot over the candidate set, and the dense scan if the
// set holds fewer than k labels. Margins play no part.
type Paper struct {
	model  *screen.Model
	starts []int     // of the groups
	scores []float32 // of the clusters in the list of a group
	layer  *dense.Searcher
}

// NewPaper returns a searcher for a screen of the layer l.
func NewPaper(m *screen.Model, l *softmax.Layer) *Paper {
	p := &Paper{model: m, layer: dense.New(l), starts: []int{0}}
	for _, size := range m.GroupSizes() {
		p.starts = append(p.starts, p.starts[len(p.starts)-1]+size)
	}
	return p
}

// TopK answers as Searcher says.
func (p *Paper) TopK(dst []softmax.Prediction, h []float32) int {
	set := p.model.Candidates(p.cluster(h))
	if len(set) < len(dst) {
		return p.layer.TopK(dst, h)
	}
	return p.layer.TopKOf(dst, h, set)
}

// cluster returns the cluster of a context, with groups the best of the best
// group.
func (p *Paper) cluster(h []float32) int {
	v, first := p.model.ClusterWeights(), 0
	if u := p.model.GroupWeights(); u != nil {
		group, _ := kernels.ArgmaxDot(u, h)
		first = p.starts[group]
		if lists := p.model.GroupClusters(); lists != nil {
			return p.best(lists[first:p.starts[group+1]], h)
		}
		v = v[first*len(h) : p.starts[group+1]*len(h)]
	}
	t, _ := kernels.ArgmaxDot(v, h)
	return first + t
}

// best returns the best of some clusters.
func (p *Paper) best(clusters []uint32, h []float32) int {
	p.scores = grow.Slice(p.scores, len(clusters))
	kernels.GatherDot(p.scores, p.model.ClusterWeights(), nil, clusters, h)
	best := 0
	for j, x := range p.scores {
		if x > p.scores[best] {
			best = j
		}
	}
	return int(clusters[best])
}
