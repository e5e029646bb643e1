package kernels

import "unsafe"

// lineBytes is the size of a cache line of most CPUs.
const lineBytes = 64

// Lines are places in memory that a caller uses again and again, a cache line each, with other work
// in between that may push them out of the caches. The zero value has none. It keeps the memory
// that it points to, and belongs to one goroutine.
type Lines struct {
	n    int                // of first
	few  [64]unsafe.Pointer // in addition to the owner's own memory
	more []unsafe.Pointer
}

func (l *Lines) add(p unsafe.Pointer) {
	if l.n < len(l.few) {
		l.few[l.n] = p
		l.n++
		return
	}
	l.more = append(l.more, p)
}

// AddLines adds the first n bytes of x, or all if there are fewer.
func AddLines[T any](l *Lines, n int, x []T) {
	if len(x) == 0 {
		return
	}
	p, size := unsafe.Pointer(&x[0]), len(x)*int(unsafe.Sizeof(x[0]))
	for i := 0; i < min(n, size); i += lineBytes {
		l.add(unsafe.Add(p, i))
	}
}
