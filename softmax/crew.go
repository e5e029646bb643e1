package softmax

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/learning-to-screen/l2s/kernels"
)

// minShared is the size of the codes of a scan that several threads share: of less, nothing
// is left when a helper wakes up.
var minShared = 2 << 20 // tests change it

const (
	// shareBytes is the size of the codes that a thread takes at a time.
	shareBytes = 128 << 10
	// firstRows are those that the caller scans before others do.
	firstRows = kernels.PanelRows
	// mostThreads are as many as a scan can use.
	mostThreads = 256
	// fewLooks is how often the caller looks for helpers that have rows yet, some microseconds in
	// all, before it sleeps between two looks.
	fewLooks = 100
)

// SetThreads has exact searches of one context run on up to n threads, the caller's among them and 256 at
// most, over large layers. A layer has one thread until then. Answers are the same. The others are parked
// between searches, and serve one search at a time: a goroutine that finds them busy searches alone. It must
// not be called while the layer is searched.
func (l *Layer) SetThreads(n int) {
	if n < 2 {
		l.crew = nil
		return
	}
	n = min(n, mostThreads)
	c := &shared{wake: make(chan struct{}, n-1)}
	for range n - 1 {
		go c.help()
	}
	l.crew = &crew{c}
	runtime.AddCleanup(l.crew, func(wake chan struct{}) { close(wake) }, c.wake)
}

// crew is what a layer has of its helpers, which go when it is unreachable.
type crew struct{ *shared }

// shared is a scan that helpers take part in. A thread takes the next rows that nobody has
// taken, so a helper that wakes up late, or shares its core with others, delays nobody.
type shared struct {
	wake   chan struct{}
	busy   atomic.Bool  // somebody's scan is under way
	open   atomic.Bool  // and may be looked at
	inside atomic.Int32 // helpers that may be looking at it
	next   atomic.Int64 // the first row that nobody has taken
	scan   scan
}

// scan computes intervals of all rows by 4-bit codes, or by 8-bit codes of all or listed rows.
type scan struct {
	coarse       *kernels.Int4Rows
	codes        *kernels.Int8Rows // nil with 4-bit codes
	ids          []uint32          // nil for all rows
	vec          *kernels.Int8Vector
	lower, upper []float32
	step         int // rows to take at a time
}

func (l *Layer) run(s scan) {
	n, stride := len(s.lower), kernels.Int8Stride(l.Dim())
	if s.codes == nil {
		stride = kernels.Int4Stride(l.Dim())
	}
	c := l.crew
	if c == nil || n*stride < minShared || !c.busy.CompareAndSwap(false, true) {
		s.rows(0, n)
		return
	}
	s.step = max(shareBytes/stride&^(firstRows-1), firstRows)
	s.rows(0, min(n, firstRows)) // and the vector makes what it lacks, which only one thread may
	c.scan = s
	c.next.Store(firstRows)
	c.open.Store(true)
	for range cap(c.wake) {
		select {
		case c.wake <- struct{}{}:
		default: // it has not taken the last one yet
		}
	}
	c.take()
	c.open.Store(false)
	for i := 0; c.inside.Load() > 0; i++ {
		if i < fewLooks {
			runtime.Gosched()
		} else {
			time.Sleep(10 * time.Microsecond) // the helper may wait for this core
		}
	}
	c.scan = scan{}
	c.busy.Store(false)
}

func (s *scan) rows(first, end int) {
	lower, upper := s.lower[first:end], s.upper[first:end]
	switch {
	case s.ids != nil:
		s.codes.GatherBounds(lower, upper, s.ids[first:end], s.vec)
	case s.codes != nil:
		part := s.codes.Part(first, end)
		part.Bounds(lower, upper, s.vec)
	default:
		part := s.coarse.Part(first, end)
		part.Bounds(lower, upper, s.vec)
	}
}

// take scans rows until all are taken.
func (c *shared) take() {
	n, step := len(c.scan.lower), c.scan.step
	for {
		end := int(c.next.Add(int64(step)))
		if end-step >= n {
			return
		}
		c.scan.rows(end-step, min(end, n))
	}
}

// help is the life of a helper. Who closes a scan waits until nobody is inside, and who is
// inside looks whether it is open before all else.
func (c *shared) help() {
	for range c.wake {
		c.inside.Add(1)
		if c.open.Load() {
			c.take()
		}
		c.inside.Add(-1)
	}
}
