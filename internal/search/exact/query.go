package exact

import (
	"math"
	"runtime"
	"unsafe"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
	"github.com/learning-to-screen/l2s/internal/ground/ranking"
)

// Query is one context vector h, checked and quantised, for [Searcher.Find], with the memory that a
// search for it alone writes. One Query serves searchers of any number of layers of its dimension.
// It belongs to one goroutine, and takes some six bytes per element of h.
//
// A search for one context among few labels is short. Between the steps of a decoder neither code
// nor data are in the caches, and each line of either is waited for: so the short way has little
// code, which is together here, and its scratch is together too, for all layers.
type Query struct {
	dim          int
	fit          kernels.Fit
	vec          kernels.Int8Vector
	lower, upper []float32 // of the rows of a list, by whole panels
	rows         []uint32  // of the survivors in the list
	ids          []uint32
	logits       []float64
}

// NewQuery returns a Query for contexts of dimension dim, at least 1.
func NewQuery(dim int) *Query { return &Query{dim: dim, vec: *kernels.NewInt8Vector(dim)} }

// Reserve makes room for short searches among lists of up to that many labels, some 24 bytes for
// each, and leaves the query without a context. Without it all searches go the longer way, which
// has the same answers.
func (q *Query) Reserve(labels int) {
	room := kernels.PanelsOf(labels) * kernels.PanelRows
	vec := kernels.Int8VectorBytes(q.dim)
	table, release := mem.Alloc(vec + 24*room)
	q.fit, q.vec = kernels.NotFinite, kernels.Int8Vector{}
	q.vec.Init(q.dim, table[:vec:vec])
	take := func(bytes int) unsafe.Pointer {
		p := unsafe.Pointer(unsafe.SliceData(table[vec:]))
		vec += bytes * room
		return p
	}
	q.lower = unsafe.Slice((*float32)(take(4)), room)
	q.upper = unsafe.Slice((*float32)(take(4)), room)
	q.rows = unsafe.Slice((*uint32)(take(4)), room)
	q.ids = unsafe.Slice((*uint32)(take(4)), room)
	q.logits = unsafe.Slice((*float64)(take(8)), room)
	mem.Own(q, nil, release)
}

// Set makes h, of the query's dimension, its context. h is copied. It returns
// an error, for which errors.Is holds with [ErrContext], and leaves the query
// without a context, if the length differs or an element is NaN or infinite.
func (q *Query) Set(h []float32) error {
	if q.fit = kernels.NotFinite; len(h) == q.dim {
		q.fit = q.vec.Set(h)
	}
	if q.fit == kernels.NotFinite {
		return q.refuse(h)
	}
	runtime.KeepAlive(q)
	return nil
}

// Length bounds the length ||h|| of the context. Both are NaN for a context whose elements are too
// large or too small for intervals.
func (q *Query) Length() (low, high float64) {
	if q.fit != kernels.Certified {
		return math.NaN(), math.NaN()
	}
	return q.vec.Length()
}

// Nearest returns the best label of the list of a request, and its logit's bounds, at least and at
// most, of a layer without a scale and a cap: a search for one label, which computes no logit if the intervals exclude all others. It
// uses nothing else of the request. It reports false if the short path does not handle the query,
// the list or the layer.
func (s *Searcher) Nearest(q *Query, req *Request) (id uint32, low, high float64, ok bool) {
	left := s.survivors(q, &req.Among, nil, 1)
	switch len(left) {
	case 0:
		return 0, 0, 0, false
	case 1:
		id, low, high = req.Among.id(int(left[0])), float64(q.lower[left[0]]), float64(q.upper[left[0]])
	default:
		var top [1]Prediction
		s.rank(top[:], q, &req.Among, nil, left)
		id, low, high = top[0].ID, top[0].Logit, top[0].Logit
	}
	runtime.KeepAlive(q)
	return id, low, high, true
}

// Find is SearchBatch for contexts that are set: who searches several layers with the same
// contexts quantises each of them once. The queries are distinct. It panics if a list that the
// request names has an id that is not below L.
func (s *Searcher) Find(dst []Prediction, answers []Answer, qs []*Query, req *Request) error {
	if len(qs) == 1 && len(answers) == 1 && s.short(dst, &answers[0], qs[0], req, nil) {
		return nil
	}
	return s.findAny(dst, answers, qs, req)
}

