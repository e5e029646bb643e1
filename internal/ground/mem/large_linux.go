package mem

import (
	"syscall"
	"unsafe"
)

// hugePage is the size of a large page on amd64. If large pages have another
// size the advice is taken if it fits.
const hugePage = 2 << 20

// The advices to the system about pages.
const (
	madvHugepage = 14
	madvCollapse = 25 // from Linux 6.1 on
)

// mapLarge maps n bytes that start at a large page's boundary and asks for
// large pages. It reports whether it could map.
func mapLarge(n int) (table []byte, release func(), ok bool) {
	whole := (n + hugePage - 1) &^ (hugePage - 1)
	mem, err := syscall.Mmap(-1, 0, whole+hugePage, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, nil, false
	}
	start := int(-uintptr(unsafe.Pointer(&mem[0])) % hugePage)
	table = mem[start : start+n : start+n]
	// If the advice is refused the table is on small pages.
	_ = syscall.Madvise(mem[start:start+whole], madvHugepage)
	return table, func() { _ = syscall.Munmap(mem) }, true
}

// collapse asks for large pages in place of the whole ones within x.
func collapse(x []byte) {
	if len(x) < hugePage {
		return
	}
	start := int(-uintptr(unsafe.Pointer(&x[0])) % hugePage)
	if n := (len(x) - start) &^ (hugePage - 1); n > 0 {
		_ = syscall.Madvise(x[start:start+n], madvCollapse)
	}
}
