package timing

import (
	"syscall"
	"time"
	"unsafe"
)

// threadTime returns the CPU time of the calling thread, to the nanosecond. The times of getrusage would be
// as of the last tick of the system, some milliseconds ago: as long as a block.
func threadTime() (time.Duration, bool) {
	const ofThread = 3 // CLOCK_THREAD_CPUTIME_ID
	var t syscall.Timespec
	_, _, e := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, ofThread, uintptr(unsafe.Pointer(&t)), 0)
	return time.Duration(t.Nano()), e == 0
}