// FindBoth is Find for one context among the labels of the request's list and more labels, without
// edits, a distance or an exact sum. The labels are distinct, but for k = 1 without a log-sum. It
// reports false, and answers nothing, if the short path does not handle the case.
func (s *Searcher) FindBoth(dst []Prediction, a *Answer, q *Query, req *Request, more []uint32) bool {
	if n := len(req.Among.ids) + len(more); n > len(q.rows) && q.fit == kernels.Certified {
		h := append([]float32(nil), q.vec.Vector()...)
		q.Reserve(2 * n)
		if q.Set(h) != nil {
			return false
		}
	}
	return s.short(dst, a, q, req, more)
}

// short answers a request for nothing but the best labels of a list and more labels, with or without a
// log-sum. It reports false, and writes nothing, if the short path does not handle the case: it handles
// lists that the query has room for, unless most of their labels may be among the best.
func (s *Searcher) short(dst []Prediction, a *Answer, q *Query, req *Request, more []uint32) bool {
	n, k := len(req.Among.ids)+len(more), len(dst)
	if k < 1 || denseIsCheaper(k, n) || req.Temperature != 0 || req.Within != 0 || req.ExactSum || Edits(req) {
		return false
	}
	left := s.survivors(q, &req.Among, more, k)
	if len(left) == 0 || req.LogSum && denseIsCheaper(len(left), n) {
		return false
	}
	s.rank(dst, q, &req.Among, more, left)
	*a = Answer{Count: k, LogSum: math.Inf(-1)}
	if req.LogSum {
		a.LogSum = s.layer.logSum(req, left, q.logits[:len(left)], q.lower[:n], q.upper[:n])
	}
	runtime.KeepAlive(q)
	return true
}

// survivors returns the rows of a list, and of more labels behind them, that may be among the k best, at
// least k, and leaves the intervals of all in the query. It returns none if the short path does not handle
// the list or the query.
func (s *Searcher) survivors(q *Query, among *Labels, more []uint32, k int) []uint32 {
	n := len(among.ids)
	both := n + len(more)
	if n < 1 || both > len(q.rows) || k > both || q.fit != kernels.Certified {
		return nil
	}
	if p := among.packed; p != nil {
		if p.hot.layer != s.layer || among.list.end-among.list.first != n || q.dim != p.hot.rows.Dim() {
			return nil
		}
		left := q.rows[:p.hot.codes.Survivors(q.lower, q.upper, q.rows, among.list.panel, n, min(k, n), &q.vec)]
		if len(more) == 0 && !s.layer.final.merges() {
			return left
		}
	} else if !s.gather(q, 0, among.ids) {
		return nil
	}
	if len(more) > 0 && !s.gather(q, n, more) {
		return nil
	}
	return s.loosely(q, both, k)
}

// gather leaves the intervals of the rows ids in the query, from a place on. It reports false if there
// are none.
func (s *Searcher) gather(q *Query, at int, ids []uint32) bool {
	lower, upper := q.lower[at:at+len(ids)], q.upper[at:at+len(ids)]
	switch codes, blocks := s.layer.codes, s.layer.blocks; {
	case q.dim != s.layer.Dim():
		return false
	case blocks != nil:
		s.blocks.Set(blocks, &q.vec)
		blocks.GatherBounds(lower, upper, ids, &s.blocks)
	case codes != nil:
		codes.GatherBounds(lower, upper, ids, &q.vec)
	default:
		return false
	}
	return true
}

// loosely returns the rows, of n with intervals in the query, that may be among the k best.
func (s *Searcher) loosely(q *Query, n, k int) []uint32 {
	threshold, ok := kernels.KthBound(q.lower[:n], k)
	if !ok || math.IsInf(float64(threshold), -1) {
		return nil
	}
	return q.rows[:kernels.SelectAtLeast(q.rows[:n], q.upper[:n], s.layer.final.loose(threshold))]
}

