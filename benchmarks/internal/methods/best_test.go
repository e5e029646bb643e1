package methods

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// The best of the offered labels, in any order, are the first of the sorted list.
func TestTheBestAreTheFirstOfTheSortedList(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		var all []exact.Prediction
		for i := range r.IntN(40) {
			// Few values, so that many are equal.
			all = append(all, exact.Prediction{ID: uint32(i), Logit: float64(r.IntN(5))})
		}
		offered := slices.Clone(all)
		r.Shuffle(len(offered), func(i, j int) { offered[i], offered[j] = offered[j], offered[i] })
		b := best{dst: make([]exact.Prediction, r.IntN(9))}
		for _, p := range offered {
			kept := b.offer(p)
			if in := slices.Contains(b.dst[:b.n], p); kept != in {
				t.Fatalf("offer %v: reported %v, kept %v", p, kept, in)
			}
		}
		slices.SortFunc(all, compare)
		if want := all[:min(len(b.dst), len(all))]; !slices.Equal(b.dst[:b.n], want) {
			t.Fatalf("best %v, want %v", b.dst[:b.n], want)
		}
	}
}

// At least n scores are selected, and no score outside is larger than a selected one.
func TestAtLeastSelectsTheLargest(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var l Largest
	for range 500 {
		scores := make([]float32, 1+r.IntN(3000))
		// With a slope, the sample is less representative.
		slope, values := r.Float32(), 1+r.IntN(1<<r.IntN(20))
		for i := range scores {
			scores[i] = float32(r.IntN(values)) - slope*float32(i)
		}
		n := 1 + r.IntN(len(scores))
		ids := l.AtLeast(make([]uint32, len(scores)), scores, n)
		if len(ids) < n || !slices.IsSorted(ids) || len(slices.Compact(slices.Clone(ids))) != len(ids) {
			t.Fatalf("%d of %d scores: selected %v", n, len(scores), ids)
		}
		least, selected := scores[ids[0]], make([]bool, len(scores))
		for _, id := range ids {
			least, selected[id] = min(least, scores[id]), true
		}
		for i, s := range scores {
			if !selected[i] && s >= least {
				t.Fatalf("%d of %d scores: %v of row %d is not selected, %v is", n, len(scores), s, i, least)
			}
		}
	}
}
