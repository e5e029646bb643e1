package train

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestHoldOutSplits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 2000).Draw(t, "n")
		share := rapid.Float64Range(0, 0.999).Draw(t, "share")
		pool, held := holdOut(n, share)
		if len(held) != int(share*float64(n)) || len(pool) == 0 {
			t.Fatalf("found %d held out of %d", len(held), n)
		}
		all := slices.Concat(pool, held)
		if !slices.IsSorted(pool) || !slices.IsSorted(held) {
			t.Fatal("not ascending")
		}
		slices.Sort(all)
		if !slices.Equal(all, ascending(n)) {
			t.Fatal("not a split of the contexts")
		}
	})
}
