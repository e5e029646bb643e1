package exact

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Labels beside a set are those of the list that are not in it, each once, in the order of the list, also if
// the list is a result of before; and the memory for them is bounded by the number of labels.
func TestLabelsBesideASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		labels := rapid.IntRange(1, 100).Draw(t, "labels")
		some := rapid.SliceOfN(rapid.Uint32Range(0, uint32(labels-1)), 0, 3*labels)
		set, list := some.Draw(t, "set"), some.Draw(t, "list")
		var want []uint32
		for _, id := range list {
			if !slices.Contains(set, id) && !slices.Contains(want, id) {
				want = append(want, id)
			}
		}
		var x Also
		if got := x.Beside(set, list, labels); !slices.Equal(got, want) {
			t.Fatalf("%v beside %v: found %v, want %v", list, set, got, want)
		}
		if got := x.Beside(set, x.Beside(nil, list, labels), labels); !slices.Equal(got, want) {
			t.Fatalf("the distinct ones of %v beside %v: found %v, want %v", list, set, got, want)
		}
		x.Beside(nil, make([]uint32, 100*labels), labels)
		if n := cap(x.rest); n > 8*labels+64 {
			t.Fatalf("found room for %d of %d labels", n, labels)
		}
	})
}
