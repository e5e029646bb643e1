package ranking_test

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/ground/ranking"
)

// A sorter puts any predictions in the order of answers, with equal, infinite and far apart logits
// among them.
func TestASorterSorts(t *testing.T) {
	var s ranking.Sorter
	rapid.Check(t, func(t *rapid.T) {
		logit := rapid.OneOf(rapid.Float64Range(-20, 20), rapid.Float64Range(-1e300, 1e300),
			rapid.SampledFrom([]float64{0, 1, math.Inf(-1), math.MaxFloat64, -math.MaxFloat64}))
		logits := rapid.SliceOfN(logit, 0, 300).Draw(t, "logits")
		var x []ranking.Prediction
		for i, l := range logits {
			x = append(x, ranking.Prediction{ID: uint32(len(logits) - i), Logit: l})
		}
		want := slices.Clone(x)
		slices.SortFunc(want, func(a, b ranking.Prediction) int {
			switch {
			case a.Logit > b.Logit, a.Logit == b.Logit && a.ID < b.ID:
				return -1
			}
			return 1
		})
		if got := s.Sort(x); !slices.Equal(got, want) {
			t.Fatalf("found %v, expected %v", got, want)
		}
	})
}
