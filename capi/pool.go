package main

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/bitset"
)

// pool is a pool with the layers that its searches may read.
type pool struct {
	*l2s.Pool
	serving atomic.Pointer[serving]
	swaps   sync.Mutex // one swap at a time

	mu      sync.Mutex
	scratch []*scratch // that no search uses
}

// serving are the layers that searches may read: one, or two while a swap is under way, so that a
// search that is given either may read it.
type serving struct{ layers [2]*layer }

func newPool(l *layer, x *index, o l2s.Options) (*pool, error) {
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer l.leave()
	in, err := l2s.NewPool(l.Layer, x.of(), o)
	if err != nil {
		return nil, err
	}
	p := &pool{Pool: in}
	p.serving.Store(&serving{[2]*layer{l, nil}})
	return p, nil
}

// of returns the index, nil for none.
func (x *index) of() *l2s.Index {
	if x == nil {
		return nil
	}
	return x.Index
}

func (p *pool) swap(l *layer, x *index) error {
	p.swaps.Lock()
	defer p.swaps.Unlock()
	if err := l.enter(); err != nil {
		return err
	}
	defer l.leave()
	old := p.serving.Load()
	if l == old.layers[0] {
		_, err := p.Swap(l.Layer, x.of())
		return err
	}
	p.serving.Store(&serving{[2]*layer{old.layers[0], l}})
	if _, err := p.Swap(l.Layer, x.of()); err != nil {
		p.serving.Store(old)
		return err
	}
	p.serving.Store(&serving{[2]*layer{l, nil}})
	return nil
}

// do lends f a searcher of the pool, whose layer is not closed as long as f runs, and scratch.
func (p *pool) do(f func(s *l2s.Searcher, l *layer, t *scratch) error) error {
	t := p.take()
	defer p.give(t)
	for {
		if again, err := p.try(f, t); !again {
			return err
		}
		runtime.Gosched()
	}
}

// try reports that a swap has come between, after which f has not run.
func (p *pool) try(f func(s *l2s.Searcher, l *layer, t *scratch) error, t *scratch) (again bool, err error) {
	entered := 0
	now := p.serving.Load()
	defer now.leave(&entered) // one defer for both: a loop of them would be memory for each search
	for ; entered < len(now.layers) && now.layers[entered] != nil; entered++ {
		if err := now.layers[entered].enter(); err != nil {
			// It may have been closed after a swap to another one; and while a swap is under way nobody knows
			// which of the two a searcher would read.
			return now.layers[1] != nil || p.serving.Load() != now, err
		}
	}
	err = p.Do(func(s *l2s.Searcher) error {
		// The searcher is of a layer of now if now is still valid: a swap stores its layers before it gives
		// any search the new one, and afterwards before it returns.
		if again = p.serving.Load() != now; again {
			return nil
		}
		return f(s, now.layers[0], t)
	})
	return again, err
}

// leave leaves the first n layers.
func (s *serving) leave(n *int) {
	for _, l := range s.layers[:*n] {
		l.leave()
	}
}

// scratch is what a search needs besides its searcher. It grows to the largest search.
type scratch struct {
	contexts        []float32
	top             []l2s.Prediction
	answers         []l2s.Answer
	among, also     []uint32
	allowed, banned *bitset.Set
	biases          []l2s.Bias
	request         l2s.Request
}

// kept bounds what a scratch keeps for the next search, in predictions and contexts' numbers.
const kept = 1 << 22

func (p *pool) take() *scratch {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.scratch); n > 0 {
		t := p.scratch[n-1]
		p.scratch = p.scratch[:n-1]
		return t
	}
	return &scratch{}
}

func (p *pool) give(t *scratch) {
	t.request = l2s.Request{}
	if cap(t.top) > kept || cap(t.contexts) > kept || cap(t.among) > kept || cap(t.also) > kept {
		return
	}
	p.mu.Lock()
	p.scratch = append(p.scratch, t)
	p.mu.Unlock()
}

// grow returns n elements of *s, whose memory grows, and is never nil.
func grow[T any](s *[]T, n int) []T {
	if *s == nil || cap(*s) < n {
		*s = make([]T, n)
	}
	*s = (*s)[:n]
	return *s
}

// answer is l2s_answer.
type answer struct {
	count  uint64
	logSum float64
	exact  int32
}

// none is the id of a row behind its answer.
const none = -1

func (p *pool) topK(h []float32, ids []int64, logits []float64) error {
	return p.do(func(s *l2s.Searcher, _ *layer, t *scratch) error {
		top := grow(&t.top, len(ids))
		n, err := s.TopK(top, h)
		if err == nil {
			write(ids, logits, top, n)
		}
		return err
	})
}

// write writes the first n predictions, and none for the others.
func write(ids []int64, logits []float64, top []l2s.Prediction, n int) {
	for i, x := range top[:n] {
		ids[i], logits[i] = int64(x.ID), x.Logit
	}
	for i := n; i < len(ids); i++ {
		ids[i], logits[i] = none, math.Inf(-1)
	}
}

