//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package mapfile

import (
	"os"
	"syscall"
	"unsafe"
)

func mapFile(f *os.File, size int) ([]byte, func([]byte) error, error) {
	data, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return readFile(f, size) // some file systems have no mapping
	}
	return data, syscall.Munmap, nil
}

// Forget takes the whole pages within mapped data out of the program's memory.
// They are read again from the file where they are looked at again.
func Forget(data []byte) {
	if pages := wholePages(data); len(pages) > 0 {
		forget(pages)
	}
}

func wholePages(data []byte) []byte {
	page := uintptr(os.Getpagesize())
	at := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	from := -at % page
	to := uintptr(len(data)) - (at+uintptr(len(data)))%page
	if uintptr(len(data)) < page || from >= to {
		return nil
	}
	return data[from:to]
}
