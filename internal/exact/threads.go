package exact

import (
	"runtime"
	"sync/atomic"
	"time"
)

// minShared is the least number of bytes of a scan that several threads share: with fewer, nothing
// is left when a helper wakes up.
var minShared = 2 << 20 // tests change it

const (
	// mostThreads is the largest number of threads that a scan can use.
	mostThreads = 256
	// fewLooks is the number of times that the caller checks for helpers that still have rows, some
	// microseconds in all, before it sleeps between two looks.
	fewLooks = 100
)

// SetThreads is softmax.Layer.SetThreads.
func (l *Layer) SetThreads(n int) {
	if n < 2 {
		l.team = nil
		return
	}
	n = min(n, mostThreads)
	c := &shared{wake: make(chan struct{}, n-1)}
	for i := range n - 1 {
		go c.help(i + 1)
	}
	l.team = &team{n, c.run}
	runtime.AddCleanup(l.team, func(wake chan struct{}) { close(wake) }, c.wake)
}

// LendThreads is SetThreads for threads that the caller owns: all is called with a function, which
// it runs with the numbers 0 to n-1, at the same time on all free threads, and returns when all of
// these calls have returned. Searches of several goroutines call it at the same time. n is at most
// 256.
func (l *Layer) LendThreads(n int, all func(work func(worker int))) {
	if n < 2 {
		l.team = nil
		return
	}
	l.team = &team{min(n, mostThreads), all}
}

// team holds the threads of a layer, which end when it is unreachable.
type team struct {
	threads int
	all     func(work func(worker int)) // runs work on the threads that are free, if any
}

// shared is work that helpers take part in. A thread takes the next rows that nobody has
// taken, so a helper that wakes up late, or shares its core with others, delays nobody.
type shared struct {
	wake   chan struct{}
	busy   atomic.Bool  // somebody's work is under way
	open   atomic.Bool  // and may be looked at
	inside atomic.Int32 // helpers that may be looking at it
	work   func(worker int)
}

// run calls work on this thread, as number 0, and on those helpers that wake up before it ends. If
// they are busy it does nothing.
func (c *shared) run(work func(worker int)) {
	if !c.busy.CompareAndSwap(false, true) {
		return
	}
	c.work = work
	c.open.Store(true)
	for range cap(c.wake) {
		select {
		case c.wake <- struct{}{}:
		default: // it has not taken the last one yet
		}
	}
	defer func() {
		c.open.Store(false)
		for i := 0; c.inside.Load() > 0; i++ {
			if i < fewLooks {
				runtime.Gosched()
			} else {
				time.Sleep(10 * time.Microsecond) // the helper may wait for this core
			}
		}
		c.work = nil
		c.busy.Store(false)
	}()
	work(0)
}

// help is the loop of a helper. The thread that closes the work waits until no helper is inside,
// and a helper inside first checks whether the work is open.
func (c *shared) help(worker int) {
	for range c.wake {
		c.inside.Add(1)
		if c.open.Load() {
			c.work(worker)
		}
		c.inside.Add(-1)
	}
}
