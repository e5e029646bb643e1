package corpus

import (
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"pgregory.net/rapid"
)

func TestPartitionKeepsOrder(t *testing.T) {
	p := NewPartition([]uint32{2, 4, 0, 2, 4, 0, 2}, 5)
	want := [][]uint32{{2, 5}, {}, {0, 3, 6}, {}, {1, 4}}
	for c, w := range want {
		if !slices.Equal(p.Members(c), w) || p.Size(c) != len(w) {
			t.Errorf("cluster %d: found %v, want %v", c, p.Members(c), w)
		}
	}
}

func TestSplitSplits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 20000).Draw(t, "n")
		size := rapid.IntRange(0, n/2).Draw(t, "held out")
		if rapid.Bool().Draw(t, "by number") {
			size = HeldOut(n)
		}
		pool, held := Split(n, size)
		if len(held) != size || len(pool) != n-size {
			t.Fatalf("found %d held out of %d, expected %d", len(held), n, size)
		}
		all := slices.Concat(pool, held)
		if !slices.IsSorted(pool) || !slices.IsSorted(held) {
			t.Fatal("not ascending")
		}
		slices.Sort(all)
		for i, id := range all {
			if int(id) != i {
				t.Fatal("not a split of the contexts")
			}
		}
		runs := 0
		for i, id := range held {
			if i == 0 || id != held[i-1]+1 {
				runs++
			}
		}
		if size > 0 && runs > RunsOf(size) {
			t.Fatalf("found %d runs of neighbours, expected at most %d", runs, RunsOf(size))
		}
	})
}

func TestHeldOutByTheNumberOfContexts(t *testing.T) {
	for n, want := range map[int]int{1: 0, 49: 0, 100: 2, 3999: 79, 4000: 200, 20000: 400, 40000: 4000, 1000000: 4000} {
		if got := HeldOut(n); got != want {
			t.Errorf("%d contexts: found %d, expected %d", n, got, want)
		}
	}
}

// A part of a part has the rows of both.
func TestPartsOfParts(t *testing.T) {
	layer, err := exact.NewLayer(kernels.Float32Rows([]float32{1}, 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, rows := range map[string]kernels.Rows{
		"float32":  kernels.Float32Rows([]float32{0, 1, 2, 3, 4, 5}, 1),
		"bfloat16": kernels.BFloat16Rows([]uint16{0, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0}, 1),
	} {
		c, err := Of(layer, rows, 1)
		if err != nil {
			t.Fatal(err)
		}
		c.Best, c.K = []uint32{0, 10, 20, 30, 40, 50}, 1
		p := c.Part([]uint32{1, 3, 4, 5}).Part([]uint32{0, 2})
		if h := p.Row(1, p.Buffer()); p.N != 2 || h[0] != 4 || p.LabelsOf(0)[0] != 10 {
			t.Errorf("%s: found %d contexts, %v and %v, expected contexts 1 and 4", name, p.N, h, p.LabelsOf(0))
		}
		s := c.Spaced(3)
		if h := s.Row(1, s.Buffer()); s.N != 3 || h[0] != 2 || c.Spaced(6) != c {
			t.Errorf("%s: found %d contexts, %v second", name, s.N, h)
		}
	}
}
