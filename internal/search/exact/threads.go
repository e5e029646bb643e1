package exact

import "github.com/learning-to-screen/l2s/internal/ground/parallel"

// minShared is the least number of bytes of a scan that several threads share: with fewer, nothing
// is left when a helper wakes up.
var minShared = 2 << 20 // tests change it

// mostThreads is the largest number of threads that a scan can use.
const mostThreads = 256

// team holds the threads of a layer.
type team struct {
	threads int
	all     func(work func(worker int)) // runs work on the threads that are free, if any
}

// SetThreads is l2s.Layer.SetThreads.
func (l *Layer) SetThreads(n int) {
	if n = min(n, mostThreads); n < 2 {
		l.team = nil
		return
	}
	l.LendThreads(n, parallel.NewTeam(n).Run)
}

// LendThreads is SetThreads for threads that the caller owns: all is called with a function, which
// it runs with the numbers 0 to n-1, at the same time on all free threads, and returns when all of
// these calls have returned. Searches of several goroutines call it at the same time. n is at most
// 256.
func (l *Layer) LendThreads(n int, all func(work func(worker int))) {
	if l.team = nil; n >= 2 {
		l.team = &team{min(n, mostThreads), all}
	}
}