// search answers a request, which r completes in the scratch, about all contexts.
func (p *pool) search(contexts *matrix, k int, r *request, ids []int64, logits []float64, answers []answer) error {
	return p.do(func(s *l2s.Searcher, l *layer, t *scratch) error {
		h, err := contexts.contexts("contexts", l.Dim(), &t.contexts)
		if err != nil {
			return err
		}
		if err := r.fill(t, l.Labels()); err != nil {
			return err
		}
		if k > l.Labels() { // before the memory of the answer is made
			return wrongRequest("k: found %d, expected at most %d, the labels", k, l.Labels())
		}
		n := contexts.rows
		top, got := grow(&t.top, n*k), grow(&t.answers, n)
		switch n {
		case 0: // nothing is asked, and the request is right if it fits no context either
			return nil
		case 1:
			got[0], err = s.Search(top, h, t.request)
		default:
			err = s.SearchBatch(top, got, h, t.request)
		}
		if err != nil {
			return err
		}
		for i, a := range got {
			if ids != nil {
				write(ids[i*k:][:k], logits[i*k:][:k], top[i*k:][:k], a.Count)
			}
			if answers != nil {
				answers[i] = answer{uint64(a.Count), a.LogSum, 0}
				if a.Exact {
					answers[i].exact = 1
				}
			}
		}
		return nil
	})
}

// each calls f with every context and its number.
func (p *pool) each(contexts *matrix, f func(s *l2s.Searcher, h []float32, i int, t *scratch) error) error {
	return p.do(func(s *l2s.Searcher, l *layer, t *scratch) error {
		h, err := contexts.contexts("contexts", l.Dim(), &t.contexts)
		if err != nil {
			return err
		}
		d := l.Dim()
		for i := range contexts.rows {
			if err := f(s, h[i*d:][:d], i, t); err != nil {
				if contexts.rows > 1 {
					err = fmt.Errorf("row %d: %w", i, err)
				}
				return err
			}
		}
		return nil
	})
}

func (p *pool) logits(contexts *matrix, ids []int64, logits []float64) error {
	return p.each(contexts, func(s *l2s.Searcher, h []float32, i int, t *scratch) error {
		if i == 0 {
			if err := narrow(&t.among, ids, "ids"); err != nil {
				return err
			}
		}
		return s.Logits(logits[i*len(ids):][:len(ids)], h, l2s.Only(t.among))
	})
}

func (p *pool) logProbs(contexts *matrix, ids []int64, temperature float64, out []float64) error {
	return p.each(contexts, func(s *l2s.Searcher, h []float32, i int, t *scratch) error {
		if err := narrow(&t.among, ids[i:i+1], "ids"); err != nil {
			return err
		}
		x, err := s.LogProb(h, t.among[0], temperature)
		out[i] = x
		return err
	})
}

func (p *pool) logSums(contexts *matrix, temperature, confidence float64, out, low, high []float64) error {
	return p.each(contexts, func(s *l2s.Searcher, h []float32, i int, _ *scratch) error {
		x, err := s.LogSum(h, temperature, confidence)
		out[i] = x.Log
		if low != nil {
			low[i] = x.Low
		}
		if high != nil {
			high[i] = x.High
		}
		return err
	})
}

// narrow writes ids to *dst as labels have them.
func narrow(dst *[]uint32, ids []int64, what string) error {
	to := grow(dst, len(ids))
	for i, id := range ids {
		if id < 0 || id > math.MaxUint32 {
			return wrongRequest("%s[%d]: found %d, expected a label", what, i, id)
		}
		to[i] = uint32(id)
	}
	return nil
}

// labels is l2s_labels: neither ids nor bits is no set.
type labels struct {
	ids  []int64 // not nil if there is a list
	bits []byte  // not nil if there are bits
}

// set makes *s the set, and returns it; nil for none.
func (x *labels) set(s **bitset.Set, total int, what string) (*bitset.Set, error) {
	if x.ids == nil && x.bits == nil {
		return nil, nil
	}
	if *s == nil || (*s).Len() != total {
		*s = bitset.New(total)
	}
	if x.bits != nil {
		if want := (total + 7) / 8; len(x.bits) != want {
			return nil, wrongRequest("%s: found %d bytes of bits, expected %d for %d labels", what, len(x.bits), want, total)
		}
		(*s).SetBits(x.bits)
		return *s, nil
	}
	(*s).Clear()
	for i, id := range x.ids {
		if id < 0 || id >= int64(total) {
			return nil, wrongRequest("%s[%d]: found %d, expected a label, below %d", what, i, id, total)
		}
		(*s).Add(uint32(id))
	}
	return *s, nil
}

// request is l2s_request.
type request struct {
	plain                        l2s.Request // without sets
	among, also, allowed, banned labels
	biasIDs                      []int64
	biases                       []float32
}

// fill makes the request of the scratch.
func (r *request) fill(t *scratch, total int) (err error) {
	t.request = r.plain
	if r.among.bits != nil {
		return wrongRequest("among: found bits, expected ids: allowed takes bits")
	}
	if r.also.bits != nil {
		return wrongRequest("also: found bits, expected ids: allowed takes bits")
	}
	if r.among.ids != nil {
		if err := narrow(&t.among, r.among.ids, "among"); err != nil {
			return err
		}
		t.request.Among = l2s.Only(t.among)
	}
	if len(r.also.ids) > 0 {
		if err := narrow(&t.also, r.also.ids, "also"); err != nil {
			return err
		}
		t.request.Also = t.also
	}
	if t.request.Allowed, err = r.allowed.set(&t.allowed, total, "allowed"); err != nil {
		return err
	}
	if t.request.Banned, err = r.banned.set(&t.banned, total, "banned"); err != nil {
		return err
	}
	if len(r.biasIDs) > 0 {
		to := grow(&t.biases, len(r.biasIDs))
		for i, id := range r.biasIDs {
			if id < 0 || id > math.MaxUint32 {
				return wrongRequest("biases[%d]: found the label %d, expected one below %d", i, id, total)
			}
			to[i] = l2s.Bias{ID: uint32(id), Add: r.biases[i]}
		}
		t.request.Biases = to
	}
	return nil
}
