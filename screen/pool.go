package screen

import (
	"errors"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/learning-to-screen/l2s/softmax"
)

// Pool answers requests for any number of goroutines, and changes its model and its
// layer while they ask. Its methods give the answers of a [Searcher], bit for bit, and
// all goroutines may call them at once.
//
// A model with its layer is a generation. A query ends with the generation that it
// began with, and a query that begins after [Pool.Swap] has returned uses the new one.
//
// A query borrows a searcher, and no lock is held while it runs. A pool makes as many
// searchers as queries run at the same time, and keeps them: a query allocates nothing
// unless it makes a searcher, or a searcher grows as its type describes. (A sync.Pool
// would drop searchers in a garbage collection, and what they counted.)
type Pool struct {
	opts    []Option
	current atomic.Pointer[generation]
	audit   atomic.Pointer[Audit] // nil for none

	mu    sync.Mutex
	alive []*generation // the current one and those with queries under way
	gone  Stats         // of all others
}

// generation is a model with its layer, and the searchers over them.
type generation struct {
	number  uint64
	model   *Model
	layer   *softmax.Layer
	opts    []Option
	shelves [shelves]shelf
	inUse   atomic.Int64 // shelves that are open or have searchers out
	drained chan struct{}
}

// shelf holds searchers that no query uses. Each goroutine goes to one shelf first, so
// that goroutines seldom wait for each other and find a searcher whose scratch is in
// the cache of their core.
type shelf struct {
	mu     sync.Mutex
	free   []*Searcher
	out    int // searchers that will be brought to this shelf
	closed bool
	stats  Stats
	_      [64]byte // two shelves share no line of a cache
}

const (
	shelfBits = 5
	shelves   = 1 << shelfBits
)

// NewPool returns a pool with the model m over the layer l, the generation 1. Its
// searchers have the options. Errors are as from [NewSearcher].
func NewPool(m *Model, l *softmax.Layer, opts ...Option) (*Pool, error) {
	p := &Pool{opts: opts}
	g := p.newGeneration(m, l)
	if err := g.add(&g.shelves[0], 1); err != nil {
		return nil, err
	}
	g.number = 1
	p.alive = []*generation{g}
	p.current.Store(g)
	return p, nil
}

// Swap makes m and l the model and the layer of all queries that begin after it has
// returned. It makes as many searchers as the pool has, at least one, before any query
// uses them. The channel is closed when the last query with the old model and the
// old layer has ended. Then what they use can be released, such as a mapped head.
//
// Errors are as from [NewSearcher]. After an error the pool is as it was.
func (p *Pool) Swap(m *Model, l *softmax.Layer) (drained <-chan struct{}, err error) {
	g := p.newGeneration(m, l)
	before := p.current.Load()
	all := 0
	for i := range before.shelves {
		n := before.shelves[i].count()
		if all += n; i == shelves-1 && all == 0 {
			n = 1 // which checks m and l: all may have gone after errors
		}
		if err := g.add(&g.shelves[i], n); err != nil {
			return nil, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.current.Load() // not always the one before: another Swap may have come between
	g.number = old.number + 1
	p.alive = append(p.alive, g)
	p.current.Store(g)
	if a := p.audit.Load(); a != nil {
		a.begin(g.model)
	}
	for i := range old.shelves {
		if old.shelves[i].close() && old.inUse.Add(-1) == 0 {
			p.retire(old)
		}
	}
	return old.drained, nil
}

func (p *Pool) newGeneration(m *Model, l *softmax.Layer) *generation {
	g := &generation{model: m, layer: l, opts: p.opts, drained: make(chan struct{})}
	g.inUse.Store(shelves)
	return g
}

// add puts n new searchers on a shelf of a generation that no query uses yet.
func (g *generation) add(b *shelf, n int) error {
	for range n {
		s, err := NewSearcher(g.model, g.layer, g.opts...)
		if err != nil {
			return err
		}
		b.free = append(b.free, s)
	}
	return nil
}

// retire keeps the counts of a generation that no query uses any more. The caller
// holds p.mu.
func (p *Pool) retire(g *generation) {
	p.gone.add(g.stats())
	for i, a := range p.alive {
		if a == g {
			p.alive = append(p.alive[:i], p.alive[i+1:]...)
			break
		}
	}
	close(g.drained)
}

// Generation returns the number of the current generation: 1 at first, and one more
// after each Swap.
func (p *Pool) Generation() uint64 { return p.current.Load().number }

// Stats returns the counts of TopK, Search and SearchBatch since NewPool, over all
// generations. A query counts when it has ended, with all its numbers at once. The counts
// never fall: the difference of two calls is what happened between them.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	sum := p.gone
	for _, g := range p.alive {
		sum.add(g.stats())
	}
	return sum
}

func (g *generation) stats() (sum Stats) {
	for i := range g.shelves {
		b := &g.shelves[i]
		b.mu.Lock()
		sum.add(b.stats)
		b.mu.Unlock()
	}
	return sum
}

func (s *Stats) add(o Stats) {
	s.Queries += o.Queries
	s.Candidates += o.Candidates
	s.Routing += o.Routing
	s.Pairs += o.Pairs
	s.Unmet += o.Unmet
	s.Exact += o.Exact
	s.Lacking += o.Lacking
	s.Short += o.Short
}

// loan is a searcher that a query has, and where it goes afterwards.
type loan struct {
	*Searcher
	generation *generation
	shelf      *shelf
	sound      bool // the searcher, after the query
}

// borrow takes a searcher of the current generation. The caller gives it back.
func (p *Pool) borrow() (loan, error) {
	for {
		g := p.current.Load()
		b := &g.shelves[home()]
		s, open := b.take()
		if !open {
			continue // a Swap has stored another generation before it closed the shelf
		}
		l := loan{Searcher: s, generation: g, shelf: b}
		for i := 0; l.Searcher == nil && i < shelves; i++ {
			l.Searcher = g.shelves[i].pop()
		}
		if l.Searcher == nil {
			var err error
			if l.Searcher, err = NewSearcher(g.model, g.layer, g.opts...); err != nil {
				p.giveBack(&l)
				return loan{}, err
			}
		}
		l.watch = p.audit.Load()
		return l, nil
	}
}

// giveBack ends a loan. A searcher that is not sound is not used again.
func (p *Pool) giveBack(l *loan) {
	if l.shelf.put(l.Searcher, l.sound) && l.generation.inUse.Add(-1) == 0 {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.retire(l.generation)
	}
}

// home returns the shelf that the calling goroutine goes to first, by the address of
// its stack: goroutines have stacks of their own, which seldom move.
func home() int {
	var here byte
	stack := uint64(uintptr(unsafe.Pointer(&here))) >> 12
	return int(stack * 0x9e3779b97f4a7c15 >> (64 - shelfBits))
}

// take counts a searcher as out and returns it, nil if there is none. It does
// neither if the shelf is closed.
func (b *shelf) take() (s *Searcher, open bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, false
	}
	b.out++
	return b.last(), true
}

