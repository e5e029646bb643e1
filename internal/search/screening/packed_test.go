package screening

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// lists are lists without shares.
func lists(ids ...[]uint32) (l []List) {
	for _, x := range ids {
		l = append(l, List{IDs: x})
	}
	return l
}

// packable is a layer of 4 labels and a model with 5 of them in 2 lists.
func packable(t *testing.T) (*Model, *exact.Layer) {
	l, err := exact.NewLayer(kernels.Float32Rows([]float32{1, 0, 0, 1, 1, 1, -1, 0}, 2), nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewModel(Config{Dim: 2, Labels: 4, Clusters: []float32{1, 0, 0, 1}, Lists: lists([]uint32{0, 2, 3}, []uint32{1, 2})})
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
		copies int64
		packed bool
	}{
		{"no option", 0, true},
		{"the memory of all lists", all, true},
		{"a byte less", all - 1, false},
		{"none", -1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := NewSearcher(m, l, Options{Copies: c.copies})
			if err != nil {
				t.Fatal(err)
			}
			if found := s.packed != nil; found != c.packed {
				t.Errorf("found copies: %v, expected %v", found, c.packed)
			}
		})
	}
}

// Copies are of the candidates within the budget of the searcher; a larger budget of a request
// finds the others where they are.
func TestPackCopiesWhatTheBudgetTakes(t *testing.T) {
	_, l := packable(t)
	m, err := NewModel(Config{
		Dim: 2, Labels: 4, Clusters: []float32{1, 0, 0, 1},
		Lists:  []List{{IDs: []uint32{3, 0, 2}, Shares: []uint16{9, 5, 5}}, {}},
		Ladder: []Rung{{Budget: 1, Share: 9}, {Budget: 3, Share: 0}}, Budget: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSearcher(m, l, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if n := s.packed.Size(0); n != 1 {
		t.Errorf("found copies of %d candidates, expected the one of budget 1", n)
	}
	for budget, want := range map[float64]exact.Prediction{0: {ID: 3, Logit: -2}, 3: {ID: 2, Logit: 3}} {
		var got [1]exact.Prediction
		if _, err := s.Search(got[:], []float32{2, 1}, exact.Request{Budget: budget}); err != nil || got[0] != want {
			t.Errorf("budget %v: found %v, %v, expected %v", budget, got[0], err, want)
		}
	}
}

// Copies of a small layer's codes that the caches do not hold are not made by default; copies of a
// large layer's codes are.
func TestCopiesByDefaultDependOnTheLayer(t *testing.T) {
	const clusters, size = 300, 128
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
			l, err := exact.NewLayer(kernels.Float32Rows(make([]float32, c.labels*c.dim), c.dim), nil)
			if err != nil {
				t.Fatal(err)
			}
			ids := make([]uint32, size)
			for i := range ids {
				ids[i] = uint32(i)
			}
			m, err := NewModel(Config{Dim: c.dim, Labels: c.labels, Clusters: make([]float32, clusters*c.dim), Lists: slices.Repeat(lists(ids), clusters)})
			if err != nil {
				t.Fatal(err)
			}
			s, err := NewSearcher(m, l, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if found := s.packed != nil; found != c.packed {
				t.Errorf("found copies: %v, expected %v", found, c.packed)
			}
		})
	}
}

func TestSearchersShareTheCopies(t *testing.T) {
	m, l := packable(t)
	searcher := func(m *Model, l *exact.Layer) *Searcher {
		s, err := NewSearcher(m, l, Options{Copies: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	_, equal := packable(t)
	first := searcher(m, l)
	for name, c := range map[string]struct {
		s     *Searcher
		share bool
	}{
		"the same model and layer":           {searcher(m, l), true},
		"another layer of the same elements": {searcher(m, equal), false},
	} {
		if shares := c.s.packed == first.packed; shares != c.share {
			t.Errorf("%s: found copies shared: %v, expected %v", name, shares, c.share)
		}
	}
}

// A model that outlives its searchers keeps no copies for them.
func TestCopiesGoWithTheLastSearcher(t *testing.T) {
	m, l := packable(t)
	gone := make(chan bool, 1)
	s, err := NewSearcher(m, l, Options{Copies: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	runtime.AddCleanup(s.packed, func(c chan bool) { c <- true }, gone)
	s = nil
	for range 100 { // cleanups run some time after the collection
		runtime.GC()
		select {
		case <-gone:
			if s, err = NewSearcher(m, l, Options{Copies: 1 << 20}); err != nil || s.packed == nil || len(m.packs) != 1 {
				t.Errorf("found %d copies, error %v, expected 1 that is made again", len(m.packs), err)
			}
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
	t.Error("found the copies still there after 100 collections")
}
