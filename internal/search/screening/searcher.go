package screening

import (
	"cmp"
	"errors"
	"unsafe"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
	"github.com/learning-to-screen/l2s/internal/ground/ranking"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/router"
)

var errNoModel = errors.New("l2s: model: found none, expected one of Load, Read or a training")

// Options are l2s.Options, with observers.
type Options struct {
	Budget    float64
	Copies    int64
	Observers []Observer
	Accepts   func(*Model) error // unless nil, tells why the observers have no use for a model
}

// Searcher searches by a screen. It knows none of those who observe its queries.
type Searcher struct {
	// The fields that every query reads, next to each other.
	query     [1]*exact.Query
	routing   *router.Searcher
	router    *router.Router
	layer     *exact.Searcher
	packed    *exact.Packed // candidates of all cells; nil for none
	sizes     []uint32      // of each cell, the number of candidates within the searcher's budget
	rung      int           // of the ladder, that sizes is of
	observers []Observer
	stats     Stats
	lines     kernels.Lines

	model  *Model
	copies int64 // bytes of the copies
	whole  int64 // bytes of copies of all lists

	marked []bool             // the biases of a request whose labels are candidates
	edited []uint32           // candidates with the edits of a request
	joined []uint32           // candidates with its other labels
	near   []exact.Prediction // the best of the candidates without them
	also   exact.Also         // the labels of a request that are no candidates
	view   View               // of the last query that was seen
}

// Stats are the counts of its work.
type Stats struct {
	Queries, Candidates, Routing, Exact, Lacking uint64
}

// Check returns an error unless there are a model and a layer, made by their constructors.
func Check(m *Model, l *exact.Layer) error {
	switch {
	case m == nil || m.router == nil:
		return errNoModel
	case l == nil || l.Labels() == 0:
		return errors.New("l2s: layer: found none, expected one of l2s.Open or l2s.New")
	}
	return nil
}

// NewSearcher is l2s.NewSearcher over a screen.
func NewSearcher(m *Model, l *exact.Layer, o Options) (*Searcher, error) {
	if err := Check(m, l); err != nil {
		return nil, err
	}
	if err := l.Fits("screen", m.Labels(), m.Dim(), m.c.Fingerprint, [32]byte{}); err != nil {
		return nil, err
	}
	if o.Accepts != nil {
		if err := o.Accepts(m); err != nil {
			return nil, err
		}
	}
	rung, err := m.RungOf(cmp.Or(o.Budget, m.Budget()))
	if err != nil {
		return nil, err
	}
	share := m.c.Ladder[rung].Share
	s := &Searcher{
		model: m, layer: exact.NewSearcher(l), router: m.router, routing: m.router.NewSearcher(),
		sizes: m.SizesAt(share), rung: rung,
		observers: o.Observers,
	}
	if s.packed, s.copies, s.whole, err = m.pack(l, share, o.Copies); err != nil {
		return nil, err
	}
	return s, s.warm()
}

// warm lets all scratch grow to its final size, so that even the first query allocates nothing. A
// context of zeros excludes no row of V, and an answer as long as the largest set excludes none of
// its labels; an answer of half of them needs the intervals of all.
func (s *Searcher) warm() error {
	m := s.model
	size := m.largestList()
	q := exact.NewQuery(m.Dim())
	q.Reserve(max(size, m.Clusters()))
	s.query[0] = q
	s.view = View{Model: m, Query: q, Layer: s.layer, searcher: s}
	s.addLines()
	if err := q.Set(make([]float32, m.Dim())); err != nil { // the first query of plain Go makes scratch
		return err
	}
	var found [1]router.Found
	for _, cosine := range []bool{false, true} {
		if err := s.routing.Find(found[:], s.query[:], cosine); err != nil {
			return err
		}
	}
	if size == 0 {
		return nil
	}
	set, all := make([]uint32, size), make([]exact.Prediction, size)
	for i := range set {
		set[i] = uint32(i)
	}
	for _, k := range []int{size, max(size/2, 1)} { // by the weights alone, and by intervals
		if _, err := s.find(all[:k], &exact.Request{Among: exact.Only(set)}); err != nil {
			return err
		}
	}
	return nil
}

