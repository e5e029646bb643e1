package engine

import (
	"sync"
	"testing"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/screening"
)

// A pool has the same number of searchers after a swap as before, whichever shelf they were
// returned to.
func TestSwapsMakeNoMoreSearchers(t *testing.T) {
	const labels, dim = 20000, 64 // so that a swap takes a while
	layer, err := exact.NewLayer(kernels.Float32Rows(make([]float32, labels*dim), dim), make([]float32, labels))
	if err != nil {
		t.Fatal(err)
	}
	m, err := screening.NewModel(screening.Config{Dim: dim, Labels: labels, Clusters: make([]float32, dim), Lists: []screening.List{{IDs: []uint32{1, 2, 3}}}})
	if err != nil {
		t.Fatal(err)
	}
	l, x := Over(layer), OfScreen(m)
	p, err := NewPool(l, x, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		lent, err := p.borrow()
		if err != nil {
			t.Fatal(err)
		}
		lent.home, lent.sound = &p.shelves[(7*i+3)%shelves], true // the query of another goroutine
		lent.giveBack()
		if _, err := p.Swap(l, x); err != nil {
			t.Fatal(err)
		}
		if n := p.count(); n != 1 {
			t.Fatalf("swap %d: found %d searchers, expected 1", i, n)
		}
	}

	// Four goroutines, each of which begins its queries at a different shelf.
	const busy = 4
	done := make(chan struct{})
	var workers sync.WaitGroup
	for range busy {
		workers.Go(func() {
			for ended := make(chan error); ; {
				select {
				case <-done:
					return
				default:
				}
				go func() {
					err := p.Do(func(s *Searcher) error {
						_, err := s.TopK(make([]exact.Prediction, 1), make([]float32, dim))
						return err
					})
					ended <- err
				}()
				if err := <-ended; err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 5000 {
		if _, err := p.Swap(l, x); err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	workers.Wait()
	if n := p.count(); n > busy {
		t.Errorf("found %d searchers, expected at most the %d that were in use at one time", n, busy)
	}
}
