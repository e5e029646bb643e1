package methods

import (
	"testing"
)

// The sets of a screen hold what contexts of training wanted: with budget for
// all of it, a context of training gets the exact answer.
func TestAScreenWithoutABudgetAnswersContextsOfTrainingExactly(t *testing.T) {
	in, _ := small(t)
	for _, m := range []Method{L2S{Clusters: 12, Budget: 600}, L2S{Clusters: 12, Budget: 600, KMeansOnly: true}} {
		t.Run(title(m), func(t *testing.T) {
			x := build(t, m, in)
			if p := precision(x.Settings()[0], in.Layer, contextsOf(in.Layer, in.Contexts)[:200]); p != 1 {
				t.Errorf("P@5 %v, want 1", p)
			}
		})
	}
}
