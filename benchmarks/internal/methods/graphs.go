package methods

import (
	"cmp"
	"context"
	"slices"
)

// FGD is fast graph decoding: M. Zhang, X. Liu, W. Wang, J. Gao and Y. He, "Navigating with Graph
// Representations for Fast and Scalable Decoding of Neural Language Models", NeurIPS 2018.
//
// The search of the largest logits becomes one of the nearest neighbours, in
// d+2 dimensions. With U^2 the largest |w_s|^2 + b_s^2,
//
//	w^_s = [w_s; b_s; sqrt(U^2 - |w_s|^2 - b_s^2)],  h^ = [h; 1; 0]
//	|h^ - w^_s|^2 = |h^|^2 + U^2 - 2 (w_s.h + b_s)
//
// so that the nearest label has the largest logit. A hierarchical navigable small world (graph
// describes it) over the w^_s finds it.
//
// Distances between labels, in the construction, are distances of the w^_s: all
// have the norm U, so |w^_s - w^_t|^2 = 2 U^2 - 2 w^_s.w^_t, and the order by
// distance is that by inner product. The order by distance to h^ is that by
// logit, so a search needs W and b alone: the added dimensions cost it nothing.
//
// A search scores labels by int8 codes of W and b, a quarter of the bytes. Its final list of
// candidates is then ordered by the logits, as package l2s defines them.
//
// Labels are inserted by |w_s|^2 + b_s^2, the largest first. The largest logits belong to them, and
// later nodes link to them: on the layer of a language model P@5 at ef = 64 is 0.98, and 0.66 in a
// random order. Links are not filled up: that costs time and gains no precision for it.
//
// A label to which no path of links leads is never found. With a list of all
// labels (ef = L) the answer is exact for the others.
type FGD struct {
	// M and EfConstruction are the parameters of the graph: the links of a new node in a layer, and
	// the candidates for them. 0 means 16 and 200.
	M, EfConstruction int
}

// Name returns "FGD".
func (m FGD) Name() string { return "FGD" }

// Params returns M and efConstruction.
func (m FGD) Params() string { return newGraphParams(m.M, m.EfConstruction, false).String() }

// Build builds the graph, on one core.
func (m FGD) Build(ctx context.Context, in *Input) (Index, error) {
	rows, dim, order := augment(in, true)
	return newGraphIndex(ctx, in, rows, dim, order, newGraphParams(m.M, m.EfConstruction, false))
}

// augment returns the rows [w_s; b_s], and with oneNorm the rows of the reduction of MIPS to
// nearest neighbours, [w_s; b_s; sqrt(U^2 - |w_s|^2 - b_s^2)]; their dimension, which is made a
// multiple of 16 by zeros; and the labels by |w_s|^2 + b_s^2, the largest first.
func augment(in *Input, oneNorm bool) (rows []float32, dim int, order []uint32) {
	r, n := newReduction(in.Layer), in.Layer.Labels()
	dim = (r.dim + 15) &^ 15
	rows, order = make([]float32, n*dim), make([]uint32, n)
	for s := range order {
		row := rows[s*dim:][:r.dim]
		copy(row, r.points[s*r.dim:])
		if !oneNorm {
			row[r.dim-1] = 0
		}
		order[s] = uint32(s)
	}
	slices.SortStableFunc(order, func(x, y uint32) int { return cmp.Compare(r.squares[y], r.squares[x]) })
	return rows, dim, order
}

// IPNSW is ip-NSW: S. Morozov and A. Babenko, "Non-metric Similarity Graphs for
// Maximum Inner Product Search", NeurIPS 2018.
//
// The graph of FGD without its reduction: labels are the rows [w_s; b_s], and nearness, between
// labels in the construction and to [h; 1] in a search, is the inner product. A label is then
// linked to labels of a large norm, which are near to everything, and not to labels of its own
// direction.
//
// Labels are inserted as for FGD, by their norm, the largest first, and links are filled up: the
// heuristic alone gives a label only the few neighbours with the largest norms. Searches are done
// as in FGD.
//
// A label of a small norm may be nobody's neighbour: then no search finds it, not even with a list
// of all labels (ef = L), which finds all other labels. On the layer of PTB-Small links lead to
// 99.73 percent of the labels at M = 16, and to all but one at M = 32; on the first 2,000 labels of
// the model that l2s embeds, to 53 percent and to 83. The rest is seldom among the largest logits:
// with a list of 1,024 P@5 is 0.996 there.
type IPNSW struct {
	// M and EfConstruction are as for FGD.
	M, EfConstruction int
}

// Name returns "ip-NSW".
func (m IPNSW) Name() string { return "ip-NSW" }

// Params returns M and efConstruction.
func (m IPNSW) Params() string { return newGraphParams(m.M, m.EfConstruction, true).String() }

// Build builds the graph, on one core.
func (m IPNSW) Build(ctx context.Context, in *Input) (Index, error) {
	rows, dim, order := augment(in, false)
	return newGraphIndex(ctx, in, rows, dim, order, newGraphParams(m.M, m.EfConstruction, true))
}
