package methods

import "context"

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
