package screening_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/tests/screentest"
)

// The candidates of a smaller budget come first among the candidates of a larger one: for the
// budget of a searcher and of a request.
func TestCandidatesOfASmallerBudgetAreAPrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := screentest.DrawShape(draws(t)).Instance(t)
		a, b := screentest.DrawBudget(draws(t), in), screentest.DrawBudget(draws(t), in)
		if a == 0 || b == 0 {
			return
		}
		for cell := range in.Model.Cells() {
			small, err := in.Model.Candidates(cell, min(a, b))
			if err != nil {
				t.Fatal(err)
			}
			large, err := in.Model.Candidates(cell, max(a, b))
			if err != nil {
				t.Fatal(err)
			}
			if len(small) > len(large) || !slices.Equal(small, large[:len(small)]) {
				t.Fatalf("cell %d: found %v with %v, and %v with %v", cell, small, min(a, b), large, max(a, b))
			}
			if want := in.Candidates(cell, screentest.Settings{Budget: min(a, b)}, 0); !slices.Equal(small, want) {
				t.Fatalf("cell %d: found %v, expected %v", cell, small, want)
			}
			if list := in.Model.List(cell).IDs; !slices.Equal(large, list[:len(large)]) {
				t.Fatalf("cell %d: found %v, expected the first of %v", cell, large, list)
			}
		}
	})
}

// The budget of a request is the largest of the ladder that is not above it. It is valid for that
// request alone.
func TestABudgetIsForOneRequest(t *testing.T) {
	in := plane(t, make([][]uint32, 2))
	c := in.Config
	c.Lists[0] = screening.List{IDs: []uint32{3, 1, 0, 2}, Shares: []uint16{9, 8, 7, 6}}
	c.Ladder = []screening.Rung{{Budget: 1, Share: 9}, {Budget: 2, Share: 8}, {Budget: 4, Share: 6}}
	var err error
	if in.Model, err = screening.NewModel(c); err != nil {
		t.Fatal(err)
	}
	h := []float32{3, 1}
	best := map[int]uint32{1: 3, 2: 1, 4: 0} // by the number of candidates
	for _, own := range []float64{1e-300, 0.5, 1, 1.5, 2, 4, 100} {
		s := in.Searcher(t, screening.Options{Budget: own})
		without := map[float64]int{1e-300: 1, 0.5: 1, 1: 1, 1.5: 1, 2: 2, 4: 4, 100: 4}[own]
		for _, ask := range []struct {
			budget float64
			n      int
		}{{0, without}, {5e-324, 1}, {0.5, 1}, {1, 1}, {0, without}, {1.99, 1}, {2, 2}, {3, 2}, {4, 4}, {0, without}, {1e300, 4}, {math.MaxFloat64, 4}, {0, without}} {
			before := s.Stats().Candidates
			got, a := screentest.Search(t, s, 1, h, exact.Request{Budget: ask.budget})
			n := int(s.Stats().Candidates - before)
			if want := best[ask.n]; n != ask.n || got[0].ID != want || a.Source != exact.FromSet {
				t.Errorf("searcher with %v, request with %v: found %v of %d candidates, %v, expected label %d of %d", own, ask.budget, got, n, a.Source, want, ask.n)
			}
		}
		if got, a := screentest.Search(t, s, 1, h, exact.Request{Budget: 1, Exact: true}); got[0].ID != 0 || a.Source != exact.FromLayer {
			t.Errorf("found %v of %v, expected the best label of the layer", got, a.Source)
		}
		for _, bad := range []float64{-1, math.NaN()} {
			if _, err := s.Search(make([]exact.Prediction, 1), h, exact.Request{Budget: bad}); !errors.Is(err, exact.ErrRequest) || !strings.Contains(err.Error(), fmt.Sprintf("budget: found %v, expected", bad)) {
				t.Errorf("a budget of %v: found error %v", bad, err)
			}
			if _, err := screening.NewSearcher(in.Model, in.Layer, screening.Options{Budget: bad}); err == nil || err.Error() != fmt.Sprintf("l2s: budget: found %v, expected a number above 0", bad) {
				t.Errorf("a searcher with a budget of %v: found error %v", bad, err)
			}
		}
	}
	if ids, err := in.Model.Candidates(0, 0.5); err != nil || len(ids) != 1 || ids[0] != 3 {
		t.Errorf("a budget below the smallest: found the candidates %v (%v), expected the candidates of the smallest", ids, err)
	}
	if _, err := in.Model.Candidates(0, 0); err == nil || err.Error() != "l2s: budget: found 0, expected a number above 0" {
		t.Errorf("candidates of a budget of 0: found error %v", err)
	}
}

func TestAModelOfAnotherBudget(t *testing.T) {
	m := smallModel(t)
	c, err := remade(m, func(c *screening.Config) { c.Budget, c.Record = 1.5, []byte(`{"b":2}`) })
	if err != nil {
		t.Fatal(err)
	}
	if c.Budget() != 1.5 || string(c.Record()) != `{"b":2}` {
		t.Errorf("found budget %v and record %s, expected those given", c.Budget(), c.Record())
	}
	if !slices.Equal(encode(t, m), smallFile()) {
		t.Error("found the model changed, expected a copy")
	}
	back, err := remade(c, func(c *screening.Config) { c.Budget, c.Record = m.Budget(), m.Record() })
	if err != nil || !slices.Equal(encode(t, back), smallFile()) {
		t.Errorf("found another file with the parts of the first model, %v", err)
	}
	if kept, err := remade(m, func(c *screening.Config) { c.Budget = 4 }); err != nil || string(kept.Record()) != `{"seed":1}` {
		t.Errorf("found record %s (%v), expected the model's own", kept.Record(), err)
	}
	for _, bad := range []float64{-1, math.NaN(), 0.5} {
		if _, err := remade(m, func(c *screening.Config) { c.Budget = bad }); err == nil || !strings.Contains(err.Error(), "budget: found") {
			t.Errorf("budget %v: found error %v", bad, err)
		}
	}
	if _, err := remade(m, func(c *screening.Config) { c.Record = []byte(`[]`) }); err == nil || !strings.Contains(err.Error(), "record: ") {
		t.Errorf("a record that is no object: found error %v", err)
	}
}
