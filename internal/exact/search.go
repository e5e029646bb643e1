package exact

import (
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/grow"
	"github.com/learning-to-screen/l2s/internal/kernels"
	"github.com/learning-to-screen/l2s/internal/scored"
)

// A search goes this way, for one context and for many, over all labels and over
// some: intervals of the logits from int8 codes; the edits of the request, on the
// intervals; the survivors, which may be among the k largest; their logits by the
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
	// minListed is the share of labels from which a set of allowed ones is
	// searched in a scan of all instead of a gather.
	minListed = 0.125
)

// scope has the rows that a request looks at: n rows of a layer, all or the rows in a list.
type scope struct {
	Labels
	n    int
	each int         // the number of labels that a context has room for
	k    int         // the number of labels to answer with: no more than each, or than may be answered
	mask *bitset.Set // which of all labels may be answered; nil for each
	req  *Request
}

// room returns the room for the intervals of n rows: packed ones come by whole panels.
func (p *scope) room(n int) int {
	if p.packed != nil {
		return panelsOf(n) * kernels.PanelRows
	}
	return n
}

func (p *scope) label(row int) uint32 {
	if p.listed {
		return p.ids[row]
	}
	return uint32(row)
}

// resolve finds out where the request of p looks. Labels that may not be answered are
// taken from a list, and masked among all.
func (s *Searcher) resolve(p *scope) {
	req := p.req // set by the caller, so that it does not move to the heap
	p.Labels, p.n = req.Among, s.layer.Labels()
	if p.listed {
		p.n = len(p.ids)
	}
	if req.Allowed != nil || req.Banned != nil {
		s.restrict(p)
	}
	p.k = min(p.each, p.n)
	if p.mask != nil {
		p.k = min(p.k, p.mask.Count())
	}
}

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
		s.mask = bitset.New(s.layer.Labels())
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

// countWithin returns the number of labels, in order, that are at most distance below the first.
func countWithin(best []Prediction, distance float64) int {
	for i, p := range best {
		if !(p.Logit >= best[0].Logit-distance) {
			return i
		}
	}
	return len(best)
}

// begin finds out where a request looks. Threads read it, so it is the searcher's until end.
func (s *Searcher) begin(req *Request, each int) *scope {
	s.req = *req
	s.scope = scope{req: &s.req, each: each}
	s.resolve(&s.scope)
	return &s.scope
}

func (s *Searcher) end() { s.req, s.scope = Request{}, scope{} }

func (s *Searcher) find(dst []Prediction, answers []Answer, qs []*Query, p *scope) {
	certified := !p.req.sumsExactly() && !p.wantsMost()
	for _, q := range qs {
		certified = certified && s.layer.certifies(q)
	}
	if n := len(qs); n > 1 && (!certified || s.oneByOne(n, p)) {
		for i := range qs { // each alone
			*p = scope{req: &s.req, each: p.each}
			s.resolve(p)
			s.find(dst[i*p.each:][:p.each], answers[i:i+1], qs[i:i+1], p)
		}
		return
	}
	if !certified {
		s.scoreAll(dst[:p.k], &answers[0], qs[0], p)
		return
	}
	s.prepare(qs, p)
	if len(qs) == 1 && !p.listed && s.layer.coarse != nil && !p.req.LogSum && s.firstPass(qs[0], p) {
		// Labels that are left are permitted ones.
		p.Labels, p.n, p.mask = Only(s.list), len(s.list), nil
	}
	if tile := s.tile(p.n); !p.req.LogSum && p.n > tile && (p.n > 8*p.k || p.req.Within > 0) {
		s.byTiles(dst, answers, qs, p)
		return
	}
	for g := range s.groups {
		x := &s.groups[g]
		s.intervals(x, p)
		room := p.room(p.n)
		for c := range x.n {
			i := g*kernels.BatchContexts + c
			s.finish(dst[i*p.each:][:p.k], &answers[i], qs[i], p, s.lower[c*room:][:p.n], s.upper[c*room:][:p.n])
		}
	}
}

// oneByOne reports whether a search for each of n contexts alone is faster than one search for all.
func (s *Searcher) oneByOne(n int, p *scope) bool {
	l := s.layer
	return l.coarse != nil && s.skip == 0 && n <= fewContexts && p.k <= fewLabels && !p.listed && !p.req.LogSum && l.Labels()*l.rowBytes() > cachedBytes
}

