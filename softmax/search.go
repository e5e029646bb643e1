package softmax

import (
	"math"

	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/grow"
	"github.com/learning-to-screen/l2s/kernels"
)

// A search goes this way, for one context and for many, over all labels and over
// some: intervals of the logits from int8 codes; the edits of the request, on the
// intervals; the survivors, which may be among the k largest; their logits by the
// reference arithmetic, edited; the best of them.

const (
	// maxCoarse is the share of rows that may survive the pass over 4-bit
	// codes; if more do, a scan of all 8-bit codes is cheaper than a gather.
	maxCoarse = 0.25
	// coarseSkips bounds the number of searches that go without the pass over 4-bit
	// codes after one in which it was in vain: on data without structure it
	// always is. It is one at first, and doubles as long as the pass is in vain. The answers are the same.
	coarseSkips = 31
	// minListed is the share of labels from which a set of allowed ones is
	// searched in a scan of all instead of a gather.
	minListed = 0.125
)

// place is where a request looks: n rows of a layer, all or those in a list.
type place struct {
	Labels
	n    int
	k    int         // the number of labels to answer with: no more than may be answered
	mask *bitset.Set // which of all labels may be answered; nil for each
	req  *Request
}

// room returns the room for the intervals of n rows: packed ones come by whole panels.
func (p *place) room(n int) int {
	if p.packed != nil {
		return panelsOf(n) * kernels.PanelRows
	}
	return n
}

func (p *place) label(row int) uint32 {
	if p.listed {
		return p.ids[row]
	}
	return uint32(row)
}

// resolve finds out where the request of p looks. Labels that may not be answered are
// taken from a list, and masked among all.
func (s *Searcher) resolve(p *place) {
	req := p.req // set by the caller, lest it move to the heap
	p.Labels, p.n = req.Among, s.layer.Labels()
	if p.listed {
		p.n = len(p.ids)
	}
	if req.Allowed != nil || req.Banned != nil {
		s.restrict(p)
	}
	p.k = min(req.K, p.n)
	if p.mask != nil {
		p.k = min(p.k, p.mask.Count())
	}
}

func (s *Searcher) restrict(p *place) {
	req := p.req
	if p.listed {
		s.list = s.list[:0]
		for _, id := range p.ids {
			if req.Permits(id) {
				s.list = append(s.list, id)
			}
		}
		p.Labels, p.n = Only(s.list), len(s.list)
		return
	}
	if s.mask == nil {
		s.mask = bitset.New(s.layer.Labels())
	}
	if p.mask = s.mask; req.Allowed != nil {
		p.mask.Copy(req.Allowed)
	} else {
		p.mask.Fill()
	}
	if req.Banned != nil {
		p.mask.Difference(req.Banned)
	}
	if left := p.mask.Count(); float64(left) < minListed*float64(p.n) {
		s.list = p.mask.AppendIDs(s.list[:0])
		p.Labels, p.n, p.mask = Only(s.list), left, nil
	}
}

// search is Find for a request that was checked.
func (s *Searcher) search(dst []Prediction, answers []Answer, qs []*Query, req *Request) {
	p := place{req: req}
	s.resolve(&p)
	for i := range answers {
		answers[i] = Answer{Count: p.k, LogSum: math.Inf(-1)}
	}
	if p.n == 0 || p.k == 0 && !req.LogSum {
		return
	}
	batch := len(qs) > 1 && !req.sumsExactly() && !p.wantsMost()
	for _, q := range qs {
		batch = batch && s.layer.certifies(q)
	}
	if batch {
		s.batch(dst, answers, qs, &p)
		return
	}
	for i, q := range qs {
		s.single(dst[i*req.K:][:p.k], &answers[i], q, &p)
	}
}

// most reports whether so many of n rows survive that a dense reference scan is cheaper.
func most(survivors, n int) bool { return 2*survivors > n }

// wantsMost reports whether most rows survive whatever the intervals.
func (p *place) wantsMost() bool { return most(p.k, p.n) }

// certifies reports whether there are intervals for the query's logits.
func (l *Layer) certifies(q *Query) bool { return l.codes != nil && q.fit == kernels.Certified }

