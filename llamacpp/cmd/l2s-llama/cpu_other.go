//go:build !unix

package main

import "time"

// cpuTime is the time that all threads of the process have had a CPU, 0 if it is not known.
func cpuTime() time.Duration { return 0 }
