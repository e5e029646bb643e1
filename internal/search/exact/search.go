package exact

import (
	"math"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
)

// A search goes this way, for one context and for many, over all labels and over some: a scan by
// tiles of rows finds the intervals of the logits from codes, with the edits of the request, and
// keeps the rows that may be among the k best; the survivors of all rows get their logits by the
// reference arithmetic, edited; the best of them.

const (
	// maxCoarse is the share of rows that may survive the pass over 4-bit
	// codes; if more do, a scan of all 8-bit codes is cheaper than a gather.
	maxCoarse = 0.25
	// coarseSkips bounds the number of searches that skip the pass over 4-bit codes after a search
	// in which it gained nothing: on data without structure it never gains. The number is one at
	// first, and doubles as long as the pass gains nothing. The answers are the same.
	coarseSkips = 31
	// A search for one context reads codes of 4 bits, a search for several codes of 8 bits. Up to
	// fewContexts contexts for fewLabels labels are faster one by one if the codes of 8 bits are
	// too large for the caches.
	fewContexts = 16
	fewLabels   = 10
	cachedBytes = 16 << 20
)

// findAny is Find for requests of all kinds. The short way is apart from it: its frame is small.
func (s *Searcher) findAny(dst []Prediction, answers []Answer, qs []*Query, req *Request) error {
	if len(answers) != len(qs) {
		return Invalid(ErrRequest, "l2s: answers: found %d, expected one for each of %d contexts", len(answers), len(qs))
	}
	k, err := Each(len(dst), len(qs))
	if err != nil {
		return err
	}
	p, err := s.begin(req, k, qs...)
	if err != nil {
		return err
	}
	l := s.layer
	oneByOne := l.coarse != nil && s.skip == 0 && len(qs) <= fewContexts && p.k <= fewLabels && !p.listed && !req.LogSum && p.n*l.rowBytes() > cachedBytes
	if len(qs) > 1 && (oneByOne || len(s.groups) == 0) { // in the second case some may have intervals
		for i := range qs {
			_ = s.findAny(dst[i*k:(i+1)*k], answers[i:i+1], qs[i:i+1], req)
		}
		return nil
	}
	for i := range answers {
		answers[i] = Answer{Count: p.k, LogSum: math.Inf(-1)}
	}
	switch {
	case p.n == 0 || p.k == 0 && !req.LogSum:
	case len(s.groups) == 0:
		for i, q := range qs {
			s.rankRows(dst[:p.k], &answers[i], q, p)
		}
	case req.LogSum: // needs the intervals of all rows, of one group at a time
		for i, q := range qs {
			c := i % kernels.BatchContexts
			if c == 0 {
				s.scan(s.groups[i/kernels.BatchContexts:][:1], pass{whole: true})
			}
			s.rankKept(dst[i*k:][:p.k], &answers[i], q, p, s.all(c))
		}
	default:
		if len(qs) == 1 && l.coarse != nil && !p.listed && s.firstPass(qs[0], p) {
			s.rankKept(dst[:p.k], &answers[0], qs[0], p, &s.first)
			break
		}
		s.scan(s.groups, pass{})
		for i, q := range qs {
			s.rankKept(dst[i*k:][:p.k], &answers[i], q, p, &s.workers[0].kept[i])
		}
	}
	s.end()
	return nil
}

// firstPass keeps the rows that survive a scan of 4-bit codes, with their intervals from 8-bit
// codes. It reports whether they are few enough.
func (s *Searcher) firstPass(q *Query, p *scope) bool {
	if s.skip > 0 {
		s.skip--
		return false
	}
	s.scan(s.groups, pass{coarse: true, whole: true})
	// Labels with large lower ends have higher ones by 8-bit codes, which others must reach.
	threshold := p.raised(s.threshold(p.k, s.lower), s.lower)
	x := &s.first
	x.gather(s.layer, s.ids[:kernels.SelectAtLeast(s.ids, s.lower, threshold)], q, p.req)
	if len(x.lower) >= p.k { // of labels within a distance there may be fewer
		threshold = max(threshold, p.final.loose(kernels.KthLargest(x.lower, p.k)))
	}
	left := s.ids[:kernels.SelectAtLeast(s.ids, s.upper, threshold)]
	if float64(len(left)) > maxCoarse*float64(p.n) {
		s.skipBackoff = min(2*s.skipBackoff+1, coarseSkips)
		s.skip = s.skipBackoff
		return false
	}
	s.skipBackoff = 0
	x.gather(s.layer, left, q, p.req)
	return true
}

