package softmax

import (
	"math"
	"runtime"
	"unsafe"

	"github.com/learning-to-screen/l2s/internal/bigmem"
	"github.com/learning-to-screen/l2s/kernels"
)

// Direct is a short way through the search of packed lists, for one context at a time and
// requests of nothing but the best labels, with or without a log-sum. Between the steps of a
// decoder neither code nor data are in the caches, and each line of either is waited for: so
// this way has little code, and what it writes lies side by side, for all layers that it
// searches. The answers are those of [Searcher.Find], bit for bit. It is for one goroutine.
type Direct struct {
	vec          kernels.Int8Vector
	query        Query     // of vec
	lower, upper []float32 // of the rows of a list, by whole panels
	rows         []uint32  // of the survivors in the list
	ids          []uint32
	logits       []float64
	by           *Searcher // its scratch orders many labels
}

// Direct returns a Direct for contexts of the layer's dimension, and for lists of at most so many
// labels, of this layer and of others. It takes some five bytes for each element of a context
// and 24 for each label. It uses the scratch of s too, so both are for the same goroutine.
func (s *Searcher) Direct(most int) *Direct {
	dim := s.layer.Dim()
	room := panelsOf(most) * kernels.PanelRows
	vec := kernels.Int8VectorBytes(dim)
	table, release := bigmem.Alloc(vec + 24*room)
	short := &Direct{by: s}
	short.vec.Init(dim, table[:vec:vec])
	short.query = Query{dim: dim, vec: &short.vec}
	take := func(bytes int) unsafe.Pointer {
		p := unsafe.Pointer(unsafe.SliceData(table[vec:]))
		vec += bytes * room
		return p
	}
	short.lower = unsafe.Slice((*float32)(take(4)), room)
	short.upper = unsafe.Slice((*float32)(take(4)), room)
	short.rows = unsafe.Slice((*uint32)(take(4)), room)
	short.ids = unsafe.Slice((*uint32)(take(4)), room)
	short.logits = unsafe.Slice((*float64)(take(8)), room)
	return own(short, nil, release)
}

// Query is the query whose context Set sets.
func (s *Direct) Query() *Query { return &s.query }

// Set makes h the context, or reports false if the short way is not for it (see [Query.Set]).
func (s *Direct) Set(h []float32) bool {
	if len(h) != s.query.dim {
		return false
	}
	s.query.fit = s.vec.Set(h)
	runtime.KeepAlive(s)
	return s.query.fit == kernels.Certified
}

// Length bounds the length of the context.
func (s *Direct) Length() (low, high float64) { return s.vec.Length() }

// First returns the best label of list t, and what its logit is at least and at most, or false
// if the short way is not for the list.
func (s *Direct) First(p *Packed, t int) (id uint32, low, high float64, ok bool) {
	list := &p.near.lists[t]
	n := list.end - list.first
	if n < 1 || n > len(s.rows) {
		runtime.KeepAlive(p)
		return 0, 0, 0, false
	}
	left := s.rows[:p.near.codes.Survivors(s.lower, s.upper, s.rows, list.panel, n, 1, &s.vec)]
	id, low, high = p.near.ids[list.first+int(left[0])], float64(s.lower[left[0]]), float64(s.upper[left[0]])
	if len(left) > 1 { // else no logit is needed
		var top [1]Prediction
		s.rank(top[:], left, p, list)
		id, low, high = top[0].ID, top[0].Logit, top[0].Logit
	}
	runtime.KeepAlive(p)
	runtime.KeepAlive(s)
	return id, low, high, true
}

