package methods

import (
	"slices"
	"testing"
)

// The lists of a screen have the best labels of the contexts of training: with a budget for all of
// them, a context of training gets the exact answer.
func TestAScreenWithoutABudgetAnswersContextsOfTrainingExactly(t *testing.T) {
	in, _ := small(t)
	for _, f := range []Form{KMeans, Gumbel, Expected} {
		m := L2S{Form: f, Clusters: 12, Budget: 600}
		t.Run(title(m), func(t *testing.T) {
			x := build(t, m, in)
			if p := precision(lastOf(x), in.Layer, contextsOf(in.Layer, in.Contexts)[:200]); p != 1 {
				t.Errorf("P@5 %v, want 1", p)
			}
		})
	}
}

// A screen is trained once, and its settings are the budgets of its ladder. The budget that it
// was learned for is one of them, so that screens can be compared at it.
func TestTheSettingsOfAScreenAreItsBudgets(t *testing.T) {
	in, _ := small(t)
	for _, m := range []L2S{{}, {KMeans, 12, 77}, {Gumbel, 12, 77}, {Expected, 12, 77}} {
		t.Run(title(m), func(t *testing.T) {
			var budgets []float64
			for _, s := range build(t, m, in).Settings() {
				s := s.(Screened)
				if s.Build == "" || m.Form != Decided && s.Build != m.Params() {
					t.Errorf("made with %q, want %q, or the decision of training", s.Build, m.Params())
				}
				budgets = append(budgets, s.Budget)
			}
			if len(budgets) < 5 || !slices.IsSorted(budgets) || m.Budget > 0 && !slices.Contains(budgets, m.Budget) {
				t.Errorf("budgets %v, want some, ascending, with %v", budgets, m.Budget)
			}
		})
	}
}