func (s *Searcher) single(dst []Prediction, a *Answer, q *Query, p *place) {
	l := s.layer
	if !l.certifies(q) || p.req.sumsExactly() || p.wantsMost() {
		s.scoreAll(dst, a, q, p)
		return
	}
	if !p.listed && l.coarse != nil && !p.req.LogSum && s.firstPass(q, p) {
		// Labels that are left are permitted ones.
		s.single(dst, a, q, &place{Labels: Only(s.list), n: len(s.list), k: p.k, req: p.req})
		return
	}
	s.intervals(q, p)
	s.finish(dst, a, q, p, s.lower[:p.n], s.upper[:p.n])
}

func (s *Searcher) reserve(n int) {
	s.lower, s.upper = grow.Slice(s.lower, n), grow.Slice(s.upper, n)
}

// intervals leaves the edited intervals of the rows of a place in s.lower and s.upper.
func (s *Searcher) intervals(q *Query, p *place) {
	s.reserve(panelsOf(p.n) * kernels.PanelRows) // packed or not: the scratch grows alike
	room := p.room(p.n)
	s.lower, s.upper = s.lower[:room], s.upper[:room]
	switch l := s.layer; {
	case p.listed && !p.req.Among.listed: // p.ids is s.list, and p stays on the stack
		l.run(scan{codes: l.codes, ids: s.list, vec: q.vec, lower: s.lower, upper: s.upper})
	case !p.listed:
		l.run(scan{codes: l.codes, vec: q.vec, lower: s.lower, upper: s.upper})
	default: // an id of a list may be wrong, and is to panic here
		l.bounds(s.lower, s.upper, []*Query{q}, p, 0, p.n)
	}
	if p.edits() {
		p.edit(s.lower[:p.n], s.upper[:p.n], 0)
	}
}

// bounds computes the intervals of size rows of a place, from row at on, p.room(size)
// apart, for as many queries as share the load of a row. A packed place is cut at panels.
func (l *Layer) bounds(lower, upper []float32, qs []*Query, p *place, at, size int) {
	var vecs [kernels.BatchContexts]*kernels.Int8Vector
	for c, q := range qs {
		vecs[c] = q.vec
	}
	if p.packed != nil {
		p.packed.codes.Bounds(lower, upper, p.panel+at/kernels.PanelRows, panelsOf(size), vecs[:len(qs)]...)
		return
	}
	if p.listed {
		l.codes.GatherBounds(lower, upper, p.ids[at:at+size], vecs[:len(qs)]...)
		return
	}
	part := l.codes.Part(at, at+size)
	part.Bounds(lower, upper, vecs[:len(qs)]...)
}

// firstPass leaves the labels in s.list that survive a pass over 4-bit codes of all rows, and
// reports whether they are few enough.
func (s *Searcher) firstPass(q *Query, p *place) bool {
	if s.skip > 0 {
		s.skip--
		return false
	}
	s.reserve(p.n)
	s.layer.run(scan{coarse: s.layer.coarse, vec: q.vec, lower: s.lower, upper: s.upper})
	if p.edits() {
		p.edit(s.lower, s.upper, 0)
	}
	// Labels with large lower ends have higher ones by 8-bit codes, which others must reach.
	threshold := s.threshold(p.k, s.lower)
	near := s.ids[:kernels.SelectAtLeast(s.ids, s.lower, threshold)] // at least k
	s.scores, s.biases = grow.Slice(s.scores, len(near)), grow.Slice(s.biases, len(near))
	s.layer.codes.GatherBounds(s.scores, s.biases, near, q.vec)
	if p.edits() {
		(&place{Labels: Only(near), n: len(near), req: p.req}).edit(s.scores, s.biases, 0)
	}
	threshold = max(threshold, kernels.KthLargest(s.scores, p.k))
	ids := s.ids[:kernels.SelectAtLeast(s.ids, s.upper, threshold)]
	if float64(len(ids)) > maxCoarse*float64(p.n) {
		s.inVain = min(2*s.inVain+1, coarseSkips)
		s.skip = s.inVain
		return false
	}
	s.inVain = 0
	s.list = append(s.list[:0], ids...)
	return true
}

// edits reports whether there is something to edit in the intervals.
func (p *place) edits() bool { return p.mask != nil || len(p.req.Biases) > 0 }

