package timing

import (
	"syscall"
	"time"
)

// threadTime returns the CPU time of the calling thread.
func threadTime() (time.Duration, bool) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_THREAD, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err == nil
}
