package exact

import (
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
)

// minListed is the share of labels from which a set of allowed ones is searched in a scan of all
// instead of a gather.
const minListed = 0.125

// scope has the rows that a request looks at: n rows of a layer, all or the rows in a list.
type scope struct {
	Labels
	n    int
	k    int         // the number of labels to answer with: no more than may be answered
	mask *bitset.Set // which of all labels may be answered; nil for each
	req  *Request
	part bool // the survivors of another, whose sum is over that

	final *final // of the layer, for edit and raised
}

// group has the contexts that share the load of a row, in the form that the codes of a layer need.
type group struct {
	n      int
	room   int // the number of contexts that their intervals take
	vecs   [kernels.BatchContexts]*kernels.Int8Vector
	blocks kernels.BlockContexts
}

// begin checks a request for k labels, and finds out where it looks. It makes groups of the
// queries, if intervals help: there are none if a query has none, or if most rows would survive.
// Threads read scope and groups, so the searcher has them until end.
func (s *Searcher) begin(req *Request, k int, qs ...*Query) (*scope, error) {
	l, p := s.layer, &s.scope
	if err := req.check(l.Labels(), k); err != nil {
		return nil, err
	}
	if in := req.Among.packed; in != nil && in.hot.layer != l {
		return nil, Invalid(ErrRequest, "l2s: among: found a list that is packed for another layer, expected one of this layer")
	}
	certified := l.codes != nil || l.blocks != nil
	for _, q := range qs {
		if err := q.check(l); err != nil {
			return nil, err
		}
		certified = certified && q.fit == kernels.Certified
	}
	s.req = *req
	*p = scope{req: &s.req, Labels: req.Among, n: l.Labels(), final: l.final}
	if p.listed {
		p.n = len(p.ids)
	}
	if req.Allowed != nil || req.Banned != nil {
		s.restrict(p)
	}
	if p.k = min(k, p.n); p.mask != nil {
		p.k = min(p.k, p.mask.Count())
	}
	s.groups = s.groups[:0]
	if !certified || !l.final.byIntervals(req) || req.LogSum && req.ExactSum || denseIsCheaper(p.k, p.n) && (req.Within == 0 || req.LogSum) {
		return p, nil
	}
	for first := 0; first < len(qs); first += kernels.BatchContexts {
		if len(s.groups) == cap(s.groups) {
			s.groups = append(s.groups, group{})
		}
		s.groups = s.groups[:first/kernels.BatchContexts+1]
		x := &s.groups[len(s.groups)-1]
		x.n = min(len(qs)-first, kernels.BatchContexts)
		x.room = x.n
		for c, q := range qs[first:][:x.n] {
			x.vecs[c] = &q.vec
		}
		if l.blocks != nil && p.packed == nil {
			x.blocks.Set(l.blocks, x.vecs[:x.n]...)
			if x.n > 1 {
				x.room = kernels.BatchContexts
			}
		}
	}
	return p, nil
}

func (s *Searcher) end() { s.req, s.scope = Request{}, scope{} }

// denseIsCheaper reports whether a dense reference scan takes less time than gathering the survivors of
// n rows.
func denseIsCheaper(survivors, n int) bool { return 2*survivors > n }

// restrict takes labels that may not be answered from a list, and masks them among all.
func (s *Searcher) restrict(p *scope) {
	req := p.req
	if p.listed {
		s.list = s.list[:0]
		for _, id := range p.ids {
			if Permits(req, id) {
				s.list = append(s.list, id)
			}
		}
		p.Labels, p.n = Only(s.list), len(s.list)
		return
	}
	if s.mask == nil {
		s.mask = bitset.New(p.n)
	}
	if p.mask = s.mask; req.Allowed != nil {
		p.mask.Clear()
		p.mask.Union(req.Allowed)
	} else {
		p.mask.Fill()
	}
	if req.Banned != nil {
		p.mask.Difference(req.Banned)
	}
	if left := p.mask.Count(); float64(left) < minListed*float64(p.n) {
		s.list = slices.AppendSeq(slices.Grow(s.list[:0], left), p.mask.All())
		p.Labels, p.n, p.mask = Only(s.list), left, nil
	}
}

// edit applies the request's edits to the intervals of rows from at on: labels that may not
// be answered get the logit -Inf, and biases move the ends, rounded outwards.
func (p *scope) edit(lower, upper []float32, at int) {
	if p.mask != nil {
		for id := range p.mask.Missing(at, at+len(lower)) {
			j := int(id) - at
			lower[j], upper[j] = float32(math.Inf(-1)), float32(math.Inf(-1))
		}
	}
	p.biased(at, len(lower), func(j int, add float32) {
		below, above := float64(lower[j])+float64(add), float64(upper[j])+float64(add)
		if p.final != nil {
			below, above = p.final.edit(lower[j], upper[j], float64(add))
		}
		lower[j], upper[j] = outward(below, above)
	})
}

// biased calls change for the rows with a bias among n rows from at on, counted from there.
func (p *scope) biased(at, n int, change func(j int, add float32)) {
	if len(p.req.Biases) == 0 {
		return
	}
	if !p.listed {
		for _, b := range p.req.Biases {
			if j := int(b.ID) - at; j >= 0 && j < n {
				change(j, b.Add)
			}
		}
		return
	}
	for j, id := range p.ids[at : at+n] {
		if i, ok := BiasOf(p.req, id); ok {
			change(j, p.req.Biases[i].Add)
		}
	}
}

// room returns the room for the intervals of n rows: packed ones come by whole panels.
func (p *scope) room(n int) int {
	if p.packed != nil {
		return kernels.PanelsOf(n) * kernels.PanelRows
	}
	return n
}

// raised returns a threshold of k lower ends that all labels of their final logits reach, or a higher
// one below which no logit is within the distance of the request, if it has one.
func (p *scope) raised(threshold float32, lower []float32) float32 {
	threshold = p.final.loose(threshold)
	if p.req.Within == 0 {
		return threshold
	}
	largest, ok := kernels.KthBound(lower, 1)
	if !ok {
		return threshold
	}
	return max(threshold, p.final.down(largest, p.req.Within))
}
