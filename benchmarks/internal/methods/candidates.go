package methods

import "github.com/learning-to-screen/l2s/internal/search/exact"

// candidates collects the labels that a method wants to score, each once.
type candidates struct {
	search exactSearch
	h      []float32
	ids    []uint32
	seen   []uint32 // stamp of the query that label s was last added in
	stamp  uint32
}

func newCandidates(l *exact.Layer) *candidates {
	return &candidates{search: newExactSearch(l), ids: make([]uint32, 0, l.Labels()), seen: make([]uint32, l.Labels())}
}

// begin starts the query for the context h without candidates.
func (c *candidates) begin(h []float32) {
	c.h, c.ids = h, c.ids[:0]
	if c.stamp++; c.stamp == 0 { // the stamps of 2^32 queries ago would count
		clear(c.seen)
		c.stamp = 1
	}
}

// add adds the label id unless it is a candidate already, and reports whether it did.
func (c *candidates) add(id uint32) bool {
	if c.seen[id] == c.stamp {
		return false
	}
	c.seen[id] = c.stamp
	c.ids = append(c.ids, id)
	return true
}

// topK writes the best of the candidates to dst and returns their number.
func (c *candidates) topK(dst []exact.Prediction) int {
	return c.search.topK(dst, c.h, exact.Only(c.ids))
}
