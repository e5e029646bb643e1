package exact

import (
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
	"github.com/learning-to-screen/l2s/internal/ground/parallel"
)

// Tests change these.
var (
	// tileBytes is the size of the codes that stay in the second-level cache while the contexts of
	// a batch pass, and the least size that a thread takes at a time.
	tileBytes = 1 << 17
	// minTile is the least number of rows of a tile.
	minTile = 64
)

const (
	// largestTile is the largest size that a thread takes at a time. The memory delivers less after
	// each end of a tile: Gemma's head takes 6.9 ms in tiles of 512 KiB and 7.3 in tiles of 128,
	// and on two threads 5.1 and 5.6.
	largestTile = 1 << 19
	// fewestTiles is the number of tiles that a scan for one group has at least, so that few rows
	// come before the first threshold, and threads end at the same time.
	fewestTiles = 128
)

// pass is a scan of all rows of the searcher's scope.
type pass struct {
	coarse bool    // by the codes of 4 bits
	whole  bool    // leaves all intervals of one group in lower and upper of the searcher, and keeps no rows
	groups []group // of contexts
	tile   int     // rows, in whole panels
}

// worker is a thread's own part of a scan.
type worker struct {
	lower, upper []float32 // of a tile
	ids          []uint32
	kept         []kept // of each context
}

// kept has the rows that may be among the k best for a context, of the tiles so far. The invariant: at
// least k kept rows have lower >= threshold, so a row with upper < threshold is out. The kept rows
// include the k largest lower ends, and therefore the same survivors as all rows; a thread needs
// memory for one tile of intervals.
type kept struct {
	rows         []uint32 // nil for all
	lower, upper []float32
	threshold    float32
	most         int // largest number of rows before it is pruned
	scores       []float32
}

// scan passes over the rows of the scope for groups of contexts, by tiles: groups find the codes in
// the cache, and one group goes by larger tiles. It takes the layer's threads if it is large, and
// leaves the rows that they kept with worker 0.
func (s *Searcher) scan(groups []group, x pass) {
	l, p := s.layer, &s.scope
	size, bytes, threads := l.rowBytes(), tileBytes, 1
	if x.coarse {
		size = kernels.Int4Stride(l.Dim())
	}
	if len(groups) == 1 {
		bytes = max(min(p.n*size/fewestTiles, largestTile), tileBytes)
	}
	if l.team != nil && p.n*size >= minShared {
		threads = l.team.threads
	}
	x.groups, x.tile = groups, max(minTile, bytes/size/kernels.PanelRows*kernels.PanelRows)
	s.pass = x
	contexts := (len(groups)-1)*kernels.BatchContexts + groups[len(groups)-1].n
	if x.whole {
		room := p.room(p.n) * groups[0].room
		s.lower, s.upper = mem.Grow(s.lower, room), mem.Grow(s.upper, room)
		if contexts > 1 || p.packed != nil {
			threads = 1
		}
		if threads == 1 {
			s.pass.tile = p.n // no cuts but the kernel's
		}
		contexts = 0
	}
	for len(s.workers) < threads {
		s.workers = append(s.workers, worker{})
	}
	for i := range s.workers[:threads] {
		s.workers[i].begin(contexts, p, x.tile)
	}
	s.next.Store(0)
	if threads == 1 {
		s.takeAll(0)
		return
	}
	if err := p.check(l.Labels()); err != nil { // a wrong id is a panic here
		panic(err.Error())
	}
	// The first rows come before others look: a vector computes its missing parts then, which
	// only one thread may.
	first := min(p.n, kernels.PanelRows)
	s.intervals(&s.workers[0], 0, first)
	s.next.Store(int64(first))
	s.failed.Store(false)
	l.team.all(s.share)
	s.takeAll(0) // the rows that nobody took
	if s.failed.Load() {
		// A page that another thread could not read faults here, where the caller may expect it.
		for i := range s.workers[:threads] {
			s.workers[i].begin(contexts, p, x.tile)
		}
		s.next.Store(0)
		s.takeAll(0)
	}
	for i := range contexts {
		all := &s.workers[0].kept[i]
		for _, w := range s.workers[1:threads] {
			x := &w.kept[i]
			all.rows = append(all.rows, x.rows...)
			all.lower, all.upper = append(all.lower, x.lower...), append(all.upper, x.upper...)
		}
	}
}

// begin makes the worker ready to keep rows for contexts, with room for a scope of a tile.
func (w *worker) begin(contexts int, p *scope, tile int) {
	for len(w.kept) < contexts {
		w.kept = append(w.kept, kept{})
	}
	most := 2*p.k + minTile
	room := min(p.n, most+tile)
	for i := range w.kept[:contexts] {
		x := &w.kept[i]
		x.rows, x.lower, x.upper = slices.Grow(x.rows[:0], room), slices.Grow(x.lower[:0], room), slices.Grow(x.upper[:0], room)
		x.threshold, x.most = float32(math.Inf(-1)), most
	}
}

