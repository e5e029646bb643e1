package exact

import (
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/learning-to-screen/l2s/internal/fault"
	"github.com/learning-to-screen/l2s/internal/kernels"
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

// threads returns the most threads of a search.
func (l *Layer) threads() int {
	if l.team == nil {
		return 1
	}
	return l.team.threads
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

// scan is the work of a search for all rows of a scope: their intervals for one context, by 4-bit
// codes or as the layer has them, or the survivors of each tile for all contexts.
type scan struct {
	coarse, tiles bool
	x             *prepared
	p             *scope
	lower, upper  []float32
	n, step       int // rows, and rows to take at a time
}

// run does the searcher's scan of n rows, each of the given bytes, on the layer's threads if it is
// large.
func (s *Searcher) run(n, bytes int) {
	s.scan.n = n
	c := s.layer.team
	alone := c == nil || n*bytes < minShared
	switch {
	case s.scan.tiles:
		s.scan.step = s.tile(n)
	case alone:
		s.scan.step = n // no cuts but the kernel's
	default:
		s.scan.step = max(partBytes(n*bytes)/bytes/kernels.PanelRows*kernels.PanelRows, kernels.PanelRows)
	}
	s.next.Store(0)
	s.failed.Store(false)
	if alone {
		s.takeAll(0)
	} else {
		if err := s.scan.p.check(s.layer.Labels()); err != nil { // a wrong id is a panic here
			panic(err.Error())
		}
		// The first rows come before others look: a vector computes its missing parts then, which
		// only one thread may.
		first := min(n, kernels.PanelRows)
		s.rows(s.workerOf(0), 0, first)
		s.next.Store(int64(first))
		c.all(s.share)
		s.takeAll(0) // the rows that nobody took
	}
	if s.failed.Load() {
		// A page that another thread could not read faults here, where the caller may expect it.
		w := s.workerOf(0)
		for at := 0; at < n; at += s.scan.step {
			s.rows(w, at, min(at+s.scan.step, n))
		}
	}
	s.scan = scan{}
}

// errGone ends the work of a thread whose rows cannot be read any more.
var errGone = errors.New("softmax: the rows are gone")

// takeShare is takeAll for a thread that others help.
func (s *Searcher) takeShare(worker int) {
	// Rows may be in a mapped file that was cut, and nobody catches a fault of a helper.
	if fault.Guard(func() error { s.takeAll(worker); return nil }, func() error { return errGone }) != nil {
		s.failed.Store(true)
	}
}

// workerOf returns the thread's worker for a search by tiles, nil for other scans.
func (s *Searcher) workerOf(number int) *worker {
	if !s.scan.tiles {
		return nil
	}
	return &s.workers[number]
}

// takeAll scans rows until all are taken.
func (s *Searcher) takeAll(number int) {
	w := s.workerOf(number)
	for n, step := s.scan.n, s.scan.step; ; {
		end := int(s.next.Add(int64(step)))
		if end-step >= n {
			return
		}
		s.rows(w, end-step, min(end, n))
	}
}

// rows scans the rows from first on, before end.
func (s *Searcher) rows(w *worker, first, end int) {
	c := &s.scan
	switch {
	case c.tiles:
		w.take(s, c.p, first, end-first)
	case c.coarse:
		part := s.layer.coarse.Part(first, end)
		part.Bounds(c.lower[first:end], c.upper[first:end], c.x.vecs[0])
	default:
		s.layer.bounds(c.lower[first:end], c.upper[first:end], c.x, c.p, first, end-first)
	}
}
