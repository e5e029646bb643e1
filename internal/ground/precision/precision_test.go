package precision

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestStepOf(t *testing.T) {
	budgets := []float64{2, 5, 5, 9}
	for budget, want := range map[float64]int{1: 0, 2: 0, 4.9: 0, 5: 2, 8: 2, 9: 3, 100: 3} {
		if found := StepOf(len(budgets), func(i int) float64 { return budgets[i] }, budget); found != want {
			t.Errorf("budget %v: found step %d, expected %d", budget, found, want)
		}
	}
}

// Found counts the labels of both lists, in any order.
func TestFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfDistinct(rapid.Uint32Range(0, 30), rapid.ID[uint32])
		found, best := ids.Draw(t, "found"), ids.Draw(t, "best")
		n := 0
		for id := range uint32(31) {
			if slices.Contains(found, id) && slices.Contains(best, id) {
				n++
			}
		}
		if got := Found(found, best); got != n || Found(best, found) != n {
			t.Fatalf("%v of %v: found %d, expected %d", best, found, got, n)
		}
	})
}

func TestTargets(t *testing.T) {
	if one, k := Targets(0); one != 0.9995 || k != 0.998 {
		t.Errorf("found %v and %v, expected the default target", one, k)
	}
	if one, k := Targets(0.9); one != 0 || k != 0.9 {
		t.Errorf("found %v and %v, expected a target of P@k alone", one, k)
	}
}

// The interval by hand: two runs of one context each, of which one misses a label of two, with a
// half-width of 2 sqrt(2 (0.5^2 + 0.5^2)) / 4 = 0.5, and no bound below from two contexts; and
// contexts without a miss.
func TestInterval(t *testing.T) {
	if got, want := Interval([]int{0, 1}, 2), (Estimate{0.75, 0, 1}); got != want {
		t.Errorf("found %v, expected %v", got, want)
	}
	if got, want := Interval(make([]int, 1000), 5), (Estimate{1, 1 - 3.0/1000, 1}); got != want {
		t.Errorf("found %v, expected %v", got, want)
	}
}