// most reports whether a dense reference scan is cheaper than the survivors of n rows.
func most(survivors, n int) bool { return 2*survivors > n }

// wantsMost reports whether most rows survive with any intervals.
func (p *scope) wantsMost() bool { return (p.req.Within == 0 || p.req.LogSum) && most(p.k, p.n) }

// raised returns a threshold of k lower ends, or a higher one below which no logit is within the
// distance of the request, if it has one.
func (p *scope) raised(threshold float32, lower []float32) float32 {
	if p.req.Within == 0 {
		return threshold
	}
	largest, ok := kernels.KthBound(lower, 1)
	if !ok {
		return threshold
	}
	// Rounded down twice: to float64 and to float32.
	return max(threshold, math.Nextafter32(float32(float64(largest)-p.req.Within), float32(math.Inf(-1))))
}

// intervals leaves the edited intervals of the rows of a scope in s.lower and s.upper, for the
// contexts that share the load of a row, p.room(p.n) apart.
func (s *Searcher) intervals(x *prepared, p *scope) {
	room := p.room(p.n)
	s.reserve(max(room, panelsOf(p.n)*kernels.PanelRows) * x.room) // packed or not: the scratch grows alike
	s.lower, s.upper = s.lower[:room*x.room], s.upper[:room*x.room]
	if x.n > 1 || p.packed != nil {
		s.layer.bounds(s.lower, s.upper, x, p, 0, p.n)
	} else {
		s.scan = scan{x: x, p: p, lower: s.lower, upper: s.upper}
		s.run(p.n, s.layer.rowBytes())
	}
	if p.edits() {
		for c := range x.n {
			p.edit(s.lower[c*room:][:p.n], s.upper[c*room:][:p.n], 0)
		}
	}
}

func (s *Searcher) reserve(n int) {
	s.lower, s.upper = grow.Slice(s.lower, n), grow.Slice(s.upper, n)
}

// firstPass leaves the labels in s.list that survive a pass over 4-bit codes of all rows, and
// reports whether they are few enough.
func (s *Searcher) firstPass(q *Query, p *scope) bool {
	if s.skip > 0 {
		s.skip--
		return false
	}
	s.reserve(p.n)
	s.scan = scan{coarse: true, x: &s.groups[0], p: p, lower: s.lower, upper: s.upper}
	s.run(p.n, kernels.Int4Stride(s.layer.Dim()))
	if p.edits() {
		p.edit(s.lower, s.upper, 0)
	}
	// Labels with large lower ends have higher ones by 8-bit codes, which others must reach.
	threshold := p.raised(s.threshold(p.k, s.lower), s.lower)
	likely := s.ids[:kernels.SelectAtLeast(s.ids, s.lower, threshold)] // at least k
	s.scores, s.biases = grow.Slice(s.scores, len(likely)), grow.Slice(s.biases, len(likely))
	s.layer.codes.GatherBounds(s.scores, s.biases, likely, &q.vec)
	if p.edits() {
		(&scope{Labels: Only(likely), n: len(likely), req: p.req}).edit(s.scores, s.biases, 0)
	}
	if len(likely) >= p.k { // of labels within a distance there may be fewer
		threshold = max(threshold, kernels.KthLargest(s.scores, p.k))
	}
	ids := s.ids[:kernels.SelectAtLeast(s.ids, s.upper, threshold)]
	if float64(len(ids)) > maxCoarse*float64(p.n) {
		s.skipBackoff = min(2*s.skipBackoff+1, coarseSkips)
		s.skip = s.skipBackoff
		return false
	}
	s.skipBackoff = 0
	s.list = append(s.list[:0], ids...)
	return true
}

// edits reports whether there is something to edit in the intervals.
func (p *scope) edits() bool { return p.mask != nil || len(p.req.Biases) > 0 }

// edit applies the request's edits to the intervals of rows from at on: labels that may not
// be answered get the logit -Inf, and biases move the ends, rounded outwards.
func (p *scope) edit(lower, upper []float32, at int) {
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
		if add := Added(p.req, id); add != 0 {
			lower[j], upper[j] = shift(lower[j], upper[j], float32(add))
		}
	}
}

// shift returns an interval that contains x + add, rounded to float64, for every x of the given
// interval. -Inf does not change.
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