// addLines adds the memory that every query reads.
func (s *Searcher) addLines() {
	kernels.AddLines(&s.lines, int(unsafe.Offsetof(s.model)), unsafe.Slice(s, 1))
	s.query[0].AddLines(&s.lines)
	s.routing.AddLines(&s.lines)
	s.layer.AddLines(&s.lines)
	if s.packed != nil {
		s.packed.AddLines(&s.lines)
	}
}

// TopK is l2s.Searcher.TopK.
func (s *Searcher) TopK(dst []exact.Prediction, h []float32) (n int, err error) {
	a, err := s.Search(dst, h, exact.Request{})
	return a.Count, err
}

func exactly(req *exact.Request) bool { return exact.IsList(req.Among) || req.Exact }

// Location is the cell of a query's context, with its candidates within the budget.
type Location struct {
	Cell  int
	N     int  // candidates: the first N of the cell
	Exact bool // there is no candidate, or an observer refuses the context
	Wish  Wish // of the observers
	Rung  int  // of the ladder, that N is of
	Found router.Found
}

// Search is l2s.Searcher.Search.
func (s *Searcher) Search(dst []exact.Prediction, h []float32, req exact.Request) (a exact.Answer, err error) {
	s.lines.Prefetch()
	if err = exact.Check(&req, s.model.c.Labels, len(dst)); err != nil {
		return exact.Answer{}, err
	}
	if exactly(&req) {
		if err = s.query[0].Set(h); err != nil {
			return exact.Answer{}, err
		}
		s.stats.Queries++
		s.stats.Exact++
		return s.find(dst, &req)
	}
	rung, err := s.rungOf(req.Budget)
	if err != nil {
		return exact.Answer{}, err
	}
	x, err := s.locate(h, rung)
	if err != nil {
		return exact.Answer{}, err
	}
	plain := req.Within == 0 && !exact.Edits(&req)
	more := req.Also // the best one of labels needs no distinct ones, if there are not too many
	if len(more) > 0 && !x.Exact && !(plain && len(dst) == 1 && !req.LogSum && len(more) <= s.model.c.Labels) {
		more = s.also.Beside(s.model.first(x.Cell, x.N), more, s.model.c.Labels)
	}
	n := x.N + len(more)
	byLayer := x.Exact || x.N < len(dst) && req.Within == 0 // other labels are no reason to miss those of the layer
	switch {
	case byLayer:
	case !plain:
		a, byLayer, err = s.among(dst, &x, req, more)
	default:
		a, err = s.both(dst, &x, req, more)
		a.Source = exact.FromSet
	}
	if err == nil && byLayer {
		a, err = s.find(dst, &req)
	}
	if err != nil {
		return exact.Answer{}, err
	}
	s.stats.Queries++
	s.stats.Candidates += uint64(n)
	s.stats.Routing += uint64(s.router.Clusters())
	if byLayer {
		if s.stats.Exact++; x.Wish&Refuses == 0 {
			s.stats.Lacking++
		}
	}
	return s.show(&x, len(dst), &req, a)
}

// among answers a request with edits or a distance from the candidates of a location, and more labels.
// It reports true if the exact layer must answer it, because the answer may be wrong where a plain one
// is right.
func (s *Searcher) among(dst []exact.Prediction, x *Location, req exact.Request, more []uint32) (a exact.Answer, doubtful bool, err error) {
	plain, set := s.labels(x.Cell, x.N), s.model.first(x.Cell, x.N)
	if len(more) > 0 {
		s.joined = append(append(s.joined[:0], set...), more...)
		plain, set = exact.Only(s.joined), s.joined
	}
	edits, within := exact.Edits(&req), req.Within
	req.Among = plain
	if edits {
		if s.edit(set, &req); len(s.edited) == 0 {
			return a, true, nil
		}
		req.Allowed, req.Banned, req.Among = nil, nil, exact.Only(s.edited)
	}
	if a, err = s.find(dst, &req); err != nil {
		return a, false, err
	}
	a.Source = exact.FromSet
	k, short := len(dst), a.Count < len(dst)
	if !short && !edits || k == 0 {
		return a, k > x.N, nil
	}
	// Labels that are no candidates are after the k best candidates, if a plain answer of k labels is
	// right. So they are after the last label of this answer too, unless it is after these itself. An
	// answer of fewer labels, within a distance, ends before one more: for that the ladder has figures.
	if short {
		if k = a.Count + 1; within == 0 || a.Count == 0 || k > s.model.c.K {
			return a, true, nil
		}
	}
	if k > x.N || !edits {
		return a, k > x.N, nil
	}
	s.near = mem.Grow(s.near, k)
	if _, err = s.find(s.near, &exact.Request{Among: plain}); err != nil {
		return a, false, err
	}
	last := s.near[k-1]
	if short {
		return a, last.Logit >= dst[0].Logit-within, nil
	}
	return a, ranking.Compare(dst[k-1], last) > 0, nil
}

