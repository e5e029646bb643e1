package previewing

import "github.com/learning-to-screen/l2s/internal/search/exact"

// Steps returns the steps of a search for the k best labels within a budget, 0 for the default. The
// last adds to the others the answers of the exact layer, for contexts that previews leave to it, and
// the counts.
func (s *Searcher) Steps(k int, budget float64) []exact.Step {
	rung, look, q := s.look.parts.RungOf(budget), &s.look, s.query[0]
	dst, req, among := make([]exact.Prediction, k), new(exact.Request), new(exact.Request)
	find := func(h []float32) (found bool, err error) {
		if err := q.Set(h); err != nil || k > mostPreviewed {
			return false, err
		}
		return look.Find(q.Vector(), k, req, rung), nil
	}
	return []exact.Step{
		{Name: "quantise", Run: q.Set},
		{Name: "coordinates", Run: func(h []float32) error {
			err := q.Set(h)
			if err == nil && k <= mostPreviewed {
				look.Coordinates(q.Vector())
			}
			return err
		}},
		{Name: "preview", Run: func(h []float32) error { _, err := find(h); return err }},
		{Name: "exact logits", Run: func(h []float32) error {
			found, err := find(h)
			if !found {
				return err
			}
			among.Among = exact.Only(look.IDs)
			return s.exact.Find(dst, s.one[:], s.query[:], among)
		}},
		{Name: "exact answers", Run: func(h []float32) error {
			_, err := s.Search(dst, h, exact.Request{Budget: budget})
			return err
		}},
	}
}
