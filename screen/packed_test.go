package screen

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
)

// packable is a layer of 4 labels and a model with 5 of them in 2 sets.
func packable(t *testing.T) (*Model, *softmax.Layer) {
	l, err := softmax.NewLayer(kernels.Float32Rows([]float32{1, 0, 0, 1, 1, 1, -1, 0}, 2), nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewModel(Config{Dim: 2, Labels: 4, Clusters: []float32{1, 0, 0, 1}, Sets: [][]uint32{{0, 2, 3}, {1, 2}}})
	if err != nil {
		t.Fatal(err)
	}
	return m, l
}

func TestPackBoundsTheMemoryOfCopies(t *testing.T) {
	m, l := packable(t)
	all := l.PackedBytes([]int{0, 3, 5})
	for _, c := range []struct {
		name   string
		opts   []Option
		packed bool
	}{
		{"no option", nil, true},
		{"as much as all sets take", []Option{Pack(all)}, true},
		{"a byte less", []Option{Pack(all - 1)}, false},
		{"none", []Option{Pack(0)}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := NewSearcher(m, l, c.opts...)
			if err != nil {
				t.Fatal(err)
			}
			if found := s.packed != nil; found != c.packed {
				t.Errorf("found packed sets: %v, expected %v", found, c.packed)
			}
		})
	}
}

// If the sets of pairs are too many, the sets of the clusters are packed alone.
func TestPackLeavesOutThePairsFirst(t *testing.T) {
	_, l := packable(t)
	m, err := NewModel(Config{
		Dim: 2, Labels: 4, Clusters: []float32{1, 0, 0, 1}, Sets: [][]uint32{{0, 2, 3}, {1, 2}}, ProbeMargin: 100,
		Pairs: []Pair{{First: 0, Second: 1, Set: []uint32{1, 3}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		most int64
		sets int
	}{
		{"as much as all sets take", l.PackedBytes([]int{0, 3, 5, 7}), 3},
		{"a byte less", l.PackedBytes([]int{0, 3, 5, 7}) - 1, 2},
		{"as much as the sets of the clusters take", l.PackedBytes([]int{0, 3, 5}), 2},
		{"less", l.PackedBytes([]int{0, 3, 5}) - 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := NewSearcher(m, l, Pack(c.most))
			if err != nil {
				t.Fatal(err)
			}
			if s.packedSets != c.sets || (s.packed != nil) != (c.sets > 0) {
				t.Errorf("found %d packed sets, expected %d", s.packedSets, c.sets)
			}
			var got [2]softmax.Prediction
			if _, err := s.TopK(got[:], []float32{3, 2}); err != nil || got != [2]softmax.Prediction{{ID: 1, Logit: 2}, {ID: 3, Logit: -3}} {
				t.Errorf("found %v, error %v, expected the labels of the pair", got, err)
			}
		})
	}
}

// Copies of a small layer's codes that the caches do not hold are not made by default; those
// of a large one are.
func TestCopiesByDefaultDependOnTheLayer(t *testing.T) {
	const sets, size = 300, 128
	for _, c := range []struct {
		name        string
		labels, dim int
		packed      bool
	}{
		{"a small layer with large copies", 2000, 250, false}, // .5 and 10 MB
		{"a large layer", 20000, 250, true},                   // 5 and 10 MB
		{"a small layer with small copies", 2000, 50, true},   // .1 and 2.5 MB
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := softmax.NewLayer(kernels.Float32Rows(make([]float32, c.labels*c.dim), c.dim), nil)
			if err != nil {
				t.Fatal(err)
			}
			set := make([]uint32, size)
			for i := range set {
				set[i] = uint32(i)
			}
			m, err := NewModel(Config{Dim: c.dim, Labels: c.labels, Clusters: make([]float32, sets*c.dim), Sets: slices.Repeat([][]uint32{set}, sets)})
			if err != nil {
				t.Fatal(err)
			}
			s, err := NewSearcher(m, l)
			if err != nil {
				t.Fatal(err)
			}
			if found := s.packed != nil; found != c.packed {
				t.Errorf("found packed sets: %v, expected %v", found, c.packed)
			}
		})
	}
}

func TestSearchersShareTheCopies(t *testing.T) {
	m, l := packable(t)
	searcher := func(m *Model, l *softmax.Layer) *Searcher {
		s, err := NewSearcher(m, l, Pack(1<<20))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	probing, err := m.WithMargins(1, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, other := packable(t)
	first := searcher(m, l)
	for name, c := range map[string]struct {
		s     *Searcher
		share bool
	}{
		"the same model and layer":           {searcher(m, l), true},
		"the model with other margins":       {searcher(probing, l), true},
		"another layer of the same elements": {searcher(m, other), false},
	} {
		if shares := c.s.packed == first.packed; shares != c.share {
			t.Errorf("%s: found copies shared: %v, expected %v", name, shares, c.share)
		}
	}
}

// A model that outlives its searchers holds no copies for them.
func TestCopiesGoWithTheLastSearcher(t *testing.T) {
	m, l := packable(t)
	gone := make(chan bool, 1)
	s, err := NewSearcher(m, l, Pack(1<<20))
	if err != nil {
		t.Fatal(err)
	}
	runtime.AddCleanup(s.packed, func(c chan bool) { c <- true }, gone)
	s = nil
	for range 100 { // cleanups run some time after the collection
		runtime.GC()
		select {
		case <-gone:
			if s, err = NewSearcher(m, l, Pack(1<<20)); err != nil || s.packed == nil || len(m.packs.sets) != 1 {
				t.Errorf("found %d copies, error %v, expected 1 that is made again", len(m.packs.sets), err)
			}
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
	t.Error("found the copies still there after 100 collections")
}
