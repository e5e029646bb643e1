package engine

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/learning-to-screen/l2s/llamacpp"
)

// fewest is the number of common tokens from which on a request continues a cached sequence: fewer are
// read in about the time that a copy takes.
const fewest = 16

// cache has the sequences of a model with their tokens: of requests under way, and of finished ones until
// their memory is needed. It is for the goroutine of the engine, but for now.
type cache struct {
	m         *llamacpp.Model
	sequences []*sequence
	most      int64 // bytes of finished requests, less than 0: no bound but cells
	cells     int   // tokens of all sequences together, at most
	turn      uint64
	now       atomic.Pointer[Cache]
}

// sequence is a sequence of the model.
type sequence struct {
	number int
	tokens []uint32 // that llama.cpp has, and those of the batch that is next
	busy   bool     // of a request under way
	used   uint64   // when a request last ended or began with it
	bytes  int64    // once it is finished
}

func newCache(m *llamacpp.Model, parallel int, most int64) *cache {
	c := &cache{m: m, most: most, cells: parallel * m.Context()}
	for i := range parallel {
		c.sequences = append(c.sequences, &sequence{number: i})
	}
	first, n := m.Kept()
	for i := range n {
		c.sequences = append(c.sequences, &sequence{number: first + i})
	}
	return c
}

// take gives a request a sequence, and returns its number and how many tokens of the prompt it has: the
// longest beginning that any sequence has, but not all, since the request needs the state after the
// last token. A finished sequence that has nothing else is continued, and others are copied and cut.
func (c *cache) take(prompt []uint32, fresh bool) (number, cached int) {
	c.turn++
	defer c.count()
	type start struct {
		of *sequence
		n  int
	}
	var starts []start
	for _, s := range c.sequences {
		if n := common(s.tokens, prompt[:len(prompt)-1]); n >= fewest && !fresh && c.most != 0 {
			starts = append(starts, start{s, n})
		}
	}
	slices.SortStableFunc(starts, func(a, b start) int {
		return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(len(a.of.tokens), len(b.of.tokens)))
	})
	for _, x := range starts {
		s := x.of
		if !c.m.Cuts(s.number, x.n) || s.busy && len(s.tokens) != c.m.Len(s.number) { // tokens of a batch that is next
			continue
		}
		if s.used = c.turn; s.busy || x.n < len(s.tokens) {
			to := c.free(s)
			if to == nil && s.busy {
				continue
			} else if to == nil { // it gives its own end away
				to = s
			} else if c.m.Copy(to.number, s.number) != nil {
				c.clear(to)
				continue
			}
			if c.m.Cut(to.number, x.n) != nil {
				if to != s {
					c.clear(to)
				}
				continue
			}
			to.tokens = append(to.tokens[:0], prompt[:x.n]...)
			s = to
		}
		s.busy, s.bytes = true, 0
		return s.number, x.n
	}
	s := c.free(nil)
	c.clear(s)
	s.busy = true
	return s.number, 0
}

// free returns an empty sequence, or the one of a finished request that was used least recently, which it
// empties; never the sequence but. Nil if there is none.
func (c *cache) free(but *sequence) *sequence {
	at := slices.IndexFunc(c.sequences, func(s *sequence) bool { return !s.busy && s != but && len(s.tokens) == 0 })
	if at >= 0 {
		return c.sequences[at]
	}
	return c.leastUsed(but)
}

// add adds tokens of the batch that is next.
func (c *cache) add(number int, tokens []uint32) {
	s := c.of(number)
	s.tokens = append(s.tokens, tokens...)
}

func (c *cache) of(number int) *sequence {
	return c.sequences[slices.IndexFunc(c.sequences, func(s *sequence) bool { return s.number == number })]
}

// forget notes that a sequence was emptied.
func (c *cache) forget(number int) {
	s := c.of(number)
	s.tokens = s.tokens[:0]
}

// leave ends the use of a sequence, which stays if it is whole and there is memory for it.
func (c *cache) leave(number int, whole bool) {
	s := c.of(number)
	c.turn++
	if s.busy, s.used = false, c.turn; !whole || c.most == 0 || len(s.tokens) != c.m.Len(number) {
		c.clear(s)
	}
	s.bytes = c.m.Bytes(number)
	for c.most > 0 && c.kept().Bytes > c.most {
		c.leastUsed(nil)
	}
	c.count()
}

func (c *cache) clear(s *sequence) {
	c.m.Clear(s.number)
	s.tokens, s.bytes = s.tokens[:0], 0
}

// room empties sequences of finished requests until the batch that is next has room. Sequences that
// share tokens count them each.
func (c *cache) room() {
	sum := 0
	for _, s := range c.sequences {
		sum += len(s.tokens)
	}
	for sum > c.cells {
		before := c.kept().Tokens
		if c.leastUsed(nil) == nil {
			break
		}
		sum -= before - c.kept().Tokens
	}
}

// leastUsed empties the sequence of a finished request that was used least recently, but not the sequence
// but. Nil if there is none.
func (c *cache) leastUsed(but *sequence) (found *sequence) {
	for _, s := range c.sequences {
		if !s.busy && s != but && len(s.tokens) > 0 && (found == nil || s.used < found.used) {
			found = s
		}
	}
	if found != nil {
		c.clear(found)
		c.count()
	}
	return found
}

// kept counts what is kept of finished requests.
func (c *cache) kept() (x Cache) {
	for _, s := range c.sequences {
		if !s.busy && len(s.tokens) > 0 {
			x.Sequences++
			x.Tokens += len(s.tokens)
			x.Bytes += s.bytes
		}
	}
	return x
}

func (c *cache) count() {
	x := c.kept()
	c.now.Store(&x)
}

// common is the number of equal tokens that two texts begin with.
func common(a, b []uint32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