// Best writes the len(dst) best labels of list t to dst, in order, and if sum is not nil the
// log-sum over the list to it. It reports false, and has written nothing, if the short way is
// not for the list.
func (s *Direct) Best(dst []Prediction, sum *float64, p *Packed, t int) (ok bool) {
	list, k := &p.near.lists[t], len(dst)
	n := list.end - list.first
	if k < 1 || most(k, n) || n > len(s.rows) {
		runtime.KeepAlive(p)
		return false
	}
	left := s.rows[:p.near.codes.Survivors(s.lower, s.upper, s.rows, list.panel, n, k, &s.vec)]
	if sum != nil && most(len(left), n) {
		return false
	}
	s.rank(dst, left, p, list)
	if sum != nil {
		*sum = logSum(&Request{LogSum: true}, left, s.logits[:len(left)], s.lower[:n], s.upper[:n])
	}
	runtime.KeepAlive(p)
	runtime.KeepAlive(s)
	return true
}

// BestAmong is Best for labels of a layer that are packed nowhere.
func (s *Direct) BestAmong(dst []Prediction, sum *float64, l *Layer, among []uint32) (ok bool) {
	n, k := len(among), len(dst)
	if l.codes == nil || k < 1 || most(k, n) || n > len(s.rows) {
		return false
	}
	lower, upper := s.lower[:n], s.upper[:n]
	l.codes.GatherBounds(lower, upper, among, &s.vec)
	threshold, ok := kernels.KthBound(lower, k)
	if !ok || math.IsInf(float64(threshold), -1) {
		return false
	}
	left := s.rows[:kernels.SelectAtLeast(s.rows[:n], upper, threshold)]
	if sum != nil && most(len(left), n) {
		return false
	}
	for j, row := range left {
		s.ids[j] = among[row]
	}
	s.dot(&l.rows, len(left))
	for j, id := range s.ids[:len(left)] {
		s.logits[j] += float64(l.codes.Bias(int(id)))
	}
	s.order(dst, len(left))
	if sum != nil {
		*sum = logSum(&Request{LogSum: true}, left, s.logits[:len(left)], lower, upper)
	}
	runtime.KeepAlive(s)
	return true
}

// rank writes the best of some rows of a list to dst, and the logits of all to s.logits.
func (s *Direct) rank(dst []Prediction, left []uint32, p *Packed, list *packedList) {
	for j, row := range left {
		s.ids[j] = p.near.ids[list.first+int(row)]
	}
	s.dot(&p.near.rows, len(left))
	for j, row := range left {
		s.logits[j] += float64(p.near.codes.Bias(list.panel*kernels.PanelRows + int(row)))
	}
	s.order(dst, len(left))
}

// dot leaves the products of the first n of s.ids in s.logits, without biases.
func (s *Direct) dot(rows *kernels.Rows, n int) {
	rows.Prefetch(s.ids[:n])
	rows.RefGatherDot(s.logits[:n], nil, s.ids[:n], s.vec.Vector())
}

// order writes the best of the first n of s.ids to dst.
func (s *Direct) order(dst []Prediction, n int) {
	if len(dst) > maxInserted {
		s.by.selectTop(dst, s.logits[:n], s.ids[:n])
		return
	}
	at := 0
	for i, x := range s.logits[:n] {
		at = insert(dst, at, Prediction{s.ids[i], x})
	}
}

// insert puts x in its place among the first n of dst, which are in order, if there is room
// or x is before the last, which is then left out. It returns how many there are then.
func insert(dst []Prediction, n int, x Prediction) int {
	j := n
	if n < len(dst) {
		n++
	} else if j--; !x.before(dst[j]) {
		return n
	}
	for ; j > 0 && x.before(dst[j-1]); j-- {
		dst[j] = dst[j-1]
	}
	dst[j] = x
	return n
}

// scratchBytes is how much of each part of the scratch is among its lines: the CPU goes on
// by itself.
const scratchBytes = 256

// AddLines adds the memory of the short way.
func (s *Direct) AddLines(l *kernels.Lines) {
	kernels.AddLines(l, math.MaxInt, unsafe.Slice(s, 1))
	s.vec.AddLines(l)
	kernels.AddLines(l, scratchBytes, s.lower)
	kernels.AddLines(l, scratchBytes, s.upper)
	kernels.AddLines(l, 1, s.rows)
	kernels.AddLines(l, 1, s.ids)
	kernels.AddLines(l, 1, s.logits)
}