// rank writes the best of the survivors of a list and more labels to dst, and leaves the logits of all
// in the query.
func (s *Searcher) rank(dst []Prediction, q *Query, among *Labels, more, left []uint32) {
	ids, logits := q.ids[:len(left)], q.logits[:len(left)]
	n := len(among.ids)
	for j, row := range left {
		if int(row) < n {
			ids[j] = among.id(int(row))
		} else {
			ids[j] = more[int(row)-n]
		}
	}
	rows, p := &s.layer.rows, among.packed
	if p != nil {
		rows = &p.hot.rows
	}
	kernels.Prefetch(*rows, ids)
	rows.RefGatherDot(logits, nil, ids, q.vec.Vector())
	for j, row := range left {
		switch {
		case p != nil && int(row) < n:
			logits[j] += float64(p.hot.codes.Bias(among.list.panel*kernels.PanelRows + int(row)))
		case s.layer.codes != nil:
			logits[j] += float64(s.layer.codes.Bias(int(ids[j])))
		default:
			logits[j] += float64(s.layer.bias[ids[j]])
		}
	}
	s.layer.final.finish(logits)
	s.selectTop(dst, logits, ids)
}

// id returns the label of a row of a list.
func (l *Labels) id(row int) uint32 {
	if l.packed != nil {
		return l.packed.hot.ids[l.list.first+row]
	}
	return l.ids[row]
}

// maxInserted is the largest k for which insertion is fast.
const maxInserted = 16

// selectTop fills dst with the best of the labels ids, or 0, 1, ... if there are no ids, whose
// logits are given. There are at least len(dst) of them.
func (s *Searcher) selectTop(dst []Prediction, logits []float64, ids []uint32) {
	switch {
	case len(dst) == 0:
		return
	case len(dst) > maxInserted:
		s.sorter.Best(dst, logits, ids)
		return
	}
	n := 0
	for i, x := range logits {
		id := uint32(i)
		if len(ids) > 0 {
			id = ids[i]
		}
		n = ranking.Insert(dst, n, Prediction{ID: id, Logit: x})
	}
}

// scratchBytes is the size of the part of each scratch that is among the lines of a query: the CPU
// prefetches the rest by itself.
const scratchBytes = 256

// AddLines adds the memory that short searches for the query write.
func (q *Query) AddLines(l *kernels.Lines) {
	kernels.AddLines(l, math.MaxInt, unsafe.Slice(q, 1))
	q.vec.AddLines(l)
	kernels.AddLines(l, scratchBytes, q.lower)
	kernels.AddLines(l, scratchBytes, q.upper)
	kernels.AddLines(l, 1, q.rows)
	kernels.AddLines(l, 1, q.ids)
	kernels.AddLines(l, 1, q.logits)
}

// AddLines adds the memory with the place of the layer, which short searches read.
func (s *Searcher) AddLines(l *kernels.Lines) {
	kernels.AddLines(l, 1, unsafe.Slice(s, 1))
	kernels.AddLines(l, math.MaxInt, unsafe.Slice(s.layer, 1))
	if s.layer.codes != nil {
		kernels.AddLines(l, math.MaxInt, unsafe.Slice(s.layer.codes, 1))
	}
}

// refuse returns the reason why h is not a context, after Set found no codes for it.
func (q *Query) refuse(h []float32) error {
	if len(h) != q.dim {
		return Invalid(ErrContext, "l2s: context: found %d elements, expected %d", len(h), q.dim)
	}
	for i, x := range h {
		if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
			return Invalid(ErrContext, "l2s: context: found %v at element %d, expected finite numbers", x, i)
		}
	}
	return Invalid(ErrContext, "l2s: context: found numbers that change meanwhile, expected finite ones")
}

// Vector returns the context, valid until the next Set. It must not be changed.
func (q *Query) Vector() []float32 { return q.vec.Vector() }

func (q *Query) check(l *Layer) error {
	if q.dim != l.Dim() {
		return Invalid(ErrContext, "l2s: context: found %d elements, expected %d", q.dim, l.Dim())
	}
	if q.fit == kernels.NotFinite {
		return Invalid(ErrContext, "l2s: context: found none that was set, expected one")
	}
	return nil
}
