package learn

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestMembershipAndLosses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clusters := rapid.SampledFrom([]int{1, 2, 63, 64, 65, 130}).Draw(t, "clusters")
		universe := rapid.IntRange(3, 20).Draw(t, "universe")
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		sets := make([][]uint32, clusters)
		for c := range sets {
			for s := range universe {
				if random.IntN(3) == 0 {
					sets[c] = append(sets[c], uint32(s))
				}
			}
		}
		labels := []uint32{0, 2, uint32(universe - 1)}
		labels = slices.Compact(labels)
		const lambda = 0.25
		table := newLossTable(sets, universe, len(labels), lambda)
		loss, hits := make([]float64, clusters), make([]uint32, clusters)
		table.losses(loss, hits, labels)
		for c, set := range sets {
			// Equation 6, label by label.
			want, in := 0.0, uint32(0)
			for s := range uint32(universe) {
				y, c := slices.Contains(labels, s), slices.Contains(set, s)
				switch {
				case y && !c:
					want++
				case !y && c:
					want += lambda
				case y && c:
					in++
				}
			}
			for s := range uint32(universe) {
				if table.has(c, s) != slices.Contains(set, s) {
					t.Fatalf("cluster %d label %d: found %v", c, s, table.has(c, s))
				}
			}
			if hits[c] != in || math.Abs(loss[c]-want) > 1e-12 {
				t.Fatalf("cluster %d: found %d hits, loss %v; want %d, %v", c, hits[c], loss[c], in, want)
			}
		}
	})
}
