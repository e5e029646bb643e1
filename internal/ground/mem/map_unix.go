//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package mem

import (
	"os"
	"syscall"
)

// mapFile returns nil where there is no mapping, as on some file systems.
func mapFile(f *os.File, size int) ([]byte, func([]byte) error) {
	data, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil, nil
	}
	return data, syscall.Munmap
}
