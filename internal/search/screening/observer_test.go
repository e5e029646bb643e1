package screening_test

import (
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/logsum"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/tests/screentest"
)

// wishes is an observer with the same wish for all contexts.
type wishes struct {
	screening.Wish
	asked, seen int
}

func (w *wishes) Before(q *exact.Query) screening.Wish {
	if len(q.Vector()) > 0 {
		w.asked++
	}
	return w.Wish
}

func (w *wishes) After(*screening.View) error { w.seen++; return nil }

// Observers are asked about every context, see queries if they wish to, and change no answer unless
// they refuse the context: then the answer is the exact layer's.
func TestObservers(t *testing.T) {
	in := screentest.Tailed(t)
	plain, layer := in.Searcher(t), exact.NewSearcher(in.Layer)
	for _, wish := range []screening.Wish{0, screening.Sees, screening.Places, screening.Sees | screening.Places, screening.Refuses, screening.Sees | screening.Refuses} {
		one, two := &wishes{Wish: wish}, &wishes{}
		s := in.Searcher(t, screening.Options{Observers: []screening.Observer{one, two}})
		for i := range in.N {
			h, k := in.Context(i), 1+i%3
			want, got := make([]exact.Prediction, k), make([]exact.Prediction, k)
			a, err := plain.Search(want, h, exact.Request{LogSum: true})
			if err != nil {
				t.Fatal(err)
			}
			if wish&screening.Refuses != 0 {
				if a, err = layer.Search(want, h, exact.Request{LogSum: true}); err != nil {
					t.Fatal(err)
				}
			}
			if b, err := s.Search(got, h, exact.Request{LogSum: true}); err != nil || b != a || !slices.Equal(got, want) {
				t.Fatalf("wish %b, context %d: found %v, %v, %v, expected %v, %v", wish, i, got, b, err, want, a)
			}
			if _, err := logsum.LogProb(s, h, 1, 1); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Search(got, h, exact.Request{Exact: true}); err != nil { // which is not observed
				t.Fatal(err)
			}
		}
		seen := 0
		if wish&screening.Sees != 0 {
			seen = 2 * in.N
		}
		for _, w := range []*wishes{one, two} {
			if w.asked != 2*in.N || w.seen != seen {
				t.Errorf("wish %b: found %d questions and %d queries seen, expected %d and %d", wish, w.asked, w.seen, 2*in.N, seen)
			}
		}
		if stats := s.Stats(); wish&screening.Refuses != 0 && stats.Exact != stats.Queries {
			t.Errorf("wish %b: found %d exact answers of %d, expected all", wish, stats.Exact, stats.Queries)
		}
	}
}
