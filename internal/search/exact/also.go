package exact

import "github.com/learning-to-screen/l2s/internal/ground/mem"

// Also finds which labels are to be looked at besides others. The zero value is ready. It is for one
// goroutine.
type Also struct {
	marks []uint64 // a bit of each label
	rest  []uint32
}

// Beside returns the labels of also that are not in the set, each once, in their order. The result is
// valid until the next call. All ids are below the number of labels.
func (x *Also) Beside(set, also []uint32, labels int) []uint32 {
	x.marks, x.rest = mem.Grow(x.marks, (labels+63)/64), mem.Grow(x.rest, min(len(also), labels+1))
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
