package exact

import (
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
	"github.com/learning-to-screen/l2s/internal/ground/ranking"
)

// Also finds which labels of a list others are to be looked at besides, and joins their answers. The
// zero value is ready. It is for one goroutine.
type Also struct {
	marks []uint64 // a bit of each label
	rest  []uint32
	best  []Prediction
}

// Beside returns the labels of also that are not in the set, each once, in their order. The result is
// valid until the next call. All ids are below the number of labels.
func (x *Also) Beside(set, also []uint32, labels int) []uint32 {
	x.marks, x.rest = mem.Grow(x.marks, (labels+63)/64), mem.Grow(x.rest, len(also))
	clear(x.marks)
	for _, id := range set {
		x.marks[id/64] |= 1 << (id % 64)
	}
	n := 0
	for _, id := range also { // without a branch, which would often be guessed wrong
		word := &x.marks[id/64]
		x.rest[n] = id
		n += int(^*word >> (id % 64) & 1)
		*word |= 1 << (id % 64)
	}
	x.rest = x.rest[:n]
	return x.rest
}

// Join adds labels to an answer about the context of a query, without edits, which was chosen among
// others: to the best in dst, which has room for k, and to the sum.
func (x *Also) Join(dst []Prediction, a *Answer, s *Searcher, qs []*Query, req *Request, more []uint32) error {
	k := min(len(dst), len(more))
	if k == 0 && !req.LogSum || len(more) == 0 {
		return nil
	}
	if len(more) > len(qs[0].rows) {
		// The short way needs room. The query gets its context back.
		h := append([]float32(nil), qs[0].Vector()...)
		qs[0].Reserve(2 * len(more))
		if err := qs[0].Set(h); err != nil {
			return err
		}
	}
	x.best = mem.Grow(x.best, k)
	ask := Request{LogSum: req.LogSum, Temperature: req.Temperature, Among: Only(more)}
	var one [1]Answer
	if err := s.Find(x.best, one[:], qs, &ask); err != nil {
		return err
	}
	for _, p := range x.best[:one[0].Count] {
		a.Count = ranking.Insert(dst, a.Count, p)
	}
	a.LogSum = kernels.LogAddExp(a.LogSum, one[0].LogSum)
	return nil
}
