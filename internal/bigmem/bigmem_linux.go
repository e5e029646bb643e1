package bigmem

import (
	"syscall"
	"unsafe"
)

// hugePage is the size of a large page on amd64. If large pages have another
// size the advice is taken if it fits.
const hugePage = 2 << 20

// mapLarge maps n bytes that start at a large page's boundary and asks for
// large pages. It reports whether it could map.
func mapLarge(n int) (table []byte, release func(), ok bool) {
	mem, err := syscall.Mmap(-1, 0, n+hugePage, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, nil, false
	}
	start := int(-uintptr(unsafe.Pointer(&mem[0])) % hugePage)
	table = mem[start : start+n : start+n]
	// If the advice is refused the table lies on small pages.
	const madvHugepage = 14
	_ = syscall.Madvise(table[:n&^(hugePage-1)], madvHugepage)
	return table, func() { _ = syscall.Munmap(mem) }, true
}
