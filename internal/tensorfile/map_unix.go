//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package tensorfile

import (
	"os"
	"syscall"
	"unsafe"
)

func mapFile(f *os.File, size int) (*memory, error) {
	data, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return readFile(f, size) // some file systems have no mapping
	}
	return &memory{data: data, unmap: syscall.Munmap}, nil
}

// forget takes the whole pages within mapped data out of the program's memory.
// They are read again from the file where they are looked at again.
func forget(data []byte) {
	page := uintptr(os.Getpagesize())
	at := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	from := -at % page
	if to := uintptr(len(data)) - (at+uintptr(len(data)))%page; uintptr(len(data)) >= page && from < to {
		_ = advise(data[from:to])
	}
}
