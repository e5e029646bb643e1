package methods

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/learning-to-screen/l2s/internal/codes/floats"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/dense"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// graph is a hierarchical navigable small world: Yu. A. Malkov and D. A. Yashunin, "Efficient and
// robust approximate nearest neighbor search using Hierarchical Navigable Small World graphs",
// arXiv:1603.09320 (2016), IEEE TPAMI 2018.
//
// Nodes are the rows of a matrix, and near means a large inner product. Where
// all rows have one norm that is the order of L2 distances too: see FGD.
//
//   - M is the number of links that a new node gets in a layer. A node keeps at
//     most M in the upper layers and 2M in the lowest.
//   - efC (efConstruction) is the size of the list of candidates from which
//     these are chosen, by the heuristic of Algorithm 4: a candidate becomes a
//     neighbour if it is nearer to the node than to every neighbour so far.
//   - ef is the size of the list of candidates of a search.
//
// The layer of a node is floor(-ln(u) / ln(M)), u uniform and drawn from the seed. One goroutine
// builds, so a seed gives one graph on one level of the kernels.
//
// The paper does not define the order of the nodes, and calls the last step of Algorithm 4
// optional: to fill the links up with the nearest of the candidates that were left out. Both matter
// much to softmax layers; FGD and IPNSW describe their choice.
type graph struct {
	m       int
	entry   uint32   // a node of the highest layer
	highest int      // the number of layers above the lowest
	lowest  []uint32 // n records of 1 + 2M: a number of links and the links
	upper   []uint32 // records of 1 + M, layer 1 first, for the nodes in upper layers
	start   []uint32 // n: where the records of a node in upper start
}

// defaultM and defaultEfConstruction replace zeros in the parameters.
const (
	defaultM              = 16
	defaultEfConstruction = 200
)

// graphParams are the parameters of the construction of a graph.
type graphParams struct {
	m, efConstruction int
	fill              bool // the option of Algorithm 4
}

func (p graphParams) String() string {
	return fmt.Sprintf("M=%d efC=%d", p.m, p.efConstruction)
}

// newGraphParams returns the parameters with defaults for zeros.
func newGraphParams(m, efConstruction int, fill bool) graphParams {
	return graphParams{
		m:              cmp.Or(m, defaultM),
		efConstruction: cmp.Or(efConstruction, defaultEfConstruction),
		fill:           fill,
	}
}

func (p graphParams) check() error {
	// 1 + 2M links fit a record of any size; the bound only catches mistakes.
	if p.m < 2 || p.m > 1<<12 {
		return fmt.Errorf("methods: M: found %d, expected 2 to %d", p.m, 1<<12)
	}
	if p.efConstruction < 1 {
		return fmt.Errorf("methods: efConstruction: found %d, expected at least 1", p.efConstruction)
	}
	return nil
}

// record returns the record of a node in a layer: the number of its links, then room for them.
func (g *graph) record(node uint32, layer int) []uint32 {
	if layer == 0 {
		size := 1 + 2*g.m
		at := int(node) * size
		return g.lowest[at : at+size]
	}
	size := 1 + g.m
	at := int(g.start[node]) + (layer-1)*size
	return g.upper[at : at+size]
}

// links returns the neighbours of a node in a layer.
func (g *graph) links(node uint32, layer int) []uint32 {
	r := g.record(node, layer)
	return r[1 : 1+r[0]]
}

// setLinks makes ids the neighbours of a node in a layer.
func (g *graph) setLinks(node uint32, layer int, ids []uint32) {
	r := g.record(node, layer)
	r[0] = uint32(len(ids))
	copy(r[1:], ids)
}

// bytes is the memory of the graph.
func (g *graph) bytes() int64 {
	return 4 * int64(len(g.lowest)+len(g.upper)+len(g.start))
}

// A node that a search has met is one uint64 that orders by score, equals by the lower id: the
// score as an ordered integer, the id with its bits flipped, and a bit that is set until the node's
// links have been followed. The last decides nothing, for ids are distinct.
const (
	pending  = 1
	idMask   = 1<<31 - 1
	maxNodes = 1 << 31
)

func packNode(id uint32, score float32) uint64 {
	b := math.Float32bits(score)
	if b&(1<<31) != 0 {
		b = ^b
	} else {
		b |= 1 << 31
	}
	return uint64(b)<<32 | uint64(^id&idMask)<<1 | pending
}

func nodeID(node uint64) uint32 { return ^uint32(node>>1) & idMask }

func nodeScore(node uint64) float32 {
	b := uint32(node >> 32)
	if b&(1<<31) != 0 {
		b &^= 1 << 31
	} else {
		b = ^b
	}
	return math.Float32frombits(b)
}

// gatherer scores nodes with the query.
type gatherer interface {
	gather(dst []float32, ids []uint32)
}

// walk is a search in progress, and the scratch of all searches of one
// goroutine. A construction has other scores than a query.
type walk struct {
	gatherer
	met    []uint32 // n: the number of the last search that met the node
	search uint32
	found  []uint64 // the best nodes, the best first
	ids    []uint32
	scores []float32
}