// gather keeps some labels, with their edited intervals from 8-bit codes.
func (x *kept) gather(l *Layer, ids []uint32, q *Query, req *Request) {
	x.rows = append(x.rows[:0], ids...)
	x.lower, x.upper = mem.Grow(x.lower, len(ids)), mem.Grow(x.upper, len(ids))
	l.codes.GatherBounds(x.lower, x.upper, ids, &q.vec)
	(&scope{Labels: Only(ids), req: req, final: l.final}).edit(x.lower, x.upper, 0)
}

// all returns the intervals of all rows for a context of a scan that keeps none.
func (s *Searcher) all(context int) *kept {
	n := s.scope.n
	at := context * s.scope.room(n)
	return &kept{lower: s.lower[at:][:n], upper: s.upper[at:][:n]}
}

// rankKept fills dst with the best labels of a scope, and the sum if it is asked for, from the
// intervals of its rows, or of those that were kept: the survivors among them are ranked.
func (s *Searcher) rankKept(dst []Prediction, a *Answer, q *Query, p *scope, x *kept) {
	threshold := s.counts(p, x.lower)
	if len(dst) > 0 {
		threshold = min(threshold, p.raised(s.threshold(min(len(dst), len(x.lower)), x.lower), x.lower))
	}
	var left []uint32 // rows that may be among the best, or count in a cold sum
	if !math.IsInf(float64(threshold), 1) {
		left = x.rowsAt(s.ids[:kernels.SelectAtLeast(s.ids, x.upper, threshold)])
	}
	// A sum over all labels must take the same decision, listed or not.
	if denseIsCheaper(len(left), p.n) && (p.req.LogSum || !p.listed) {
		s.rankRows(dst, a, q, p)
		return
	}
	some := s.part(p, left)
	s.rankRows(dst[:min(len(dst), len(left))], a, q, &some)
	if p.req.LogSum {
		a.LogSum = s.layer.logSum(p.req, left, s.logits, x.lower, x.upper)
	}
}

// part returns the scope of some rows of a scope.
func (s *Searcher) part(p *scope, rows []uint32) scope {
	some := scope{Labels: Only(rows), n: len(rows), req: p.req, part: true}
	if p.listed {
		s.chosen = mem.Grow(s.chosen, len(rows))
		for j, row := range rows {
			s.chosen[j] = p.ids[row]
		}
		some.ids = s.chosen
	}
	return some
}

// threshold returns a number that at least k lower ends reach: a bound just below the k-th
// largest, or that itself. It makes room in s.ids for all rows.
func (s *Searcher) threshold(k int, lower []float32) float32 {
	s.ids = mem.Grow(s.ids, len(lower))
	threshold, ok := kernels.KthBound(lower, k)
	if !ok || math.IsInf(float64(threshold), -1) {
		s.scores = append(s.scores[:0], lower...)
		threshold = kernels.KthLargest(s.scores, k)
	}
	return threshold
}

// rankRows fills dst with the best labels of a scope, and the sum unless it is a part of one, by the
// reference arithmetic for all of its rows. Their edited logits are in s.logits after that.
func (s *Searcher) rankRows(dst []Prediction, a *Answer, q *Query, p *scope) {
	countScored(p.n)
	s.logits = mem.Grow(s.logits, p.n)
	s.layer.logits(s.logits, q, p)
	if p.mask != nil {
		for id := range p.mask.Missing(0, p.n) {
			s.logits[id] = math.Inf(-1)
		}
	}
	p.biased(0, p.n, func(j int, add float32) { s.logits[j] += float64(add) })
	s.selectTop(dst, s.logits, p.ids)
	if a.Count = len(dst); p.req.Within > 0 {
		a.Count = countWithin(dst, p.req.Within)
	}
	if p.req.LogSum && !p.part {
		a.LogSum = p.req.logSum(s.logits)
	}
}

// logits writes the logits of the rows of a scope.
func (l *Layer) logits(dst []float64, q *Query, p *scope) {
	if p.listed {
		l.rows.RefGatherDot(dst, l.bias, p.ids, q.Vector())
	} else {
		l.rows.RefScan(dst, l.bias, q.Vector())
	}
	l.final.finish(dst)
}

// countWithin returns the number of labels, in order, that are at most distance below the first.
func countWithin(best []Prediction, distance float64) int {
	for i, p := range best {
		if !(p.Logit >= best[0].Logit-distance) {
			return i
		}
	}
	return len(best)
}
