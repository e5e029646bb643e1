//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package tensorfile

import (
	"os"
	"syscall"
)

func mapFile(f *os.File, size int) (*memory, error) {
	data, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return readFile(f, size) // some file systems have no mapping
	}
	return &memory{data: data, unmap: syscall.Munmap}, nil
}