func newWalk(g *graph, by gatherer) *walk {
	return &walk{
		gatherer: by, met: make([]uint32, len(g.start)),
		ids: make([]uint32, 2*g.m), scores: make([]float32, 2*g.m),
	}
}

// score returns the score of one node.
func (w *walk) score(id uint32) float32 {
	w.ids[0] = id
	w.gather(w.scores[:1], w.ids[:1])
	return w.scores[0]
}

// descend follows the best link from a node, layer by layer from the highest
// down to the one above last, and returns the node where that ends.
func (w *walk) descend(g *graph, last int) uint32 {
	at, best := g.entry, w.score(g.entry)
	for layer := g.highest; layer > last; layer-- {
		for moved := true; moved; {
			moved = false
			ids := g.links(at, layer)
			scores := w.scores[:len(ids)]
			w.gather(scores, ids)
			for i, s := range scores {
				if s > best {
					at, best, moved = ids[i], s, true
				}
			}
		}
	}
	return at
}

// expand is Algorithm 2, the search of one layer from a node: w.found becomes the best ef nodes
// that it meets. It follows the links of each of them, the best first, and ends when it has
// followed the links of all: a node with ef better ones is dropped.
func (w *walk) expand(g *graph, from uint32, layer, ef int) {
	if w.search++; w.search == 0 {
		clear(w.met)
		w.search = 1
	}
	met, mark := w.met, w.search
	met[from] = mark
	found := append(slices.Grow(w.found[:0], ef+1), packNode(from, w.score(from)))
	// A score below the least of a full list cannot enter it.
	least := float32(math.Inf(-1))
	if ef == 1 {
		least = nodeScore(found[0])
	}
	for next := 0; next < len(found); {
		if found[next]&pending == 0 {
			next++
			continue
		}
		found[next] &^= pending
		n := 0
		for _, id := range g.links(nodeID(found[next]), layer) {
			w.ids[n] = id
			if met[id] != mark {
				n++
			}
			met[id] = mark
		}
		next++
		ids, scores := w.ids[:n], w.scores[:n]
		w.gather(scores, ids)
		for i, s := range scores {
			if s < least {
				continue
			}
			node := packNode(ids[i], s)
			at := rank(found, node)
			switch {
			case len(found) < ef:
				found = append(found, 0)
			case at == ef:
				continue
			}
			copy(found[at+1:], found[at:])
			found[at] = node
			next = min(next, at)
			if len(found) == ef {
				least = nodeScore(found[ef-1])
			}
		}
	}
	w.found = found
}

