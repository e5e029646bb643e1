//go:build unix

package main

import (
	"io"
	"os"
	"syscall"
)

// isClosed reports whether the program was started with this standard output closed.
// The Go runtime opens the null device in its place, for reading and writing, so that
// no file gets its number; a shell that is told to write to the null device opens it
// for writing alone. A caller that opens it for both, as subprocess.DEVNULL of Python
// does, cannot be told from a closed output.
func isClosed(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	open, err := file.Stat()
	if err != nil {
		return true
	}
	null, err := os.Stat(os.DevNull)
	if err != nil || !os.SameFile(open, null) {
		return false
	}
	mode, _, failed := syscall.Syscall(syscall.SYS_FCNTL, file.Fd(), syscall.F_GETFL, 0)
	return failed == 0 && mode&syscall.O_ACCMODE == syscall.O_RDWR
}
