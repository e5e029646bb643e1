// Package bigmem allocates large read-mostly tables.
//
// A query touches a few hundred rows scattered over a table of megabytes. On
// 4 KiB pages each costs a miss of the translation buffer beside the miss of the
// cache; so, if the system can, a large table is put on large pages, which
// the Go heap does not do.
package bigmem

import "unsafe"

// align is the alignment of all tables: a cache line.
const align = 64

// minMapped is the size from which a table gets a mapping of its own.
const minMapped = 8 << 20

// Alloc returns n zero bytes that start at a multiple of 64, and a function
// that releases them, nil if the garbage collector does. After the release
// the bytes must not be touched.
func Alloc(n int) (table []byte, release func()) {
	if n >= minMapped {
		if table, release, ok := mapLarge(n); ok {
			return table, release
		}
	}
	buf := make([]byte, n+align)
	start := int(-uintptr(unsafe.Pointer(&buf[0])) % align)
	return buf[start : start+n : start+n], nil
}
