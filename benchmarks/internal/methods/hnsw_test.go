package methods

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/dense"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/tests/synthetic"
)

// reached returns the labels that links lead to from a node of the lowest
// layer.
func reached(g *graph, from uint32) []uint32 {
	met := make([]bool, len(g.start))
	met[from] = true
	ids := []uint32{from}
	for i := 0; i < len(ids); i++ {
		for _, id := range g.links(ids[i], 0) {
			if !met[id] {
				met[id] = true
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

func TestAGraphWithAListOfAllLabelsGivesTheExactAnswer(t *testing.T) {
	in, contexts := small(t)
	for _, c := range []struct {
		method Method
		least  float64 // the share of labels that can be reached
	}{
		{FGD{}, 1},
		{FGD{M: 4, EfConstruction: 20}, 1},
		{IPNSW{}, 1},
		// 0.7667: no label has neighbours of small norms.
		{IPNSW{M: 4, EfConstruction: 20}, 0.76},
	} {
		t.Run(title(c.method), func(t *testing.T) {
			x := build(t, c.method, in).(*graphIndex)
			s := graphSetting{x, in.Layer.Labels()}.Searcher().(*graphSearcher)
			for i, h := range contexts {
				got := answerOf(s, h)
				s.by.set(h)
				ids := reached(x.graph, s.walk.descend(x.graph, 0))
				if i == 0 {
					share := float64(len(ids)) / float64(in.Layer.Labels())
					t.Logf("reached %.4f", share)
					if share < c.least {
						t.Errorf("reached %.4f of the labels, want at least %v", share, c.least)
					}
				}
				if want := exactOf(in.Layer, h, ids); !slices.Equal(got, want) {
					t.Fatalf("context %d: got %v, want %v", i, got, want)
				}
			}
		})
	}
}

func TestAGraphHasTheLinksItPromises(t *testing.T) {
	in, _ := small(t)
	const m = 6
	for _, method := range []Method{FGD{M: m}, IPNSW{M: m}} {
		g := build(t, method, in).(*graphIndex).graph
		n := uint32(len(g.start))
		// The nodes of each layer are those with a record in it.
		layers := make([]int, n)
		for id := range n {
			end := len(g.upper)
			if id+1 < n {
				end = int(g.start[id+1])
			}
			layers[id] = (end - int(g.start[id])) / (1 + m)
		}
		if got := slices.Max(layers); g.highest != got || layers[g.entry] != got {
			t.Errorf("%s: entry %d in layer %d, highest %d, want a node of layer %d", method.Name(), g.entry, layers[g.entry], g.highest, got)
		}
		if g.highest == 0 {
			t.Errorf("%s: no upper layer", method.Name())
		}
		for id := range n {
			for layer := 0; layer <= layers[id]; layer++ {
				links, room := g.links(id, layer), m
				if layer == 0 {
					room = 2 * m
				}
				sorted := slices.Sorted(slices.Values(links))
				if len(links) > room || len(slices.Compact(sorted)) != len(links) || slices.Contains(links, id) {
					t.Fatalf("%s: node %d in layer %d: links %v, want at most %d distinct others", method.Name(), id, layer, links, room)
				}
				for _, other := range links {
					if other >= n || layers[other] < layer {
						t.Fatalf("%s: node %d in layer %d: link to %d, which is not there", method.Name(), id, layer, other)
					}
				}
			}
		}
	}
}

// Nodes with room for links to all others are linked to all earlier nodes.
func TestGraphsOfFewLabels(t *testing.T) {
	for _, labels := range []int{1, 2, 3, 5, 9} {
		data, err := structureless(labels, 5, 30, 7)
		if err != nil {
			t.Fatal(err)
		}
		in, contexts := input(t, data, 10)
		for _, m := range []Method{FGD{}, IPNSW{}, FGD{M: 2, EfConstruction: 1}, IPNSW{M: 2, EfConstruction: 1}} {
			s := lastOf(build(t, m, in)).Searcher() // there is one for one label too
			for _, h := range contexts {
				got, want := answerOf(s, h), exactOf(in.Layer, h, nil)
				_, full := m.(IPNSW) // fills links up
				if full && m.Params() == (IPNSW{}).Params() && labels <= specK && !slices.Equal(got, want) {
					t.Errorf("%d labels: %s: got %v, want %v", labels, title(m), got, want)
				}
				if len(got) == 0 || len(got) > len(want) || got[0].Logit > want[0].Logit {
					t.Errorf("%d labels: %s: got %v, best is %v", labels, title(m), got, want)
				}
			}
		}
	}
}

// Graphs normalise over the labels that they find: the answer is the answer of TopK, and the sum is
// over the list of candidates, with ef = L over all labels that a path leads to.
func TestGraphsNormaliseInsideWhatTheyFind(t *testing.T) {
	in, contexts := small(t)
	l := in.Layer
	full, got := newExactSearch(l), make([]exact.Prediction, specK)
	for _, m := range []Method{FGD{}, IPNSW{}} {
		settings := build(t, m, in).Settings()
		for i, s := range settings {
			sr := s.Searcher().(Normaliser)
			for _, h := range contexts[:50] {
				_, exact := full.topKLogSum(got, h, exact.Labels{})
				want := answerOf(sr, h)
				n, lse := sr.TopKLogSumExp(got, h)
				if !slices.Equal(got[:n], want) {
					t.Fatalf("%s %s: found %v, want %v", title(m), s.Params(), got[:n], want)
				}
				if lse < got[0].Logit || lse > exact+2e-2 {
					t.Fatalf("%s %s: sum %v, want it between the sum of the best label, %v, and of all, %v", title(m), s.Params(), lse, got[0].Logit, exact)
				}
				if _, most := m.(FGD); most && i == len(settings)-1 && lse < exact-2e-2 {
					t.Fatalf("%s: sum %v over a list of most labels, want about %v", title(m), lse, exact)
				}
			}
		}
	}
}

// The order of nodes is by score, the largest first, and of equals by id.
func TestNodesAreOrderedByScoreThenID(t *testing.T) {
	inf := float32(math.Inf(1))
	last := uint64(math.MaxUint64)
	for _, score := range []float32{inf, math.MaxFloat32, 2, 1, 1e-40, 0, -1e-40, -1, -2, -math.MaxFloat32, -inf} {
		for _, id := range []uint32{0, 1, 77, maxNodes - 1} {
			node := packNode(id, score)
			if node >= last {
				t.Errorf("id %d, score %v is not after the previous one", id, score)
			}
			if nodeID(node) != id || nodeScore(node) != score || node&pending == 0 {
				t.Errorf("id %d, score %v: unpacked %d, %v", id, score, nodeID(node), nodeScore(node))
			}
			if done := node &^ pending; nodeID(done) != id || nodeScore(done) != score {
				t.Errorf("id %d, score %v: unpacked %d, %v without the pending bit", id, score, nodeID(done), nodeScore(done))
			}
			last = node &^ pending
		}
	}
}

// All rows of the reduction have one norm, and their products with [h, 1, 0]
// are the logits.
func TestAugmentedRowsHaveOneNormAndTheLogits(t *testing.T) {
	in, contexts := small(t)
	l := in.Layer
	for _, oneNorm := range []bool{true, false} {
		rows, dim, order := augment(in, oneNorm)
		h := make([]float32, dim)
		copy(h, contexts[0])
		h[l.Dim()] = 1
		last := math.Inf(1)
		largest := 0.0
		for _, s := range order {
			row := rows[int(s)*dim : (int(s)+1)*dim]
			w := dense.Weights(l)[int(s)*l.Dim() : (int(s)+1)*l.Dim()]
			square := kernels.RefDot(w, w) + float64(l.Bias()[s])*float64(l.Bias()[s])
			if square > last*(1+1e-12) {
				t.Errorf("label %d: norm %v comes after %v", s, square, last)
			}
			last, largest = square, max(largest, square)
			want := square
			if oneNorm {
				want = largest
			}
			if got := kernels.RefDot(row, row); math.Abs(got-want) > 1e-5*want {
				t.Errorf("label %d: squared norm %v, want %v", s, got, want)
			}
			logit := logitOf(l, s, contexts[0])
			if got := kernels.RefDot(row, h); math.Abs(got-logit) > 1e-5 {
				t.Errorf("label %d: product %v, want the logit %v", s, got, logit)
			}
		}
	}
}

// structureless returns a layer and n contexts of independent normal numbers.
func structureless(labels, dim, n int, seed uint64) (*synthetic.Data, error) {
	r := rand.New(rand.NewPCG(seed, 0))
	normal := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	l, err := exact.NewLayer(kernels.Float32Rows(normal(labels*dim), dim), normal(labels))
	return &synthetic.Data{Layer: (*l2s.Layer)(engine.Over(l)), Exact: l, Contexts: normal(n * dim)}, err
}