// both answers a plain request from the candidates of a location and more labels.
func (s *Searcher) both(dst []exact.Prediction, x *Location, req exact.Request, more []uint32) (a exact.Answer, err error) {
	req.Among = s.labels(x.Cell, x.N)
	if len(more) > 0 {
		if s.layer.FindBoth(dst, &a, s.query[0], &req, more) {
			return a, nil
		}
		set := s.model.first(x.Cell, x.N)
		s.joined = append(append(s.joined[:0], set...), s.also.Beside(set, more, s.model.c.Labels)...)
		req.Among = exact.Only(s.joined)
	}
	return s.find(dst, &req)
}

// locate sets the query's context and finds its candidates within the budget of a rung.
func (s *Searcher) locate(h []float32, rung int) (x Location, err error) {
	if err = s.query[0].Set(h); err != nil {
		return Location{}, err
	}
	for _, o := range s.observers {
		x.Wish |= o.Before(s.query[0])
	}
	var found [1]router.Found
	if err = s.routing.Find(found[:], s.query[:], x.Wish&Places != 0); err != nil {
		return Location{}, err
	}
	x.Found = found[0]
	x.Cell = s.router.Cell(x.Found)
	sizes := s.sizes
	if rung != s.rung {
		sizes = s.model.SizesAt(s.model.c.Ladder[rung].Share)
	}
	x.N, x.Rung = int(sizes[x.Cell]), rung
	x.Exact = x.Wish&Refuses != 0 || x.N == 0
	return x, nil
}

// find asks the layer about the query's context.
func (s *Searcher) find(dst []exact.Prediction, req *exact.Request) (exact.Answer, error) {
	var one [1]exact.Answer
	err := s.layer.Find(dst, one[:], s.query[:], req)
	return one[0], err
}

func (s *Searcher) rungOf(budget float64) (int, error) {
	if budget == 0 {
		return s.rung, nil
	}
	return s.model.RungOf(budget)
}

func (s *Searcher) labels(cell, n int) exact.Labels {
	if s.packed != nil && n <= s.packed.Size(cell) {
		return s.packed.First(cell, n)
	}
	return exact.Only(s.model.first(cell, n))
}

// edit leaves the candidates in s.edited, with the labels that the request biases, and without
// those that may not be answered.
func (s *Searcher) edit(set []uint32, req *exact.Request) {
	s.edited = s.edited[:0]
	s.marked = append(s.marked[:0], make([]bool, len(req.Biases))...)
	for _, id := range set {
		if i, biased := exact.BiasOf(req, id); biased {
			s.marked[i] = true
		}
		if exact.Permits(req, id) {
			s.edited = append(s.edited, id)
		}
	}
	for i, b := range req.Biases {
		if !s.marked[i] && exact.Permits(req, b.ID) {
			s.edited = append(s.edited, b.ID)
		}
	}
}

// PackedBytes returns the memory that the copies of candidates take, and the memory that copies of
// all lists within the budget would take: more if Options.Copies allows less, or if the layer has no codes
// to copy.
func (s *Searcher) PackedBytes() (copies, all int64) { return s.copies, s.whole }

// Model returns the searcher's model.
func (s *Searcher) Model() *Model { return s.model }

// Stats returns the counts of the searcher's work so far.
func (s *Searcher) Stats() Stats { return s.stats }

// TakeStats returns the counts, which begin at 0 again.
func (s *Searcher) TakeStats() (taken Stats) {
	taken, s.stats = s.stats, Stats{}
	return taken
}
