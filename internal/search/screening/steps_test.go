package screening_test

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/tests/screentest"
)

// The steps of a search run for every context of every screen, in their order or not. The last is the
// search, and alone counts a query. They change no answer.
func TestTheStepsOfASearchChangeNothing(t *testing.T) {
	want := []string{"quantise", "route", "scan", "select", "exact logits", "exact answers"}
	rapid.Check(t, func(t *rapid.T) {
		in := screentest.DrawHardShape(draws(t)).Instance(t)
		k, budget := rapid.IntRange(1, in.Config.Labels).Draw(t, "k"), screentest.DrawBudget(draws(t), in)
		set := screentest.DrawSettings(draws(t), in)
		s, other := in.Searcher(t, set.Options()), in.Searcher(t, set.Options())
		steps, err := s.Steps(k, budget)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, step := range steps {
			names = append(names, step.Name)
		}
		if !slices.Equal(names, want) {
			t.Fatalf("found the steps %q, expected %q", names, want)
		}
		order := rapid.Permutation([]int{0, 1, 2, 3, 4, 5}).Draw(t, "order")
		for i := range in.N {
			h := in.Context(i)
			for _, at := range order {
				before := s.Stats().Queries
				if err := steps[at].Run(h); err != nil {
					t.Fatalf("%s: %v", names[at], err)
				}
				if counted := s.Stats().Queries - before; counted != uint64(at/5) {
					t.Fatalf("%s: found %d queries counted", names[at], counted)
				}
				if err := steps[at].Run(h[1:]); !errors.Is(err, exact.ErrContext) {
					t.Fatalf("%s: found error %v, expected one of the context", names[at], err)
				}
			}
			got, _ := screentest.Search(t, s, k, h, exact.Request{Budget: budget})
			if want, _ := screentest.Search(t, other, k, h, exact.Request{Budget: budget}); !slices.Equal(got, want) {
				t.Fatalf("found %v after the steps, expected %v", got, want)
			}
		}
	})
}
