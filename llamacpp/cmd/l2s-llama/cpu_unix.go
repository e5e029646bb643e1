//go:build unix

package main

import (
	"syscall"
	"time"
)

// cpuTime is the time that all threads of the process have had a CPU, 0 if it is not known.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
