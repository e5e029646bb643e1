package parallel

import (
	"runtime"
	"sync/atomic"
	"time"
)

// fewLooks is the number of times that the caller checks for helpers that are still at work, some
// microseconds in all, before it sleeps between two looks.
const fewLooks = 100

// Team has parked goroutines, helpers, for work that is too short to start some. They end when the
// team is unreachable.
type Team struct{ *shared }

// NewTeam returns a team of n threads, the caller's among them: at least 1.
func NewTeam(n int) *Team {
	c := &shared{wake: make(chan struct{}, n-1)}
	for i := range n - 1 {
		go c.help(i + 1)
	}
	t := &Team{c}
	runtime.AddCleanup(t, func(wake chan struct{}) { close(wake) }, c.wake)
	return t
}

// Run calls work on this thread, as number 0, and on those helpers, numbers 1 to n-1, that wake up
// before it ends. It returns when all of these calls have returned. If the helpers are busy it does
// nothing. Nothing may fail in work of a helper.
func (t *Team) Run(work func(worker int)) {
	t.run(work)
	runtime.KeepAlive(t)
}

// shared is work that helpers take part in. A thread takes the next piece that nobody has taken, so
// a helper that wakes up late, or shares its core with others, delays nobody.
type shared struct {
	wake   chan struct{}
	busy   atomic.Bool  // somebody's work is under way
	open   atomic.Bool  // and may be looked at
	inside atomic.Int32 // helpers that may be looking at it
	work   func(worker int)
}

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
