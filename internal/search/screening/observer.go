package screening

import "github.com/learning-to-screen/l2s/internal/search/exact"

// Observer takes part in the queries of a searcher from outside: an audit, the estimate of a sum
// over all labels, a learner. The goroutine of the query calls it; of several searchers several
// goroutines. Exact requests, which have no cell, are not observed.
type Observer interface {
	// Before is called with the context of a query, before its cell is found.
	Before(q *exact.Query) Wish
	// After is called when the query is answered, if the Wish of an observer has Sees. Its error is
	// the query's.
	After(v *View) error
}

// Wish is the answer of an Observer before a query, of these bits.
type Wish uint8

const (
	Sees    Wish = 1 << iota // After is to be called
	Places                   // with the cosine of the context, which takes time
	Refuses                  // the exact layer is to answer: the screen is not for such contexts
)

// View is a query as others than the searcher see it: they read nothing else of a searcher. It is
// valid until the searcher's next query.
type View struct {
	Location
	K       int           // the room for labels
	Request exact.Request // zero for a query of [Searcher.Look]
	Answer  exact.Answer  // an observer may change it

	Model   *Model          // that answered
	Query   *exact.Query    // the context, set, for searches of the layer
	Layer   *exact.Searcher // of the exact layer
	Scratch Scratch         // memory for the view, whose content is of no use to others

	searcher *Searcher
}

// Find asks the layer about the query's context.
func (v *View) Find(dst []exact.Prediction, req *exact.Request) (exact.Answer, error) {
	return v.searcher.find(dst, req)
}

// Cosine returns the cosine of the context and the vector of its cluster.
func (v *View) Cosine() float64 {
	return v.Model.router.CosineOf(v.Found.Cluster, v.Query.Vector())
}

// Logits writes the logits of labels, by the reference arithmetic, to dst. It panics if an id is not
// below L.
func (v *View) Logits(dst []float64, ids []uint32) error {
	return v.Layer.Logits(dst, v.Query, exact.Only(ids))
}

// First is the set of the first n labels of the list of the cell.
func (v *View) First(n int) exact.Labels { return v.searcher.labels(v.Cell, n) }

// Scratch is memory that grows to the need of the largest query.
type Scratch struct {
	IDs, Edited   []uint32
	Top           []exact.Prediction
	Logits, Terms []float64
}

// show shows an answered query to the observers, if one of them wishes to see it.
func (s *Searcher) show(x *Location, k int, req *exact.Request, a exact.Answer) (exact.Answer, error) {
	if x.Wish&Sees == 0 {
		return a, nil
	}
	s.view.Location, s.view.K, s.view.Request, s.view.Answer = *x, k, *req, a
	for _, o := range s.observers {
		if err := o.After(&s.view); err != nil {
			return exact.Answer{}, err
		}
	}
	s.view.Request = exact.Request{} // whose sets are the caller's
	return s.view.Answer, nil
}

// Look locates a context, with the candidates within a budget, 0 for the searcher's own, and shows a
// query that has no other answer to the observers.
func (s *Searcher) Look(h []float32, budget float64) (*View, error) {
	rung, err := s.rungOf(budget)
	if err != nil {
		return nil, err
	}
	x, err := s.locate(h, rung)
	if err != nil {
		return nil, err
	}
	if _, err = s.show(&x, 0, &exact.Request{}, exact.Answer{}); err != nil {
		return nil, err
	}
	s.view.Location, s.view.K, s.view.Request, s.view.Answer = x, 0, exact.Request{}, exact.Answer{}
	return &s.view, nil
}
