package methods

import (
	"cmp"
	"context"
	"fmt"
	"math/bits"
	"slices"

	"github.com/learning-to-screen/l2s/internal/codes/floats"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// PCAMIPS is the PCA tree of "Speeding Up the Xbox Recommender System Using a Euclidean
// Transformation for Inner-Product Spaces" (Bachrach et al., RecSys 2014), on the reduction to
// nearest neighbours with the bias as one more dimension.
//
// The principal components u_1, u_2, ... of the points, centred at their mean, are the rotation.
// Level i of a complete binary tree splits the points of each node at the median of their i-th
// component; so the leaves are of equal size. A context is centred and rotated like the points,
// walks down the tree, and its candidates are the points of its leaf and of the neighbouring
// leaves, those whose path from the root differs in at most a given number of the decisions.
//
// In the paper's table this method reads as a random selection. The program that measured that row
// rotates contexts in another way than the points, so that a context does not arrive where its
// neighbours are. Here the two are rotated alike.
type PCAMIPS struct {
	// Depth is the number of levels: there are 2^Depth leaves.
	Depth int
	// Distances are the settings, ascending: the number of decisions in which
	// the path of a leaf may differ from the path of the context, 0 to Depth.
	Distances []int
}

// Name returns "PCA-MIPS".
func (PCAMIPS) Name() string { return "PCA-MIPS" }

// Params returns such as "depth=6".
func (m PCAMIPS) Params() string { return fmt.Sprintf("depth=%d", m.Depth) }

// Build finds the components and grows the tree.
func (m PCAMIPS) Build(ctx context.Context, in *Input) (Index, error) {
	l := in.Layer
	r := newReduction(l)
	if most := min(r.dim, bits.Len(uint(l.Labels()))-1); m.Depth < 0 || m.Depth > most {
		return nil, fmt.Errorf("methods: depth of the PCA tree: found %d, expected 0 to %d", m.Depth, most)
	}
	for _, t := range m.Distances {
		if t < 0 || t > m.Depth {
			return nil, fmt.Errorf("methods: distance of leaves: found %d, expected 0 to the depth %d", t, m.Depth)
		}
	}
	components, mean, err := principalComponents(ctx, r, m.Depth)
	if err != nil {
		return nil, err
	}
	x := &pcaIndex{layer: l, reduction: r.radius, depth: m.Depth, distances: m.Distances}
	x.directions, x.ones = r.split(components)
	x.offsets = make([]float32, m.Depth)
	for i := range x.offsets {
		x.offsets[i] = float32(kernels.RefDot(components[i*r.dim:(i+1)*r.dim], mean))
	}
	// The component of each point on each level.
	n := l.Labels()
	height := make([]float32, m.Depth*n)
	for i := range m.Depth {
		floats.Scan(height[i*n:(i+1)*n], r.points, nil, components[i*r.dim:(i+1)*r.dim])
		for s := range n {
			height[i*n+s] -= x.offsets[i]
		}
	}
	x.ids = make([]uint32, n)
	for s := range x.ids {
		x.ids[s] = uint32(s)
	}
	x.thresholds = make([]float32, 1<<m.Depth) // node 1 is the root
	x.firsts = make([]uint32, 1, 1<<m.Depth+1)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	x.grow(height, x.ids, 1, 0)
	return x, nil
}

// principalComponents returns the first n principal components of the points, row-major, and the
// mean of the points: the components are the right singular vectors of the points centred at it.
func principalComponents(ctx context.Context, r *reduction, n int) (components, mean []float32, err error) {
	rows := len(r.points) / r.dim
	sum := make([]float64, r.dim)
	for at := 0; at < len(r.points); at += r.dim {
		floats.Axpy(sum, 1, r.points[at:at+r.dim])
	}
	mean = make([]float32, r.dim)
	for j := range mean {
		mean[j] = float32(sum[j] / float64(rows))
	}
	centred := make([]float32, len(r.points))
	for i, v := range r.points {
		centred[i] = v - mean[i%r.dim]
	}
	components, err = RightSingularVectors(ctx, centred, r.dim, n)
	return components, mean, err
}

type pcaIndex struct {
	layer     *exact.Layer
	reduction float64 // U
	depth     int
	distances []int

	directions []float32 // depth x d: the part of the components that is multiplied with h
	ones       []float32 // and the part for the 1 of a context
	offsets    []float32 // the component of the mean
	thresholds []float32 // of the inner nodes; the children of node i are 2i and 2i+1
	ids        []uint32  // the labels, leaf by leaf
	firsts     []uint32  // where each leaf begins, and the end
}

// grow makes the subtree of a node from its points: points up to the median go to the first child.
func (x *pcaIndex) grow(height []float32, ids []uint32, node, level int) {
	if level == x.depth {
		x.firsts = append(x.firsts, x.firsts[len(x.firsts)-1]+uint32(len(ids)))
		return
	}
	of := height[level*x.layer.Labels():]
	slices.SortFunc(ids, func(a, b uint32) int {
		return cmp.Or(cmp.Compare(of[a], of[b]), cmp.Compare(a, b))
	})
	half := len(ids) / 2
	x.thresholds[node] = (of[ids[half-1]] + of[ids[half]]) / 2
	x.grow(height, ids[:half], 2*node, level+1)
	x.grow(height, ids[half:], 2*node+1, level+1)
}

func (x *pcaIndex) Bytes() int64 {
	return 4*int64(len(x.directions)+len(x.ones)+len(x.offsets)+len(x.thresholds)+len(x.ids)+len(x.firsts)) + layerCodes(x.layer)
}

func (x *pcaIndex) Settings() []Setting { return settings("distance=%d", x.distances, x.searcher) }

func (x *pcaIndex) searcher(distance int) Searcher {
	p := &pcaSearcher{candidates: newCandidates(x.layer), index: x, r: reduction{radius: x.reduction}, height: make([]float32, x.depth)}
	for flips := range uint32(1) << x.depth {
		if bits.OnesCount32(flips) <= distance {
			p.flips = append(p.flips, flips)
		}
	}
	return p
}

type pcaSearcher struct {
	*candidates
	index  *pcaIndex
	r      reduction
	height []float32
	flips  []uint32 // differences of a path that are near enough
}

func (p *pcaSearcher) TopK(dst []exact.Prediction, h []float32) int {
	p.begin(h)
	x := p.index
	floats.Scan(p.height, x.directions, x.ones, h)
	scale := p.r.scale(h)
	node := 1
	for i, v := range p.height {
		node *= 2
		if float32(scale*v)-x.offsets[i] > x.thresholds[node/2] {
			node++
		}
	}
	path := uint32(node - 1<<x.depth)
	// A label is in one leaf alone.
	for _, flip := range p.flips {
		leaf := path ^ flip
		p.ids = append(p.ids, x.ids[x.firsts[leaf]:x.firsts[leaf+1]]...)
	}
	return p.topK(dst)
}