// edit applies the request's edits to the intervals of rows from at on: labels that may not
// be answered get the logit -Inf, and biases move the ends, rounded outwards.
func (p *place) edit(lower, upper []float32, at int) {
	n := len(lower)
	if p.mask != nil {
		for id := range p.mask.Missing(at, at+n) {
			j := int(id) - at
			lower[j], upper[j] = float32(math.Inf(-1)), float32(math.Inf(-1))
		}
	}
	if len(p.req.Biases) == 0 {
		return
	}
	if !p.listed {
		for _, b := range p.req.Biases {
			if j := int(b.ID) - at; j >= 0 && j < n {
				lower[j], upper[j] = shift(lower[j], upper[j], b.Add)
			}
		}
		return
	}
	for j, id := range p.ids[at : at+n] {
		if add := p.req.Bias(id); add != 0 {
			lower[j], upper[j] = shift(lower[j], upper[j], float32(add))
		}
	}
}

// shift returns an interval that holds x + add, rounded to float64, for every x
// of the interval given. -Inf stays.
func shift(lower, upper, add float32) (lo, up float32) {
	below, above := float64(lower)+float64(add), float64(upper)+float64(add)
	lo, up = float32(below), float32(above)
	if float64(lo) > below {
		lo = math.Nextafter32(lo, float32(math.Inf(-1)))
	}
	if float64(up) < above {
		up = math.Nextafter32(up, float32(math.Inf(1)))
	}
	return lo, up
}

// finish fills dst with the best labels of a place, and the sum if it is asked
// for, from the edited intervals, len(dst) of which are finite: the labels that they
// cannot exclude are scored by the reference arithmetic.
func (s *Searcher) finish(dst []Prediction, a *Answer, q *Query, p *place, lower, upper []float32) {
	var left []uint32 // rows that may be among the best
	if len(dst) > 0 {
		s.biases = grow.Slice(s.biases, len(lower))
		threshold := s.threshold(len(dst), lower)
		left = s.ids[:kernels.SelectAtLeast(s.ids, upper, threshold)]
	}
	// A sum over all labels must take the same decision, listed or not.
	if most(len(left), p.n) && (p.req.LogSum || !p.listed) {
		s.scoreAll(dst, a, q, p)
		return
	}
	if p.req.LogSum {
		s.places = append(s.places[:0], left...)
	}
	for j, row := range left {
		s.biases[j] = s.layer.biasOf(p, int(row))
	}
	if p.listed {
		for j, row := range left {
			left[j] = p.ids[row]
		}
	}
	s.score(dst, q, left, p.req)
	if p.req.LogSum {
		a.LogSum = logSum(p.req, s.places, s.logits, lower, upper)
	}
}

// biasOf returns the bias of a row of a place, from its record, which has just been read.
func (l *Layer) biasOf(p *place, row int) float32 {
	switch {
	case p.packed != nil:
		return p.packed.codes.Bias(p.panel*kernels.PanelRows + row)
	case p.listed:
		return l.codes.Bias(int(p.ids[row]))
	}
	return l.codes.Bias(row)
}

// threshold returns a number that at least k lower ends reach: a bound just below the k-th
// largest, or that itself. It makes room in s.ids for all rows.
func (s *Searcher) threshold(k int, lower []float32) float32 {
	s.ids = grow.Slice(s.ids, len(lower))
	threshold, ok := kernels.KthBound(lower, k)
	if !ok || math.IsInf(float64(threshold), -1) {
		s.scores = append(s.scores[:0], lower...)
		threshold = kernels.KthLargest(s.scores, k)
	}
	return threshold
}

// score fills dst with the best of the labels ids, whose biases are in s.biases and
// whose edited logits it leaves in s.logits.
func (s *Searcher) score(dst []Prediction, q *Query, ids []uint32, req *Request) {
	s.logits = grow.Slice(s.logits, len(ids))
	s.layer.rows.RefGatherDot(s.logits, nil, ids, q.Vector())
	for j, b := range s.biases[:len(ids)] {
		s.logits[j] += float64(b)
	}
	if len(req.Biases) > 0 {
		for j, id := range ids {
			s.logits[j] += req.Bias(id)
		}
	}
	s.selectTop(dst, s.logits, ids)
}

// scoreAll fills dst with the best labels of a place, and the sum, by the
// reference arithmetic for all of its rows.
func (s *Searcher) scoreAll(dst []Prediction, a *Answer, q *Query, p *place) {
	s.logits = grow.Slice(s.logits, p.n)
	s.layer.logits(s.logits, q, p)
	if p.mask != nil {
		for id := range p.mask.Missing(0, p.n) {
			s.logits[id] = math.Inf(-1)
		}
	}
	if !p.listed {
		for _, b := range p.req.Biases {
			s.logits[b.ID] += float64(b.Add)
		}
	} else if len(p.req.Biases) > 0 {
		for j, id := range p.ids {
			s.logits[j] += p.req.Bias(id)
		}
	}
	s.selectTop(dst, s.logits, p.ids)
	if p.req.LogSum {
		a.LogSum = p.req.logSum(s.logits)
	}
}

