package sample

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// Edits are what changes from draw to draw. The zero value changes nothing.
type Edits struct {
	// Allowed, unless nil, holds the labels that may be drawn, and Banned, unless
	// nil, those that may not, as in softmax.Request.
	Allowed, Banned *bitset.Set
	// Biases are added to the logits of labels, ascending by ID.
	Biases []softmax.Bias
	// History holds the labels that penalties are for, as often as they count, in any
	// order: the last tokens, or all.
	History []uint32
}

// Grade says how near the distribution of a draw is to the distribution of the layer.
type Grade uint8

const (
	// Exact: the two are the same.
	Exact Grade = iota
	// Bounded: the two are the same if the interval of the tail holds the truth, which
	// it does with Options.Confidence.
	Bounded
	// Approximate: the labels that were kept are the best of the candidate set, which
	// may lack labels.
	Approximate
)

// String returns "exact", "bounded" or "approximate".
func (g Grade) String() string {
	switch g {
	case Exact:
		return "exact"
	case Bounded:
		return "bounded"
	case Approximate:
		return "approximate"
	}
	return "unknown"
}

// Token is a label that was drawn.
type Token struct {
	ID uint32
	// LogProb is the natural logarithm of the probability that it had. Two kinds of draws
	// have an estimate. Over a screen the weight of the labels outside the candidate set is
	// estimated. If there is no truncation, or if top-p is the only one, a draw over
	// a layer of 1,024 labels or more does not compute all logits: those that it does
	// not compute count with the centres of their int8 intervals, which may be off by e^1 at
	// most (if more is open, all logits are computed) and by far less on a real layer, unless
	// Options.ExactLogProb is set.
	LogProb float64
	Grade   Grade
}

// Stats counts draws.
type Stats struct {
	// Draws is the number of all draws, Bounded and Approximate the numbers of draws of
	// these grades.
	Draws, Bounded, Approximate uint64
	// Layer is the number of draws that used the exact layer.
	Layer uint64
	// Passes is the number of draws that computed the logits of all labels.
	Passes uint64
}

// Sampler draws labels. It is for one goroutine. Its memory is proportional to L from
// the first draw on that looks at all logits; beyond that growth nothing is allocated.
type Sampler struct {
	o        Options
	labels   int
	layer    *softmax.Searcher
	query    *softmax.Query
	screened *screen.Searcher // nil over a layer
	random   *rand.Rand
	stats    Stats

	edits    Edits
	history  []uint32 // ascending
	past     []occurrence
	changed  []uint32 // labels whose logits the edits change, ascending
	extra    []uint32
	one      [1]softmax.Answer
	asked    [1]*softmax.Query
	pastIDs  []uint32
	pastX    []float64
	found    []softmax.Prediction
	pool     pool
	poolIDs  []uint32
	poolX    []float64
	all      []float64
	terms    []float64
	head     []softmax.Prediction
	tailTrue []float64
	places   []uint16                 // of the labels among the buckets
	buckets  *[nucleusBuckets]float64 // the probability in each
	envelope envelope
	proposed []softmax.Prediction // a label that is drawn if all logits say so
	chance   float64              // of a proposed label of the pool
}

// occurrence is a label of the history and how often it is there.
type occurrence struct {
	id uint32
	n  int
}

// New returns a sampler over all labels of a layer, whose draws are exact.
func New(l *softmax.Layer, o Options) (*Sampler, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	o.Order = slices.Clone(o.Order)
	return &Sampler{
		o: o, labels: l.Labels(), layer: softmax.NewSearcher(l), query: softmax.NewQuery(l.Dim()),
		random: rand.New(rand.NewPCG(o.Seed, 0x6c3273)),
	}, nil
}

// NewScreened returns a sampler over a screen and its layer. The screen has a tail
// ([screen.Tail]).
//
// Without truncation a candidate is drawn with the least probability that it can have:
// the probability if the tail is at the upper end of its interval. In the remaining cases
// the exact layer draws from what is left of its own distribution. If the interval holds
// the truth, the two together draw from the distribution of the layer.
//
// A truncation looks at the candidates alone. The exact layer answers if they are too few,
// if they hold too little of the probability (Options.MaxOutside), if there are allowed
// labels, or if more than 256 labels are banned.
func NewScreened(m *screen.Model, l *softmax.Layer, o Options) (*Sampler, error) {
	s, err := New(l, o)
	if err != nil {
		return nil, err
	}
	if m.Tail() == nil {
		return nil, fmt.Errorf("sample: %w", screen.ErrNoTail)
	}
	s.screened, err = screen.NewSearcher(m, l)
	return s, err
}

// Stats returns what the sampler did so far.
func (s *Sampler) Stats() Stats { return s.stats }

