package train

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func isSubset(a, b []uint32) bool {
	return !slices.ContainsFunc(a, func(s uint32) bool { _, found := slices.BinarySearch(b, s); return !found })
}

func TestRunBudgets(t *testing.T) {
	s := newSynthetic(t, 3, 900, 6, 60, 5, 0.3)
	budgets := []float64{10, 6, 8, 7.5}
	for _, learning := range []bool{true, false} {
		o := testOptions()
		o.Budget, o.KMeansOnly = 8, !learning
		models, records, err := RunBudgets(t.Context(), s.layer, s.contexts, o, budgets)
		if err != nil {
			t.Fatal(err)
		}
		if len(models) != 4 || len(records) != 4 {
			t.Fatalf("found %d screens and %d records, expected 4", len(models), len(records))
		}
		for i, budget := range budgets {
			r := records[i]
			if r.Options.Budget != budget || r.MeanCandidates > budget {
				t.Errorf("found a record for budget %v with L-bar %v, expected budget %v", r.Options.Budget, r.MeanCandidates, budget)
			}
			_, candidates := precision(t, models[i], s, o.K)
			if candidates > budget || candidates < 0.6*budget {
				t.Errorf("budget %v: found L-bar %v", budget, candidates)
			}
			want := o.Budget
			if !learning || budget == o.Budget {
				want = 0
			}
			if r.LearnedFor != want {
				t.Errorf("learning %v, budget %v: found it learned for %v, expected %v", learning, budget, r.LearnedFor, want)
			}
			if !slices.Equal(models[i].ClusterWeights(), models[0].ClusterWeights()) {
				t.Errorf("budget %v: found other clusters, expected the same for all budgets", budget)
			}
			// What does not depend on the budget is as in a run of its own.
			if learning && budget != o.Budget {
				continue
			}
			alone := o
			alone.Budget = budget
			m, _, err := Run(t.Context(), s.layer, s.contexts, alone)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(encode(t, m), encode(t, models[i])) {
				t.Errorf("learning %v, budget %v: found other bytes than a run of its own writes, expected the same", learning, budget)
			}
		}
		// The sets are nested: 6, 7.5, 8, 10.
		for c := range o.Clusters {
			for _, pair := range [][2]int{{1, 3}, {3, 2}, {2, 0}} {
				if !isSubset(models[pair[0]].Candidates(c), models[pair[1]].Candidates(c)) {
					t.Errorf("cluster %d: found a set for budget %v with labels that the set for %v lacks", c, budgets[pair[0]], budgets[pair[1]])
				}
			}
		}
	}
}

func TestRunBudgetsRefuses(t *testing.T) {
	s := newSynthetic(t, 3, 300, 6, 60, 5, 0.3)
	_, _, err := RunBudgets(t.Context(), s.layer, s.contexts, testOptions(), []float64{20, 4})
	if err == nil || !strings.Contains(err.Error(), "budget: found 4, expected at least k = 5") {
		t.Errorf("found error %v, expected one about the budget of 4", err)
	}
}

// A checkpoint serves any budgets, as long as V is learned for the same one.
func TestCheckpointServesOtherBudgets(t *testing.T) {
	s := newSynthetic(t, 3, 900, 6, 60, 5, 0.3)
	o := checkpointed(t)
	interrupt(t, s, o, func(p Progress) bool { return strings.HasPrefix(p.Message, "alternation 2") })
	models, _, err := RunBudgets(t.Context(), s.layer, s.contexts, o, []float64{6, 12})
	if err != nil {
		t.Fatal(err)
	}
	plain := o
	plain.Checkpoint = ""
	want, _, err := Run(t.Context(), s.layer, s.contexts, plain)
	if err != nil || !bytes.Equal(encode(t, models[1]), encode(t, want)) {
		t.Errorf("found another screen (%v), expected the screen of a run that was not interrupted", err)
	}
}
