//go:build unix

package main

import (
	"os"
	"strconv"
	"syscall"
)

// giveWay gives this program the lowest priority. On Linux each thread has its own, which it hands down to the
// threads that it starts.
func giveWay() {
	for range 3 { // a thread may start another one meanwhile
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, 19)
			return
		}
		for _, task := range tasks {
			if id, err := strconv.Atoi(task.Name()); err == nil {
				_ = syscall.Setpriority(syscall.PRIO_PROCESS, id, 19)
			}
		}
	}
}

func interrupt(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