// Draw draws a label in the context h. It returns an error, for which errors.Is holds
// with softmax.ErrContext or softmax.ErrRequest, if h is not a context or the edits are
// not for the layer, and an error if they leave no label.
func (s *Sampler) Draw(h []float32, e Edits) (Token, error) {
	if err := s.prepare(h, &e); err != nil {
		return Token{}, err
	}
	u := s.random.Float64()
	if s.screened != nil {
		if t, ok, err := s.drawScreened(h, u); err != nil {
			return Token{}, err
		} else if ok {
			s.count(t)
			return t, nil
		}
	}
	t, err := s.drawExact(u)
	if err != nil {
		return Token{}, err
	}
	s.stats.Layer++
	s.count(t)
	return t, nil
}

func (s *Sampler) count(t Token) {
	s.stats.Draws++
	switch t.Grade {
	case Bounded:
		s.stats.Bounded++
	case Approximate:
		s.stats.Approximate++
	}
}

// badEdits is an error of the kind softmax.ErrRequest.
type badEdits string

func (e badEdits) Error() string { return string(e) }
func (e badEdits) Unwrap() error { return softmax.ErrRequest }

// maxBanned bounds the banned labels whose share of the tail is taken off.
const maxBanned = 256

// prepare checks the context and the edits, and finds out what the edits change. Edits that the
// order has no step for are dropped.
func (s *Sampler) prepare(h []float32, e *Edits) error {
	if err := s.query.Set(h); err != nil {
		return err
	}
	req := softmax.Request{K: 1, Allowed: e.Allowed, Banned: e.Banned, Biases: e.Biases}
	if err := req.Check(s.labels); err != nil {
		return err
	}
	for i, id := range e.History {
		if int64(id) >= int64(s.labels) {
			return badEdits(fmt.Sprintf("sample: history: found label %d at %d, expected one below the %d labels", id, i, s.labels))
		}
	}
	s.edits = *e
	if !s.o.has(Mask) {
		s.edits.Allowed, s.edits.Banned = nil, nil
	}
	if !s.o.has(Bias) {
		s.edits.Biases = nil
	}
	s.past, s.pastIDs, s.changed = s.past[:0], s.pastIDs[:0], s.changed[:0]
	if s.o.has(Penalties) && (s.o.Repetition != 1 || s.o.Presence != 0 || s.o.Frequency != 0) {
		s.history = append(s.history[:0], e.History...)
		slices.Sort(s.history)
		for _, id := range s.history {
			if n := len(s.past); n > 0 && s.past[n-1].id == id {
				s.past[n-1].n++
				continue
			}
			s.past, s.pastIDs = append(s.past, occurrence{id, 1}), append(s.pastIDs, id)
		}
	}
	s.changed = append(s.changed, s.pastIDs...)
	for _, b := range s.edits.Biases {
		s.changed = append(s.changed, b.ID)
	}
	s.changed = distinct(s.changed)
	return nil
}

// distinct sorts ids and drops repeated ones.
func distinct(ids []uint32) []uint32 {
	slices.Sort(ids)
	return slices.Compact(ids)
}

// request is a request with the edits that a search knows.
func (s *Sampler) request(k int) softmax.Request {
	return softmax.Request{K: k, Allowed: s.edits.Allowed, Banned: s.edits.Banned, Biases: s.edits.Biases}
}

func (s *Sampler) permits(id uint32) bool {
	r := s.request(1)
	return r.Permits(id)
}

// edit returns the logit x of a label, after biases and penalties in their order.
func (s *Sampler) edit(id uint32, x float64) float64 {
	for _, step := range s.o.Order {
		switch step {
		case Bias:
			r := s.request(1)
			x += r.Bias(id)
		case Penalties:
			i, ok := slices.BinarySearchFunc(s.past, id, func(o occurrence, id uint32) int { return int(int64(o.id) - int64(id)) })
			if !ok {
				continue
			}
			if x > 0 {
				x /= s.o.Repetition
			} else {
				x *= s.o.Repetition
			}
			x -= float64(s.o.Frequency*float64(s.past[i].n)) + s.o.Presence
		}
	}
	return x
}

// pool holds labels with their edited logits, none of them -Inf unless ids is nil.
type pool struct {
	ids    []uint32 // nil: 0, 1, 2, ...
	logits []float64
	// whole: no other label may be drawn.
	whole bool
	exact bool // all that is better than the pool's worst label is in it
	// rest is what is known of the log of the sum of e^(x/T) over all other labels, at
	// the temperature of the first truncation. It is not set if only the labels matter.
	rest screen.Interval
	// inside is the log of the sum over the pool of e^((x-largest)/T) at that temperature,
	// if the rest is known and top-p may come first.
	inside float64
}

func (p *pool) label(i int) uint32 {
	if p.ids == nil {
		return uint32(i)
	}
	return p.ids[i]
}

// largest is the largest logit of the pool, -Inf if no label may be drawn.
func (p *pool) largest() float64 {
	largest := math.Inf(-1)
	for _, x := range p.logits {
		largest = max(largest, x)
	}
	return largest
}

var nothing = screen.Interval{Log: math.Inf(-1), Low: math.Inf(-1), High: math.Inf(-1)}

var errNone = errors.New("sample: found no label that may be drawn, expected at least one")
