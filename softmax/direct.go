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
// decoder neither code nor data are in the caches, and each line of either that a query touches
// is waited for: so this way has little code, and what it writes lies side by side, for all
// layers that it searches. The answers are those of [Searcher.Find], bit for bit. It is for
// one goroutine.
type Direct struct {
	vec          kernels.Int8Vector
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
	if release != nil {
		runtime.AddCleanup(short, func(release func()) { release() }, release)
	}
	return short
}

// Set makes h the context. It reports false if the short way is not for h, which may be no
// context at all: a [Query] says so.
func (s *Direct) Set(h []float32) bool {
	ok := len(h) == s.vec.Dim() && s.vec.Set(h) == kernels.Certified
	runtime.KeepAlive(s)
	return ok
}

// Route writes the len(dst) best of some clusters to dst, at least one, and returns the number of
// vectors that were scanned. Only if scored are there logits; dst has one element if not. The
// clusters are list 0 if there are no groups, which is nil, or the list of the best of these. It
// reports false if the short way is not for the lists.
func (s *Direct) Route(dst []Prediction, groups, clusters *Packed, scored bool) (rows int, ok bool) {
	var group uint32
	if groups != nil {
		if group, rows, ok = s.First(groups, 0); !ok {
			return 0, false
		}
	}
	n := 0
	if scored {
		n, ok = s.Best(dst, nil, clusters, int(group))
	} else {
		dst[0].ID, n, ok = s.First(clusters, int(group))
	}
	return rows + n, ok
}

// First returns the best label of list t, and the number of its labels. It reports false if
// the short way is not for the list.
func (s *Direct) First(p *Packed, t int) (id uint32, n int, ok bool) {
	list := &p.near.lists[t]
	n = list.end - list.first
	if n < 1 || n > len(s.rows) {
		runtime.KeepAlive(p)
		return 0, 0, false
	}
	left := s.rows[:p.near.codes.Survivors(s.lower, s.upper, s.rows, list.panel, n, 1, &s.vec)]
	best := p.near.ids[list.first+int(left[0])]
	if len(left) > 1 { // else no logit is needed
		var top [1]Prediction
		s.rank(top[:], left, p, list)
		best = top[0].ID
	}
	runtime.KeepAlive(p)
	runtime.KeepAlive(s)
	return best, n, true
}

// Best writes the len(dst) best labels of list t to dst, in order, and if sum is not nil the
// log-sum over the list to it. It returns the number of the list's labels. It reports false if
// the short way is not for the list.
func (s *Direct) Best(dst []Prediction, sum *float64, p *Packed, t int) (n int, ok bool) {
	list, k := &p.near.lists[t], len(dst)
	n = list.end - list.first
	if k < 1 || most(k, n) || n > len(s.rows) {
		runtime.KeepAlive(p)
		return 0, false
	}
	left := s.rows[:p.near.codes.Survivors(s.lower, s.upper, s.rows, list.panel, n, k, &s.vec)]
	if sum != nil && most(len(left), n) {
		return 0, false
	}
	s.rank(dst, left, p, list)
	if sum != nil {
		*sum = logSum(&Request{LogSum: true}, left, s.logits[:len(left)], s.lower[:n], s.upper[:n])
	}
	runtime.KeepAlive(p)
	runtime.KeepAlive(s)
	return n, true
}

// rank writes the best of some rows of a list to dst, and leaves the logits of all of them
// in s.logits.
func (s *Direct) rank(dst []Prediction, left []uint32, p *Packed, list *packedList) {
	ids, logits := s.ids[:len(left)], s.logits[:len(left)]
	for j, row := range left {
		ids[j] = p.near.ids[list.first+int(row)]
	}
	p.near.rows.Prefetch(ids)
	p.near.rows.RefGatherDot(logits, nil, ids, s.vec.Vector())
	for j, row := range left {
		logits[j] += float64(p.near.codes.Bias(list.panel*kernels.PanelRows + int(row)))
	}
	if len(dst) > maxInserted {
		s.by.selectTop(dst, logits, ids, 0)
		return
	}
	n := 0
	for i, x := range logits {
		n = insert(dst, n, Prediction{ids[i], x})
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
