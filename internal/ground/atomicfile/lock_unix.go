//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package atomicfile

import (
	"os"
	"syscall"
)

// locks reports whether the system has locks. asItIs opens a file without waiting, whatever its
// kind, and follows no link.
const (
	locks  = true
	asItIs = syscall.O_NOFOLLOW | syscall.O_NONBLOCK
)

// lock takes the lock of an open file, and reports whether nobody else has it. The
// system gives it up when the last process that has it ends or closes the file.
// If a file system has no locks it returns an error.
func lock(f *os.File) (taken bool, err error) {
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == syscall.EWOULDBLOCK {
		return false, nil
	}
	return err == nil, err
}

// again returns a duplicate of an open file: the lock is kept until both are closed.
func again(f *os.File) (*os.File, error) {
	syscall.ForkLock.RLock() // no other process is to have it
	defer syscall.ForkLock.RUnlock()
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		return nil, err
	}
	syscall.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), f.Name()), nil
}