// finish fills dst with the best labels of a scope, and the sum if it is asked
// for, from the edited intervals, len(dst) of which are finite: the labels that they
// cannot exclude are scored by the reference arithmetic.
func (s *Searcher) finish(dst []Prediction, a *Answer, q *Query, p *scope, lower, upper []float32) {
	var left []uint32 // rows that may be among the best
	if len(dst) > 0 {
		s.biases = grow.Slice(s.biases, len(lower))
		dst = dst[:min(len(dst), len(lower))] // of labels within a distance fewer may have been kept
		threshold := p.raised(s.threshold(len(dst), lower), lower)
		left = s.ids[:kernels.SelectAtLeast(s.ids, upper, threshold)]
	}
	// A sum over all labels must take the same decision, listed or not.
	if most(len(left), p.n) && (p.req.LogSum || !p.listed) {
		s.scoreAll(dst, a, q, p)
		return
	}
	if p.req.LogSum {
		s.survivorRows = append(s.survivorRows[:0], left...)
	}
	dst = dst[:min(len(dst), len(left))]
	a.Count = len(dst)
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
		a.LogSum = logSum(p.req, s.survivorRows, s.logits, lower, upper)
	}
}

// biasOf returns the bias of a row of a scope, from its record, which has just been read.
func (l *Layer) biasOf(p *scope, row int) float32 {
	switch {
	case p.packed != nil:
		return p.packed.codes.Bias(p.list.panel*kernels.PanelRows + row)
	case p.listed:
		row = int(p.ids[row])
	}
	if l.codes != nil {
		return l.codes.Bias(row)
	}
	return l.bias[row]
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
	scored.Count(len(ids))
	s.logits = grow.Slice(s.logits, len(ids))
	s.layer.rows.RefGatherDot(s.logits, nil, ids, q.Vector())
	for j, b := range s.biases[:len(ids)] {
		s.logits[j] += float64(b)
	}
	if len(req.Biases) > 0 {
		for j, id := range ids {
			s.logits[j] += Added(req, id)
		}
	}
	s.selectTop(dst, s.logits, ids)
}

// scoreAll fills dst with the best labels of a scope, and the sum, by the
// reference arithmetic for all of its rows.
func (s *Searcher) scoreAll(dst []Prediction, a *Answer, q *Query, p *scope) {
	scored.Count(p.n)
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
			s.logits[j] += Added(p.req, id)
		}
	}
	s.selectTop(dst, s.logits, p.ids)
	if p.req.LogSum {
		a.LogSum = p.req.logSum(s.logits)
	}
}

func (l *Layer) logits(dst []float64, q *Query, p *scope) {
	if p.listed {
		l.rows.RefGatherDot(dst, l.bias, p.ids, q.Vector())
		return
	}
	l.rows.RefScan(dst, l.bias, q.Vector())
}

// Tests change these.
var (
	// tileBytes is the size of the codes that stay in the second-level cache while the contexts of
	// a batch pass, and the least size that a thread takes at a time.
	tileBytes = 1 << 17
	// minTile is the least number of rows of a tile.
	minTile = 64
)

const (
	// largestPart is the largest size that a thread takes at a time. The memory delivers less after
	// each end of a part: Gemma's head takes 6.9 ms in parts of 512 KiB and 7.3 in parts of 128,
	// and on two threads 5.1 and 5.6.
	largestPart = 1 << 19
	// fewestParts is the number of parts that a scan has at least, so that few rows come before the
	// first threshold, and threads end at the same time.
	fewestParts = 128
)

// partBytes returns the size that a thread takes at a time of a number of bytes.
func partBytes(bytes int) int { return max(min(bytes/fewestParts, largestPart), tileBytes) }

// tile returns the number of rows of a tile of n rows, in whole panels: groups of contexts find the
// codes in the cache, and one group goes by larger parts.
func (s *Searcher) tile(n int) int {
	size, bytes := s.layer.rowBytes(), tileBytes
	if len(s.groups) == 1 {
		bytes = partBytes(n * size)
	}
	return max(minTile, bytes/size/kernels.PanelRows*kernels.PanelRows)
}

// rowBytes is the number of bytes of one row's interval.
func (l *Layer) rowBytes() int {
	if l.blocks != nil {
		return l.blocks.RowBytes()
	}
	return kernels.Int8Stride(l.Dim())
}

