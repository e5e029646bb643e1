package methods

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/ground/parallel"
	"github.com/learning-to-screen/l2s/internal/search/dense"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// GreedyMIPS is "A Greedy Approach for Budgeted Maximum Inner Product Search" (Yu, Hsieh, Lei and
// Dhillon, NIPS 2017). The bias is one more dimension, in which a context has 1.
//
// Construction sorts the labels by their element in each dimension. A query walks these d+1 lists
// at once, each from the end where its products h_j w_sj are largest: a tournament among the lists
// names the largest product left, whose label becomes a candidate, until the number of candidates
// is the budget. So the candidates are the labels with the largest max_j h_j w_sj. Their inner
// products are then computed.
//
// The one query-time parameter is the budget, the number of candidates.
type GreedyMIPS struct {
	// Budgets are the settings, ascending, each at least 1.
	Budgets []int
}

// Name returns "Greedy-MIPS".
func (GreedyMIPS) Name() string { return "Greedy-MIPS" }

// Params returns "".
func (GreedyMIPS) Params() string { return "" }

// Build sorts the lists.
func (m GreedyMIPS) Build(ctx context.Context, in *Input) (Index, error) {
	l := in.Layer
	n, d, w := l.Labels(), l.Dim(), dense.Weights(l)
	for _, b := range m.Budgets {
		if b < 1 {
			return nil, fmt.Errorf("methods: budget of Greedy-MIPS: found %d, expected at least 1", b)
		}
	}
	x := &greedyIndex{layer: l, budgets: m.Budgets, lists: make([]listEntry, (d+1)*n)}
	err := parallel.Each(ctx, 0, d+1, 1, nil, func(_, j, _ int) error {
		list := x.list(j)
		for s := range list {
			list[s] = listEntry{uint32(s), l.Bias()[s]}
			if j < d {
				list[s].value = w[s*d+j]
			}
		}
		slices.SortFunc(list, func(a, b listEntry) int {
			return cmp.Or(cmp.Compare(b.value, a.value), cmp.Compare(a.id, b.id))
		})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return x, nil
}

// greedyIndex has one list per dimension, from the largest element to the smallest.
type greedyIndex struct {
	layer   *exact.Layer
	budgets []int
	lists   []listEntry // d+1 lists of L
}

// listEntry is a label and its element of one dimension. They are in one struct because they are
// read together.
type listEntry struct {
	id    uint32
	value float32
}

func (x *greedyIndex) list(j int) []listEntry {
	n := x.layer.Labels()
	return x.lists[j*n : (j+1)*n]
}

func (x *greedyIndex) Bytes() int64 { return 8*int64(len(x.lists)) + layerCodes(x.layer) }

func (x *greedyIndex) Settings() []Setting { return settings("budget=%d", x.budgets, x.searcher) }

func (x *greedyIndex) searcher(budget int) Searcher {
	lists := x.layer.Dim() + 1
	leaves := 1
	for leaves < lists {
		leaves *= 2
	}
	g := &greedySearcher{
		candidates: newCandidates(x.layer), index: x, budget: min(budget, x.layer.Labels()),
		at: make([]listIterator, lists), key: make([]float32, leaves), winner: make([]int32, 2*leaves),
	}
	for j := range g.key {
		g.key[j] = float32(math.Inf(-1)) // the leaves without a list
		g.winner[leaves+j] = int32(j)
	}
	return g
}

// greedySearcher walks the lists. The tournament is a complete binary tree: leaf i of the leaves is
// list i, an inner node holds the list with the larger key of its two children, node 1 is the root.
type greedySearcher struct {
	*candidates
	index  *greedyIndex
	budget int
	at     []listIterator
	key    []float32 // product at the iterator of each list, -Inf at its end
	winner []int32
}

// listIterator is where a list is being read.
type listIterator struct {
	list   []listEntry
	next   int // index of the entry that is next
	step   int // 1 or -1
	factor float32
}

// key returns the product at the iterator.
func (it *listIterator) key() float32 {
	if uint(it.next) >= uint(len(it.list)) {
		return float32(math.Inf(-1))
	}
	return it.factor * it.list[it.next].value
}

func (g *greedySearcher) TopK(dst []exact.Prediction, h []float32) int {
	g.begin(h)
	g.start(h)
	for len(g.ids) < g.budget {
		j := int(g.winner[1])
		it := &g.at[j]
		if uint(it.next) >= uint(len(it.list)) {
			break // all lists have ended
		}
		g.add(it.list[it.next].id)
		// A label that is already a candidate need not play again.
		for it.next += it.step; uint(it.next) < uint(len(it.list)) && g.seen[it.list[it.next].id] == g.stamp; it.next += it.step {
		}
		g.replay(j, it.key())
	}
	return g.topK(dst)
}

// start sets the iterators for a context and plays the whole tournament.
func (g *greedySearcher) start(h []float32) {
	for j := range g.at {
		it := &g.at[j]
		*it = listIterator{list: g.index.list(j), step: 1, factor: 1}
		if j < len(h) {
			it.factor = h[j]
		}
		if it.factor < 0 {
			it.next, it.step = len(it.list)-1, -1
		}
		g.key[j] = it.key()
	}
	for node := len(g.key) - 1; node >= 1; node-- {
		g.play(node)
	}
}

// play decides a node from its children; of equal keys the lower list wins.
func (g *greedySearcher) play(node int) {
	a, b := g.winner[2*node], g.winner[2*node+1]
	if g.key[b] > g.key[a] {
		a = b
	}
	g.winner[node] = a
}

// replay gives list j a new key and decides the nodes above it again.
func (g *greedySearcher) replay(j int, key float32) {
	g.key[j] = key
	for node := (len(g.key) + j) / 2; node >= 1; node /= 2 {
		g.play(node)
	}
}
