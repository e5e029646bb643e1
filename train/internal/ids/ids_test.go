package ids

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestUnionSizeIsThatOfTheListOfBoth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) []uint32 {
			list := rapid.SliceOfDistinct(rapid.Uint32Range(0, 30), func(id uint32) uint32 { return id }).Draw(t, name)
			slices.Sort(list)
			return list
		}
		a, b := draw("a"), draw("b")
		both := slices.Concat(a, b)
		slices.Sort(both)
		if got, want := UnionSize(a, b), len(slices.Compact(both)); got != want {
			t.Fatalf("%v and %v: found %d, want %d", a, b, got, want)
		}
	})
}
