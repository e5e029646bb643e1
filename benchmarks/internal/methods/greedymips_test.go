package methods

import (
	"testing"

	"github.com/learning-to-screen/l2s/internal/search/dense"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// The candidates of Greedy-MIPS are the labels with the largest max_j h_j w_sj.
func TestGreedyMIPSTakesTheLargestProducts(t *testing.T) {
	in, contexts := small(t)
	l, d := in.Layer, in.Layer.Dim()
	const budget = 40
	s := build(t, GreedyMIPS{Budgets: []int{budget}}, in).Settings()[0].Searcher().(*greedySearcher)
	for i, h := range contexts[:20] {
		best := make([]float32, l.Labels())
		for id := range best {
			best[id] = l.Bias()[id]
			for j, v := range h {
				best[id] = max(best[id], v*dense.Weights(l)[id*d+j])
			}
		}
		s.TopK(make([]exact.Prediction, specK), h)
		if len(s.ids) != budget {
			t.Fatalf("context %d: %d candidates, want %d", i, len(s.ids), budget)
		}
		least := best[s.ids[budget-1]]
		for id, v := range best {
			if in := s.seen[id] == s.stamp; v > least && !in || v < least && in {
				t.Errorf("context %d: label %d of %v: candidate %v, where the last has %v", i, id, v, in, least)
			}
		}
	}
}
