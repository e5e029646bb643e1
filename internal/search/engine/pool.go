package engine

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/screening"
)

// Pool is l2s.Pool.
type Pool struct {
	options Options // with the pool among the observers, for its watch
	current atomic.Pointer[generation]
	watch   atomic.Pointer[Watcher] // nil for none
	mu      sync.Mutex              // one Swap at a time, and none while a watch begins
	shelves [shelves]shelf
}

// generation is a layer with its index.
type generation struct {
	layer   *Layer
	index   *Index
	inUse   atomic.Int64 // 1 as long as it is current, plus 1 per searcher on loan
	drained chan struct{}
}

// shelf holds searchers that no query uses. Each goroutine uses one shelf first, so that goroutines
// rarely wait, and find a searcher whose scratch is in the cache of their core.
type shelf struct {
	mu    sync.Mutex
	of    *generation
	free  []*Searcher
	out   int // searchers of the generation that were taken off this shelf and are in use
	stats Stats
	_     [64]byte // two shelves share no line of a cache
}

const (
	shelfBits = 5
	shelves   = 1 << shelfBits
)

// NewPool is l2s.NewPool.
func NewPool(l *Layer, x *Index, o Options) (*Pool, error) {
	p := &Pool{options: o}
	p.options.Observers = append(slices.Clip(o.Observers), (*relay)(p))
	p.current.Store(&generation{}) // which no query uses
	if _, err := p.Swap(l, x); err != nil {
		return nil, err
	}
	return p, nil
}