// takeAll scans tiles until all are taken.
func (s *Searcher) takeAll(worker int) {
	for n, tile := s.scope.n, s.pass.tile; ; {
		end := int(s.next.Add(int64(tile)))
		if end-tile >= n {
			return
		}
		s.intervals(&s.workers[worker], end-tile, min(end, n))
	}
}

// takeShare is takeAll for a thread that others help.
func (s *Searcher) takeShare(worker int) {
	// Rows may be in a mapped file that was cut, and nobody catches a fault of a helper.
	if parallel.Guard(func() error { s.takeAll(worker); return nil }) != nil {
		s.failed.Store(true)
	}
}

// intervals computes the intervals of the rows from first on, before end, for all contexts of the
// pass, edits them, and keeps the rows that may be among the best.
func (s *Searcher) intervals(w *worker, first, end int) {
	l, p, n := s.layer, &s.scope, end-first
	room := p.room(n)
	lowers, uppers := s.lower, s.upper
	if s.pass.whole { // of one context, or of all rows at once
		lowers, uppers = lowers[first:], uppers[first:]
	} else {
		w.lower, w.upper = mem.Grow(w.lower, room*kernels.BatchContexts), mem.Grow(w.upper, room*kernels.BatchContexts)
		lowers, uppers = w.lower, w.upper
	}
	for g := range s.pass.groups {
		x := &s.pass.groups[g]
		lower, upper, vecs := lowers[:room*x.room], uppers[:room*x.room], x.vecs[:x.n]
		switch {
		case s.pass.coarse:
			part := l.coarse.Part(first, end)
			part.Bounds(lower, upper, vecs[0])
		case p.packed != nil:
			p.packed.codes.Bounds(lower, upper, p.list.panel+first/kernels.PanelRows, kernels.PanelsOf(n), vecs...)
		case l.blocks != nil && p.listed:
			l.blocks.GatherBounds(lower, upper, p.ids[first:end], &x.blocks)
		case l.blocks != nil:
			part := l.blocks.Part(first, end)
			part.Bounds(lower, upper, &x.blocks)
		case p.listed:
			l.codes.GatherBounds(lower, upper, p.ids[first:end], vecs...)
		default:
			part := l.codes.Part(first, end)
			part.Bounds(lower, upper, vecs...)
		}
		for c := range x.n {
			lower, upper := lower[c*room:][:n], upper[c*room:][:n]
			if p.mask != nil || len(p.req.Biases) > 0 {
				p.edit(lower, upper, first)
			}
			if !s.pass.whole {
				w.kept[g*kernels.BatchContexts+c].add(w, lower, upper, p, first)
			}
		}
	}
}

// rowBytes is the number of bytes of one row's interval.
func (l *Layer) rowBytes() int {
	if l.blocks != nil {
		return l.blocks.RowBytes()
	}
	return kernels.Int8Stride(l.Dim())
}

// add keeps the rows of a tile, from row at on, that may be among the best. Most tiles have none,
// and raise no threshold.
func (x *kept) add(w *worker, lower, upper []float32, p *scope, at int) {
	w.ids = mem.Grow(w.ids, len(lower))
	if kernels.SelectAtLeast(w.ids, upper, x.threshold) == 0 {
		return
	}
	bound, ok := kernels.KthBound(lower, p.k)
	if !ok {
		bound = float32(math.Inf(-1))
	}
	x.threshold = max(x.threshold, p.raised(bound, lower))
	for _, j := range w.ids[:kernels.SelectAtLeast(w.ids, upper, x.threshold)] {
		x.rows = append(x.rows, uint32(at)+j)
		x.lower, x.upper = append(x.lower, lower[j]), append(x.upper, upper[j])
	}
	if len(x.rows) <= x.most {
		return
	}
	// The k largest lower ends so far exclude some.
	x.scores = append(x.scores[:0], x.lower...)
	x.threshold = max(x.threshold, p.final.loose(kernels.KthLargest(x.scores, p.k)))
	n := 0
	for i, up := range x.upper {
		if up >= x.threshold {
			x.rows[n], x.lower[n], x.upper[n] = x.rows[i], x.lower[i], up
			n++
		}
	}
	x.rows, x.lower, x.upper = x.rows[:n], x.lower[:n], x.upper[:n]
	x.most = max(x.most, 2*n)
}

// rowsAt returns the rows at places among the kept ones, in the same memory.
func (x *kept) rowsAt(places []uint32) []uint32 {
	if x.rows != nil {
		for j, at := range places {
			places[j] = x.rows[at]
		}
	}
	return places
}
