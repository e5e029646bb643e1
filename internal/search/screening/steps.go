package screening

import "github.com/learning-to-screen/l2s/internal/search/exact"

// Steps returns the steps of a search for the k best labels within a budget, 0 for the searcher's
// own. Observers are a part of the last: it adds to the others the answers of the exact layer, for
// contexts with fewer candidates than k, and the counts.
func (s *Searcher) Steps(k int, budget float64) ([]exact.Step, error) {
	rung, err := s.rungOf(budget)
	if err != nil {
		return nil, err
	}
	dst, req := make([]exact.Prediction, k), new(exact.Request)
	upTo := func(name string, end func() error) exact.Step {
		return exact.Step{Name: name, Run: func(h []float32) error {
			s.lines.Prefetch()
			x, err := s.locate(h, rung)
			if err != nil || x.Exact || x.N < k {
				return err
			}
			req.Among = s.labels(x.Cell, x.N)
			return end()
		}}
	}
	return []exact.Step{
		{Name: "quantise", Run: func(h []float32) error { s.lines.Prefetch(); return s.query[0].Set(h) }},
		upTo("route", func() error { return nil }),
		upTo("scan", func() error { s.layer.Scan(s.query[0], &req.Among); return nil }),
		upTo("select", func() error { s.layer.Select(s.query[0], &req.Among, k); return nil }),
		upTo("exact logits", func() error { _, err := s.find(dst, req); return err }),
		{Name: "exact answers", Run: func(h []float32) error {
			_, err := s.Search(dst, h, exact.Request{Budget: budget})
			return err
		}},
	}, nil
}