// Swap is l2s.Pool.Swap.
func (p *Pool) Swap(l *Layer, x *Index) (drained <-chan struct{}, err error) {
	made := make([]*Searcher, max(p.count(), 1)) // one checks l and x: all may have gone after errors
	for i := range made {
		if made[i], err = p.searcher(l, x); err != nil {
			return nil, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.current.Load()
	g := &generation{layer: l, index: x, drained: make(chan struct{})}
	g.inUse.Store(1)
	p.current.Store(g)
	if w := p.watch.Load(); w != nil {
		(*w).Began(x)
	}
	p.lock() // or a query that finds some shelves empty would make a searcher too many
	for i := range p.shelves {
		b := &p.shelves[i]
		old.inUse.Add(int64(b.out)) // plus the searchers on loan
		clear(b.free)
		b.of, b.free, b.out = g, b.free[:0], 0
	}
	for i, s := range made {
		b := &p.shelves[i%shelves]
		b.free = append(b.free, s)
	}
	p.unlock()
	old.release()
	return old.drained, nil
}

// searcher makes a searcher that the watcher of the pool observes.
func (p *Pool) searcher(l *Layer, x *Index) (*Searcher, error) {
	s, err := NewSearcher(l, x, p.options)
	if err != nil {
		return nil, err
	}
	s.watch = &p.watch
	return s, nil
}

func (p *Pool) lock() {
	for i := range p.shelves {
		p.shelves[i].mu.Lock()
	}
}

func (p *Pool) unlock() {
	for i := range p.shelves {
		p.shelves[i].mu.Unlock()
	}
}

func (g *generation) release() {
	if g.inUse.Add(-1) == 0 {
		close(g.drained)
	}
}

// Watcher observes the queries of a pool.
type Watcher interface {
	screening.Observer // of queries by a screen
	// Previewed is called after a query by a preview that was not to be answered exactly, with its
	// context, which is the caller's, the step that it was answered by, and whether the exact layer
	// gave the answer.
	Previewed(x *Index, h []float32, step int, exact bool)
	// Began is called when an index begins to answer, nil for the exact search, and at the start of
	// the watch with the one that answers.
	Began(x *Index)
}

// relay is a pool as the observer of its searchers: its watcher takes part through it.
type relay Pool

func (r *relay) Before(q *exact.Query) screening.Wish {
	if w := r.watch.Load(); w != nil {
		return (*w).Before(q)
	}
	return 0
}

func (r *relay) After(v *screening.View) error {
	if w := r.watch.Load(); w != nil {
		return (*w).After(v)
	}
	return nil
}

// Watch lets w observe the queries that begin after it has returned, and returns the watcher whose
// place it takes, nil for none.
func (p *Pool) Watch(w Watcher) (earlier Watcher) {
	p.mu.Lock() // no Swap
	defer p.mu.Unlock()
	w.Began(p.current.Load().index)
	if old := p.watch.Swap(&w); old != nil {
		earlier = *old
	}
	return earlier
}

// Unwatch ends the watch of w, unless another one has its place.
func (p *Pool) Unwatch(w Watcher) {
	if at := p.watch.Load(); at != nil && *at == w {
		p.watch.CompareAndSwap(at, nil)
	}
}

// Stats is l2s.Pool.Stats.
func (p *Pool) Stats() (sum Stats) {
	p.lock()
	defer p.unlock()
	for i := range p.shelves {
		sum.add(p.shelves[i].stats)
	}
	return sum
}

// loan is a searcher that a query has.
type loan struct {
	*Searcher
	of    *generation
	from  *shelf // which counts it
	home  *shelf // where it goes afterwards
	sound bool   // the searcher, after the query
}

// borrow takes a searcher of the current generation. The caller gives it back.
func (p *Pool) borrow() (l loan, err error) {
	first := home()
	l.home = &p.shelves[first]
	for i := 0; i < shelves && l.Searcher == nil; i++ {
		l.from = &p.shelves[(first+i)%shelves]
		l.from.mu.Lock()
		l.take()
		l.from.mu.Unlock()
	}
	if l.Searcher == nil {
		p.lock() // to look at all shelves at one time: one that came back to a shelf after the look at it is not missed
		for i := 0; i < shelves && l.Searcher == nil; i++ {
			l.from = &p.shelves[(first+i)%shelves]
			l.take()
		}
		if l.Searcher == nil {
			l.from = l.home
			l.of = l.home.of
			l.home.out++
		}
		p.unlock()
	}
	if l.Searcher == nil {
		if l.Searcher, err = p.searcher(l.of.layer, l.of.index); err != nil {
			l.giveBack()
			return loan{}, err
		}
	}
	return l, nil
}

// home returns the first shelf of the calling goroutine, by the address of its stack: each
// goroutine has its own stack, which rarely moves.
func home() int {
	var here byte
	stack := uint64(uintptr(unsafe.Pointer(&here))) >> 12
	return int(stack * 0x9e3779b97f4a7c15 >> (64 - shelfBits))
}

// take takes a searcher off the loan's shelf and counts it as on loan, unless there is none. The
// caller has the lock.
func (l *loan) take() {
	b := l.from
	if n := len(b.free); n > 0 {
		l.Searcher, l.of, b.free[n-1] = b.free[n-1], b.of, nil
		b.free = b.free[:n-1]
		b.out++
	}
}

// giveBack ends a loan, of a searcher or nil in its place, and adds the searcher's counts. A
// searcher that is not sound, or of an old generation, is not used again.
func (l *loan) giveBack() {
	first, second := l.from, l.home
	if uintptr(unsafe.Pointer(first)) > uintptr(unsafe.Pointer(second)) { // as [Pool.lock] goes through them
		first, second = second, first
	}
	first.mu.Lock()
	defer first.mu.Unlock()
	if second != first {
		second.mu.Lock()
		defer second.mu.Unlock()
	}
	if l.Searcher != nil {
		l.from.stats.add(l.takeStats())
	}
	if l.from.of != l.of {
		l.of.release()
		return
	}
	l.from.out--
	if l.sound {
		l.home.free = append(l.home.free, l.Searcher)
	}
}

// count returns the number of searchers on the shelves and out, at one time.
func (p *Pool) count() (n int) {
	p.lock()
	defer p.unlock()
	for i := range p.shelves {
		n += len(p.shelves[i].free) + p.shelves[i].out
	}
	return n
}

// Do is l2s.Pool.Do.
func (p *Pool) Do(f func(s *Searcher) error) error {
	l, err := p.borrow()
	if err != nil {
		return err
	}
	defer l.giveBack()
	err = f(l.Searcher)
	l.sound = err == nil || errors.Is(err, exact.ErrContext) || errors.Is(err, exact.ErrRequest)
	return err
}