// tileSurvivors has the labels of a query that may be among the best, of the tiles so far.
type tileSurvivors struct {
	ids          []uint32
	lower, upper []float32
	threshold    float32
	most         int // largest number of labels before it is pruned
	scores       []float32
}

// worker is a thread's own part of a search by tiles.
type worker struct {
	lower, upper []float32 // of a tile
	ids          []uint32
	survivors    []tileSurvivors // of each context
}

// byTiles answers queries by tiles of rows, and keeps the rows that may be among the best k of all,
// by a threshold that k rows so far reach. So a thread holds at most a tile of intervals, and the
// kept rows include the k largest lower ends, and therefore the same survivors as all rows.
func (s *Searcher) byTiles(dst []Prediction, answers []Answer, qs []*Query, p *scope) {
	threads := s.layer.threads()
	for len(s.workers) < threads {
		s.workers = append(s.workers, worker{})
	}
	for i := range s.workers[:threads] {
		w := &s.workers[i]
		for len(w.survivors) < len(qs) {
			w.survivors = append(w.survivors, tileSurvivors{})
		}
		for c := range w.survivors[:len(qs)] {
			x := &w.survivors[c]
			x.ids, x.lower, x.upper, x.threshold, x.most = x.ids[:0], x.lower[:0], x.upper[:0], float32(math.Inf(-1)), 2*p.k+minTile
		}
	}
	s.scan = scan{p: p, tiles: true}
	s.run(p.n, s.layer.rowBytes())
	for i := range qs {
		x, best := &s.workers[0].survivors[i], dst[i*p.each:][:p.k]
		for _, w := range s.workers[1:threads] {
			x.ids, x.lower, x.upper = append(x.ids, w.survivors[i].ids...), append(x.lower, w.survivors[i].lower...), append(x.upper, w.survivors[i].upper...)
		}
		if !p.listed && most(len(x.ids), p.n) {
			s.scoreAll(best, &answers[i], qs[i], p)
			continue
		}
		s.finish(best, &answers[i], qs[i], &scope{Labels: Only(x.ids), n: len(x.ids), k: p.k, req: p.req}, x.lower, x.upper)
	}
}

// take adds the rows of a tile, from row at on, to the worker's survivors for each context.
func (w *worker) take(s *Searcher, p *scope, at, size int) {
	room := p.room(size)
	w.lower, w.upper = grow.Slice(w.lower, room*kernels.BatchContexts), grow.Slice(w.upper, room*kernels.BatchContexts)
	w.ids = grow.Slice(w.ids, size)
	for g := range s.groups {
		x := &s.groups[g]
		s.layer.bounds(w.lower[:x.room*room], w.upper[:x.room*room], x, p, at, size)
		for c := range x.n {
			lower, upper := w.lower[c*room:][:size], w.upper[c*room:][:size]
			if p.edits() {
				p.edit(lower, upper, at)
			}
			w.survivors[g*kernels.BatchContexts+c].add(w.ids, lower, upper, p, at)
		}
	}
}

// add takes the rows of a tile that may be among the best. Most tiles have none, and raise no
// threshold.
func (x *tileSurvivors) add(ids []uint32, lower, upper []float32, p *scope, at int) {
	if kernels.SelectAtLeast(ids, upper, x.threshold) == 0 {
		return
	}
	if bound, ok := kernels.KthBound(lower, p.k); ok {
		x.threshold = max(x.threshold, bound)
	}
	x.threshold = p.raised(x.threshold, lower)
	for _, j := range ids[:kernels.SelectAtLeast(ids, upper, x.threshold)] {
		x.ids = append(x.ids, p.label(at+int(j)))
		x.lower, x.upper = append(x.lower, lower[j]), append(x.upper, upper[j])
	}
	if len(x.ids) > x.most {
		x.prune(p.k)
	}
}

// prune removes the rows that the k largest lower ends so far exclude.
func (x *tileSurvivors) prune(k int) {
	x.scores = append(x.scores[:0], x.lower...)
	x.threshold = max(x.threshold, kernels.KthLargest(x.scores, k))
	n := 0
	for i, up := range x.upper {
		if up >= x.threshold {
			x.ids[n], x.lower[n], x.upper[n] = x.ids[i], x.lower[i], up
			n++
		}
	}
	x.ids, x.lower, x.upper = x.ids[:n], x.lower[:n], x.upper[:n]
	x.most = max(x.most, 2*n)
}