// rank returns the number of nodes that are before node.
func rank(found []uint64, node uint64) int {
	lo, hi := 0, len(found)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if found[mid] > node {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// builder inserts nodes into a graph.
type builder struct {
	*graph
	graphParams
	*walk
	rows   []float32
	dim    int
	query  []float32 // the row that others are scored with
	near   []uint64  // the candidates of link
	picked []uint32  // the neighbours that pick chooses
	left   []uint32  // those that it leaves out
}

// gather makes a builder the scores of its walk.
func (b *builder) gather(dst []float32, ids []uint32) {
	floats.GatherDot(dst, b.rows, nil, ids, b.query)
}

func (b *builder) row(id uint32) []float32 {
	return b.rows[int(id)*b.dim : (int(id)+1)*b.dim]
}

// buildGraph builds the graph of rows, row-major with rows of dim elements,
// inserting them in an order.
func buildGraph(ctx context.Context, in *Input, rows []float32, dim int, order []uint32, p graphParams) (*graph, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	n := len(rows) / dim
	if uint64(n) > maxNodes {
		return nil, fmt.Errorf("methods: graph: found %d rows, expected at most %d", n, uint64(maxNodes))
	}
	r := rand.New(rand.NewPCG(in.Seed, 0x686e7377))
	layers := make([]int, n)
	scale := 1 / kernels.Log(float64(p.m))
	start, size := make([]uint32, n), 0
	for i := range layers {
		// 1 - Float64 is in (0, 1].
		layers[i] = int(-kernels.Log(1-r.Float64()) * scale)
		start[i] = uint32(size)
		size += layers[i] * (1 + p.m)
	}
	if uint64(size) > math.MaxUint32 {
		return nil, errors.New("methods: graph: upper layers need more than 32-bit offsets")
	}
	g := &graph{m: p.m, lowest: make([]uint32, n*(1+2*p.m)), upper: make([]uint32, size), start: start}
	b := &builder{graph: g, graphParams: p, rows: rows, dim: dim}
	b.walk = newWalk(g, b)
	g.entry, g.highest = order[0], layers[order[0]]
	for i, id := range order[1:] {
		if i%64 == 0 {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
		}
		b.insert(id, layers[id])
	}
	return g, nil
}

// insert is Algorithm 1.
func (b *builder) insert(id uint32, top int) {
	b.query = b.row(id)
	from := b.descend(b.graph, top)
	for layer := min(top, b.highest); layer >= 0; layer-- {
		b.query = b.row(id)
		b.expand(b.graph, from, layer, b.efConstruction)
		from = nodeID(b.found[0])
		b.setLinks(id, layer, b.pick(b.found, b.graph.m))
		for _, other := range b.links(id, layer) {
			b.link(other, id, layer)
		}
	}
	if top > b.highest {
		b.entry, b.highest = id, top
	}
}

// link adds id to the neighbours of a node; where they are too many, it picks among them and id.
func (b *builder) link(node, id uint32, layer int) {
	r := b.record(node, layer)
	if n := int(r[0]); n+1 < len(r) {
		r[n+1] = id
		r[0]++
		return
	}
	b.query = b.row(node)
	ids, scores := r[1:], b.scores[:len(r)-1]
	b.gather(scores, ids)
	b.near = b.near[:0]
	for i, s := range scores {
		b.near = append(b.near, packNode(ids[i], s))
	}
	b.near = append(b.near, packNode(id, b.score(id)))
	slices.SortFunc(b.near, func(x, y uint64) int { return cmp.Compare(y, x) })
	b.setLinks(node, layer, b.pick(b.near, len(ids)))
}

// pick is Algorithm 4: it chooses at most n of the candidates, which are ordered by their score
// with their future neighbour. A candidate that scores higher with an earlier chosen one is left
// out: a search reaches it over that one. If links are filled up, the first of the left-out
// candidates follow.
func (b *builder) pick(candidates []uint64, n int) []uint32 {
	b.picked, b.left = b.picked[:0], b.left[:0]
	for _, c := range candidates {
		if len(b.picked) == n {
			break
		}
		id, score := nodeID(c), nodeScore(c)
		scores := b.scores[:len(b.picked)]
		floats.GatherDot(scores, b.rows, nil, b.picked, b.row(id))
		if slices.ContainsFunc(scores, func(s float32) bool { return s > score }) {
			b.left = append(b.left, id)
		} else {
			b.picked = append(b.picked, id)
		}
	}
	if b.fill {
		b.picked = append(b.picked, b.left[:min(len(b.left), n-len(b.picked))]...)
	}
	return b.picked
}

// graphIndex answers with a graph over the labels.
type graphIndex struct {
	*graph
	layer *exact.Layer
	codes *codes
}

// newGraphIndex builds the graph of rows, one per label of in.Layer.
func newGraphIndex(ctx context.Context, in *Input, rows []float32, dim int, order []uint32, p graphParams) (Index, error) {
	g, err := buildGraph(ctx, in, rows, dim, order, p)
	if err != nil {
		return nil, err
	}
	return &graphIndex{g, in.Layer, newCodes(dense.Weights(in.Layer), in.Layer.Bias(), in.Layer.Dim())}, nil
}

// Bytes counts the codes once: the search uses the codes of the layer.
func (x *graphIndex) Bytes() int64 { return x.bytes() + layerCodes(x.layer) }

// graphEfs are the sizes of the list of candidates worth measuring.
var graphEfs = []int{5, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024}

func (x *graphIndex) Settings() (all []Setting) {
	for _, ef := range upTo(graphEfs, x.layer.Labels()) {
		all = append(all, graphSetting{x, ef})
	}
	return all
}

type graphSetting struct {
	*graphIndex
	ef int
}

// ParamsOf are the parameters of a search for k labels: its list has at least k labels.
func (s graphSetting) ParamsOf(k int) string {
	return graphSetting{s.graphIndex, max(s.ef, k)}.Params()
}

func (s graphSetting) Params() string { return fmt.Sprintf("ef=%d", s.ef) }

func (s graphSetting) Searcher() Searcher {
	by := newScorer(s.codes, 2*s.m)
	return &graphSearcher{graphSetting: s, by: by, walk: newWalk(s.graph, by), exact: newExactSearch(s.layer)}
}

type graphSearcher struct {
	graphSetting
	by    *scorer
	walk  *walk
	exact exactSearch
	ids   []uint32
}

// TopK is the search of a query, Algorithm 5, by the logits of the int8 codes.
// Of the list of candidates that this leaves, the logits decide.
func (s *graphSearcher) TopK(dst []exact.Prediction, h []float32) int {
	s.search(h, len(dst))
	return s.exact.topK(dst, h, exact.Only(s.ids))
}

// TopKLogSumExp is TopK with the sum over the list of candidates.
func (s *graphSearcher) TopKLogSumExp(dst []exact.Prediction, h []float32) (n int, lse float64) {
	s.search(h, len(dst))
	return s.exact.topKLogSum(dst, h, exact.Only(s.ids))
}

// search leaves the list of candidates of a search for k labels in s.ids.
func (s *graphSearcher) search(h []float32, k int) {
	s.by.set(h)
	s.walk.expand(s.graph, s.walk.descend(s.graph, 0), 0, max(s.ef, k))
	s.ids = s.ids[:0]
	for _, node := range s.walk.found {
		s.ids = append(s.ids, nodeID(node))
	}
}
