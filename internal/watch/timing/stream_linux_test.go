package timing

import (
	"os"
	"syscall"
	"testing"
	"unsafe"

	"github.com/learning-to-screen/l2s/internal/ground/simd"
)

// ReadMemory reads each page, and no byte behind the last whole line.
func TestReadReadsTheWholeLines(t *testing.T) {
	page := os.Getpagesize()
	const pages = 5
	for _, l := range simd.Available() {
		t.Run(l.String(), func(t *testing.T) {
			defer simd.Set(l)()
			memory, err := syscall.Mmap(-1, 0, (pages+1)*page, syscall.PROT_READ, syscall.MAP_ANON|syscall.MAP_PRIVATE)
			if err != nil {
				t.Skip(err)
			}
			defer func() { _ = syscall.Munmap(memory) }()
			if err := syscall.Mprotect(memory[pages*page:], syscall.PROT_NONE); err != nil {
				t.Skip(err)
			}
			whole := memory[:pages*page]
			resident := func() (n int) {
				var in [pages]byte
				if _, _, e := syscall.Syscall(syscall.SYS_MINCORE, uintptr(unsafe.Pointer(&whole[0])), uintptr(len(whole)), uintptr(unsafe.Pointer(&in))); e != 0 {
					t.Skip(e)
				}
				for _, x := range in {
					n += int(x & 1)
				}
				return n
			}
			if n := resident(); n != 0 {
				t.Skipf("the system has %d pages in memory that nobody has read", n)
			}
			if ReadMemory(whole); resident() != pages {
				t.Errorf("found %d pages that were read, expected %d", resident(), pages)
			}
			for n := range 300 {
				ReadMemory(whole[len(whole)-n:]) // a read behind it would end the program
			}
		})
	}
}
