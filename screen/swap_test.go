package screen

import (
	"testing"

	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
)

// A pool has as many searchers after a swap as before, whichever shelf they were brought back to.
func TestSwapsMakeNoMoreSearchers(t *testing.T) {
	layer, err := softmax.NewLayer(kernels.Float32Rows(make([]float32, 100*8), 8), make([]float32, 100))
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewModel(Config{Dim: 8, Labels: 100, Clusters: make([]float32, 8), Lists: []List{{IDs: []uint32{1, 2, 3}}}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPool(m, layer)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		b := &p.shelves[(7*i+3)%shelves] // a query that begins here takes a searcher of another shelf
		l := loan{shelf: b, sound: true}
		l.Searcher, l.of = b.take()
		for at := 0; l.Searcher == nil && at < shelves; at++ {
			l.Searcher = p.shelves[at].pop(l.of)
		}
		l.giveBack()
		if _, err := p.Swap(m, layer); err != nil {
			t.Fatal(err)
		}
		n := 0
		for at := range p.shelves {
			n += p.shelves[at].count()
		}
		if n != 1 {
			t.Fatalf("swap %d: found %d searchers, expected 1", i, n)
		}
	}
}