func (l *Layer) logits(dst []float64, q *Query, p *place) {
	if p.listed {
		l.rows.RefGatherDot(dst, l.bias, p.ids, q.Vector())
		return
	}
	l.rows.RefScan(dst, l.bias, q.Vector())
}

const (
	// tileBytes is the size of the codes that stay in the second-level cache
	// while the contexts of a batch pass.
	tileBytes = 1 << 17
	// minTile is the least number of rows of a tile, and maxTiledK the largest k for which
	// kernels.KthBound has an answer for each tile of at least k rows.
	minTile   = 64
	maxTiledK = 16
)

// tile returns the number of rows whose codes stay in the cache: of whole panels.
func (l *Layer) tile() int {
	return max(minTile, tileBytes/kernels.Int8Stride(l.Dim())/kernels.PanelRows*kernels.PanelRows)
}

// kept are labels of a query that may be among the best, as far as it has come by tiles.
type kept struct {
	ids          []uint32
	lower, upper []float32
	threshold    float32
}

// batch answers queries all of which have intervals, as many side by side as share the load of
// a row. If there are more rows than a tile has, and neither all intervals nor many labels are
// wanted, it goes by tiles, of which it keeps the rows that may be among the best k of all, by
// a threshold that k rows so far reach. So no more than a tile of intervals is ever held. The
// rows kept hold the k largest lower ends, and so the same survivors as all.
func (s *Searcher) batch(dst []Prediction, answers []Answer, qs []*Query, p *place) {
	tile := p.n
	if !p.req.LogSum && p.k <= maxTiledK {
		tile = min(tile, s.layer.tile())
	}
	tiled := tile < p.n
	if tiled {
		for len(s.kept) < len(qs) {
			s.kept = append(s.kept, kept{})
		}
		for c := range qs {
			x := &s.kept[c]
			x.ids, x.lower, x.upper, x.threshold = x.ids[:0], x.lower[:0], x.upper[:0], float32(math.Inf(-1))
		}
		s.ids = grow.Slice(s.ids, tile)
	}
	s.reserve(p.room(tile) * kernels.BatchContexts)
	for at := 0; at < p.n; at += tile {
		size := min(tile, p.n-at)
		room := p.room(size)
		for first := 0; first < len(qs); first += kernels.BatchContexts {
			part := qs[first:min(first+kernels.BatchContexts, len(qs))]
			if len(part) == 1 && !tiled {
				s.single(dst[first*p.req.K:][:p.k], &answers[first], part[0], p)
				return
			}
			s.layer.bounds(s.lower[:len(part)*room], s.upper[:len(part)*room], part, p, at, size)
			for c, q := range part {
				i, lower, upper := first+c, s.lower[c*room:][:size], s.upper[c*room:][:size]
				if p.edits() {
					p.edit(lower, upper, at)
				}
				if tiled {
					s.kept[i].add(s, lower, upper, p, at)
				} else {
					s.finish(dst[i*p.req.K:][:p.k], &answers[i], q, p, lower, upper)
				}
			}
		}
	}
	for i := 0; tiled && i < len(qs); i++ {
		x, best := &s.kept[i], dst[i*p.req.K:][:p.k]
		if !p.listed && most(len(x.ids), p.n) {
			s.scoreAll(best, &answers[i], qs[i], p)
			continue
		}
		s.finish(best, &answers[i], qs[i], &place{Labels: Only(x.ids), n: len(x.ids), k: p.k, req: p.req}, x.lower, x.upper)
	}
}

// add takes the rows of a tile that may be among the best.
func (x *kept) add(s *Searcher, lower, upper []float32, p *place, at int) {
	if bound, ok := kernels.KthBound(lower, p.k); ok {
		x.threshold = max(x.threshold, bound)
	}
	for _, j := range s.ids[:kernels.SelectAtLeast(s.ids, upper, x.threshold)] {
		x.ids = append(x.ids, p.label(at+int(j)))
		x.lower, x.upper = append(x.lower, lower[j]), append(x.upper, upper[j])
	}
}
