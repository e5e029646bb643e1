//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package atomicfile

import (
	"os"
	"syscall"
)

// lock takes the lock of an open file, and reports whether nobody else has it. The
// system gives it up when the last process that has it ends or closes the file.
// If a file system has no locks it returns an error.
func lock(f *os.File) (taken bool, err error) {
	switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err {
	case nil:
		return true, nil
	case syscall.EWOULDBLOCK:
		return false, nil
	default:
		return false, err
	}
}

// openLeft opens what may be a temporary file that a process has left. It waits for
// nothing and follows no link.
func openLeft(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
}

// openLock opens the file of a lock, which is made if it is not there. It waits for
// nothing and follows no link.
func openLock(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o666)
}
