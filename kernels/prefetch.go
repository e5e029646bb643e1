package kernels

import "unsafe"

// lineBytes is the size of a cache line of most CPUs.
const lineBytes = 64

// Lines are places in memory that a caller uses again and again, a cache line each,
// with other work in between that may push them out of the caches. The zero value has
// none. It keeps what it points to. It is not safe for concurrent use.
type Lines struct{ at []unsafe.Pointer }

// AddLines adds the first n bytes of x, or all if there are fewer.
func AddLines[T any](l *Lines, n int, x []T) {
	if len(x) == 0 {
		return
	}
	p, size := unsafe.Pointer(&x[0]), len(x)*int(unsafe.Sizeof(x[0]))
	for i := 0; i < min(n, size); i += lineBytes {
		l.at = append(l.at, unsafe.Add(p, i))
	}
}

// Prefetch asks for all lines at once and does not wait: they come to the caches side by
// side, where each would be waited for when it is first used. It is a hint, which changes
// no result. Plain Go has none. A line that is in the first-level cache costs some
// 0.5 ns.
func (l *Lines) Prefetch() {
	for c := callsOf(len(l.at), maxCallBytes/lineBytes); c.at < c.n; c = c.next() {
		prefetchLinesLeaf(l.at[c.at:c.end])
	}
}
