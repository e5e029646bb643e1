package exact

import "github.com/learning-to-screen/l2s/internal/kernels"

// prepared has the contexts that share the load of a row, in the form that the codes of a layer
// need.
type prepared struct {
	n      int
	room   int // the number of contexts that their intervals take
	vecs   [kernels.BatchContexts]*kernels.Int8Vector
	blocks kernels.BlockContexts
}

// certifies reports whether there are intervals for the query's logits.
func (l *Layer) certifies(q *Query) bool {
	return (l.codes != nil || l.blocks != nil) && q.fit == kernels.Certified
}

// prepare makes groups of the queries, all of which are certified, for a scope.
func (s *Searcher) prepare(qs []*Query, p *scope) {
	groups := (len(qs) + kernels.BatchContexts - 1) / kernels.BatchContexts
	for cap(s.groups) < groups {
		s.groups = append(s.groups[:cap(s.groups)], prepared{})
	}
	s.groups = s.groups[:groups]
	for g := range s.groups {
		x, part := &s.groups[g], qs[g*kernels.BatchContexts:]
		x.n = min(len(part), kernels.BatchContexts)
		x.room = x.n
		for c, q := range part[:x.n] {
			x.vecs[c] = &q.vec
		}
		if s.layer.blocks != nil && p.packed == nil {
			x.blocks.Set(s.layer.blocks, x.vecs[:x.n]...)
			if x.n > 1 {
				x.room = kernels.BatchContexts
			}
		}
	}
}

// prepareOne is prepare for one query.
func (s *Searcher) prepareOne(q *Query, p *scope) {
	s.query[0] = q
	s.prepare(s.query[:], p)
}

// bounds computes the intervals of size rows of a scope, from row at on, p.room(size)
// apart for each context. A packed scope is cut at panels.
func (l *Layer) bounds(lower, upper []float32, x *prepared, p *scope, at, size int) {
	switch {
	case p.packed != nil:
		p.packed.codes.Bounds(lower, upper, p.list.panel+at/kernels.PanelRows, panelsOf(size), x.vecs[:x.n]...)
	case l.blocks != nil && p.listed:
		l.blocks.GatherBounds(lower, upper, p.ids[at:at+size], &x.blocks)
	case l.blocks != nil:
		part := l.blocks.Part(at, at+size)
		part.Bounds(lower, upper, &x.blocks)
	case p.listed:
		l.codes.GatherBounds(lower, upper, p.ids[at:at+size], x.vecs[:x.n]...)
	default:
		part := l.codes.Part(at, at+size)
		part.Bounds(lower, upper, x.vecs[:x.n]...)
	}
}