// pop returns a searcher for another shelf, nil if there is none.
func (b *shelf) pop() *Searcher {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last()
}

func (b *shelf) last() *Searcher {
	n := len(b.free)
	if n == 0 {
		return nil
	}
	s := b.free[n-1]
	b.free[n-1] = nil
	b.free = b.free[:n-1]
	return s
}

// put brings back a searcher that is out, or nil in its place, and counts what it did.
// It reports whether the shelf can be dropped: it is closed, and no searcher is out.
func (b *shelf) put(s *Searcher, keep bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.out--
	if s != nil {
		b.stats.add(s.stats)
		s.stats = Stats{}
		if keep && !b.closed {
			b.free = append(b.free, s)
		}
	}
	return b.closed && b.out == 0
}

// close lets no more searchers out, and reports whether no searcher is out.
func (b *shelf) close() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed, b.free = true, nil
	return b.out == 0
}

// count returns the number of searchers on the shelf and out.
func (b *shelf) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.free) + b.out
}

// Do lends f a searcher, for as long as f runs: for several queries of one generation,
// and for the methods of a Searcher that a Pool does not have. [Searcher.Model] tells
// the generations apart. The searcher's own Stats begin at 0. A channel of Swap waits
// for f, so f must not wait for the channel.
//
// Do returns the error of f. The searcher is not used again after a panic, or after an
// error that is neither softmax.ErrContext nor softmax.ErrRequest, such as a fault of a
// mapped head: its scratch may be in any state.
func (p *Pool) Do(f func(s *Searcher) error) error {
	l, err := p.borrow()
	if err != nil {
		return err
	}
	defer p.giveBack(&l)
	err = f(l.Searcher)
	l.sound = err == nil || errors.Is(err, softmax.ErrContext) || errors.Is(err, softmax.ErrRequest)
	return err
}

// TopK is [Searcher.TopK].
func (p *Pool) TopK(dst []softmax.Prediction, h []float32) (n int, err error) {
	a, err := p.Search(dst, h, softmax.Request{K: len(dst)})
	return a.Count, err
}

// Search is [Searcher.Search].
func (p *Pool) Search(dst []softmax.Prediction, h []float32, req softmax.Request) (a softmax.Answer, err error) {
	err = p.Do(func(s *Searcher) (err error) {
		a, err = s.Search(dst, h, req)
		return err
	})
	return a, err
}

// SearchBatch is [Searcher.SearchBatch]. One generation answers all contexts.
func (p *Pool) SearchBatch(dst []softmax.Prediction, answers []softmax.Answer, contexts []float32, req softmax.Request) error {
	return p.Do(func(s *Searcher) error { return s.SearchBatch(dst, answers, contexts, req) })
}

// LogProb is [Searcher.LogProb].
func (p *Pool) LogProb(h []float32, id uint32) (float64, error) { return p.LogProbAt(h, id, 1) }

// LogProbAt is [Searcher.LogProbAt].
func (p *Pool) LogProbAt(h []float32, id uint32, temperature float64) (x float64, err error) {
	err = p.Do(func(s *Searcher) (err error) {
		x, err = s.LogProbAt(h, id, temperature)
		return err
	})
	return x, err
}

// LogSum is [Searcher.LogSum].
func (p *Pool) LogSum(h []float32, temperature, confidence float64) (i Interval, err error) {
	err = p.Do(func(s *Searcher) (err error) {
		i, err = s.LogSum(h, temperature, confidence)
		return err
	})
	return i, err
}
