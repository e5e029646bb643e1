package exact

import "github.com/learning-to-screen/l2s/internal/codes/kernels"

// Step is a part of a search for the best labels of one context. Run does the search from its
// beginning to the end of the step, by the functions that the search calls. So the time of a step is
// the time of its Run less that of the step before, and a measurement adds nothing to a search. The
// last Run is the search itself. A step belongs to the goroutine of its searcher.
type Step struct {
	Name string
	Run  func(h []float32) error
}

// Steps returns the steps of a search among all labels for the k best, each on a searcher of its
// own. A layer without 4-bit codes has no first pass. The scan is empty for a context whose first
// pass leaves few rows, and so is all but the last step for one without intervals.
func (l *Layer) Steps(k int) []Step {
	upTo := func(name string, end func(s *Searcher, q *Query)) Step {
		s, req := NewSearcher(l), new(Request)
		return Step{name, func(h []float32) error {
			q, err := s.set(0, h)
			if err != nil {
				return err
			}
			p, err := s.begin(req, k, q)
			if err != nil {
				return err
			}
			if len(s.groups) > 0 && p.k > 0 {
				end(s, q)
			}
			s.end()
			return nil
		}}
	}
	steps := []Step{upTo("quantise", func(*Searcher, *Query) {})}
	if l.coarse != nil {
		steps = append(steps, upTo("first pass", func(s *Searcher, q *Query) { s.firstPass(q, &s.scope) }))
	}
	whole, dst := NewSearcher(l), make([]Prediction, k)
	return append(steps,
		upTo("scan", func(s *Searcher, q *Query) {
			if l.coarse == nil || !s.firstPass(q, &s.scope) {
				s.scan(s.groups, pass{})
			}
		}),
		Step{"rank", func(h []float32) error { _, err := whole.TopK(dst, h); return err }})
}

// Scan leaves the intervals of the labels of a list in the query, as a short search does: its first
// step. It does nothing if no short search handles the list or the query.
func (s *Searcher) Scan(q *Query, among *Labels) {
	n := len(among.ids)
	if n < 1 || n > len(q.rows) || q.fit != kernels.Certified || q.dim != s.layer.Dim() {
		return
	}
	if p := among.packed; p != nil {
		panels := kernels.PanelsOf(n)
		room := panels * kernels.PanelRows
		p.hot.codes.Bounds(q.lower[:room], q.upper[:room], among.list.panel, panels, &q.vec)
		return
	}
	s.gather(q, 0, among.ids)
}

// Select finds the labels of a list that may be among the k best, as a short search does: its first
// two steps. It returns their number, 0 if no short search handles the list or the query.
func (s *Searcher) Select(q *Query, among *Labels, k int) int {
	return len(s.survivors(q, among, nil, k))
}
