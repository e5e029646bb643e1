//go:build !linux

package timing

import "time"

// threadTime would return the CPU time of the calling thread: not all systems tell it.
func threadTime() (time.Duration, bool) { return 0, false }
