package sample

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/engine"
	"github.com/learning-to-screen/l2s/internal/exact"
	"github.com/learning-to-screen/l2s/internal/grow"
	"github.com/learning-to-screen/l2s/internal/previewing"
	"github.com/learning-to-screen/l2s/internal/ranking"
	"github.com/learning-to-screen/l2s/internal/screening"
)

// Edits are the changes of one draw. The zero value changes nothing.
type Edits struct {
	// Allowed, unless nil, has the labels that may be drawn, and Banned, unless nil, the labels
	// that may not, as in l2s.Request.
	Allowed, Banned *bitset.Set
	// Biases are added to the logits of labels, ascending by ID.
	Biases []l2s.Bias
	// History has the labels for the penalties, each the number of times that it counts, in any
	// order: the last tokens, or all. An id that is not below L, such as the id of a picture in the
	// prompt, cannot be drawn, and has no effect.
	History []uint32
}

// Token is a label that was drawn.
type Token struct {
	ID uint32
	// LogProb is the natural logarithm of the token's probability. Two kinds of draws have an
	// estimate. Over a screen the weight of the labels outside the candidate set is estimated if
	// there is no truncation, and left out if top-p is the only one. The estimate has no bound, and
	// may be too large or too small if the screen or its tail is poor: after a top-p on PTB-Small,
	// at a temperature of 1.6 after it, it was off by .13 on average and 1.3 at most. If there is
	// no truncation, a draw over a layer of 1,024 labels or more does not compute all logits: those
	// that it does not compute count with the centres of their int8 intervals, which may be off by
	// at most e^1 (if the intervals are wider, all logits are computed) and are off by far less on
	// a real layer; if top-p is the only one, labels at its end may count that do not belong to it,
	// if the intervals do not decide it. With Options.ExactLogProb neither happens.
	LogProb float64
	// Variation bounds the total variation between the distribution of the draw and the layer's
	// with the same edits and truncations: the bound holds if the tail is within its interval,
	// which it does with Options.Confidence. 0 over a layer.
	Variation float64
}

// Stats counts draws.
type Stats struct {
	// Draws is the number of all draws.
	Draws uint64
	// More is the number of draws over a screen that read its largest budget after its own.
	More uint64
	// Layer is the number of draws that the exact layer answered, at least in part.
	Layer uint64
	// Passes is the number of draws that computed the logits of all labels.
	Passes uint64
	// Variation is the sum of Token.Variation.
	Variation float64
}

// Sampler draws labels. It belongs to one goroutine. Its memory is proportional to L. Beyond
// growth with the first draws, nothing is allocated.
//
// [New] makes one: a zero value has no use, and its methods may panic.
type Sampler struct {
	o Options
	plan
	labels   int
	layer    *exact.Searcher
	query    *exact.Query
	screened *screening.Searcher  // nil over a layer
	preview  *previewing.Searcher // nil without a preview
	guard    engine.Guard         // of the layer
	context  []float32            // of the draw, for the preview
	exactly  bool                 // the exact layer has answered, or is to
	budgets  []float64            // to look at one after the other
	random   *rand.Rand
	stats    Stats

	request exact.Request // the edits without the history
	biases  []exact.Bias  // of it
	changed []uint32      // labels whose logits the edits change,
	past    int           // the first of which are the history's

	drawable []uint32 // the labels of the history
	marks    []uint32 // for each label, its number of times in the history, and the bits below
	raised   []uint32 // labels whose logits may grow

	one      [1]exact.Answer
	asked    [1]*exact.Query
	found    []exact.Prediction
	pool     pool
	poolIDs  []uint32
	poolX    []float64
	all      []float64
	terms    []float64
	head     []exact.Prediction
	sorter   ranking.Sorter
	places   []uint16                 // of the labels among the buckets
	buckets  *[nucleusBuckets]float64 // the probability in each
	envelope envelope
	proposed []exact.Prediction // a label that is drawn if all logits agree,
	chance   float64            // and less of its probability is sure than leaves this
	order    []exact.Prediction // places in the head, to put in order
	lastKept int                // the first labels of the head that the last draw was from, 0 if they are others
	list     list
}

// The marks of a label, in addition to its number of times in the history.
const (
	biased uint32 = 1 << (31 - iota)
	mayGrow
	listed // the label is a candidate
	noted  // the label is changed by no more than a mask
	times  = noted - 1
)

// New returns a sampler over the layer with the index, nil for draws that are exact.
//
// Over a screen, which has a tail (l2s.Index.HasTail), a draw uses the candidates alone if
// Token.Variation is then at most Options.MaxVariation: by default all draws after a top-k or a min-p
// do. Otherwise a candidate is drawn with the least probability that it can have, with the tail in
// the worst place. In the remaining cases the candidates within the largest budget of the screen are
// used in the same way, and then the exact layer draws from the rest of its own distribution. If the
// interval of the tail contains the truth, all together draw from the distribution of the layer. The
// exact layer also answers if there are fewer candidates than a leading top-k keeps, if there are
// allowed labels, and, unless a top-k or a min-p comes first, if more than 256 labels are banned.
//
// Over a preview a draw whose chain is narrow, of temperature 0 or with a top-k or a min-p as its
// first truncation, is a draw from the best labels that the preview finds, with their exact logits:
// it has the distribution of the layer unless the preview misses one of these, which is as rare as
// its steps tell. Token.Variation does not include this, and is 0. The exact layer answers other
// chains, draws with allowed labels, and requests that the preview passes on, such as more than some
// hundred labels of a top-k.
//
// The error is l2s.ErrLayer, by errors.Is, if the index was made for another layer, and
// l2s.ErrNoTail for a screen without a tail.
func New(l *l2s.Layer, x *l2s.Index, o Options) (*Sampler, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	layer, index := (*engine.Layer)(l), (*engine.Index)(x)
	if err := layer.Check(); err != nil {
		return nil, fmt.Errorf("sample: %w", err)
	}
	o.Order = slices.Clone(o.Order)
	s := &Sampler{
		o: o, plan: o.plan(), labels: l.Labels(), layer: exact.NewSearcher(layer.Exact()), query: exact.NewQuery(l.Dim()), guard: layer.Guard(),
		random: rand.New(rand.NewPCG(o.Seed, 0x6c3273)), marks: make([]uint32, l.Labels()),
	}
	err := layer.Read(func() (err error) {
		if err := index.Check(layer); err != nil {
			return err
		}
		switch {
		case index == nil:
		case index.Preview() != nil:
			s.preview, err = previewing.NewSearcher(index.Preview(), layer.Exact())
		default:
			err = s.screenedBy(index.Screen(), layer.Exact())
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("sample: %w", err)
	}
	return s, nil
}

// screenedBy makes the sampler one over a screen.
func (s *Sampler) screenedBy(m *screening.Model, l *exact.Layer) (err error) {
	if m.Tail() == nil {
		return l2s.ErrNoTail
	}
	ladder := m.Ladder()
	most, budget := ladder[len(ladder)-1].Budget, s.o.Budget
	switch {
	case budget == 0 && most <= nearBudget*m.Budget():
		budget = most
	case budget == 0:
		budget = m.Budget()
	}
	if s.budgets = append(s.budgets, budget); budget < most {
		s.budgets = append(s.budgets, most)
	}
	s.screened, err = screening.NewSearcher(m, l, screening.Options{Budget: budget})
	return err
}

// nearBudget is the largest ratio of the screen's largest budget to its own at which the larger
// list is read at once: reading one list and then the other takes longer.
const nearBudget = 3

// Stats returns the counts of the sampler so far.
func (s *Sampler) Stats() Stats { return s.stats }

// Draw draws a label in the context h. It returns an error, for which errors.Is holds
// with l2s.ErrContext or l2s.ErrRequest, if h is not a context or the edits are
// not for the layer, and an error if they leave no label.
func (s *Sampler) Draw(h []float32, e Edits) (t Token, err error) {
	before, err := s.guard.Enter()
	if err != nil {
		return Token{}, err
	}
	defer s.guard.Leave(before, &err)
	if err := s.prepare(&e); err != nil {
		return Token{}, err
	}
	u := s.random.Float64()
	s.lastKept = 0
	ok := false
	s.list.forget()
	if s.screened != nil {
		t, ok, err = s.drawListed(h, u)
	}
	if !ok && err == nil {
		s.context, s.exactly = h, s.preview == nil || !s.narrow || s.request.Allowed != nil
		if err = s.query.Set(h); err == nil {
			t, err = s.drawExact(u)
		}
		if s.context = nil; s.exactly {
			s.stats.Layer++
		}
	}
	if err != nil {
		return Token{}, err
	}
	s.stats.Draws++
	s.stats.Variation += t.Variation
	return t, nil
}

// Distribution appends the labels that the last token was drawn from, the best first, and the
// natural logarithms of their probabilities, to dst, for a caller who accepts or rejects the draft
// of another model. It reports false if the last draw did not put them together: one without
// truncation, by the certain part of the candidates, or with a nucleus of the exact layer whose end
// intervals leave open.
func (s *Sampler) Distribution(dst []l2s.Prediction) ([]l2s.Prediction, bool) {
	if s.lastKept == 0 {
		return dst, false
	}
	t := s.temperature
	if t == 0 {
		return append(dst, l2s.Prediction{ID: s.head[0].ID}), true
	}
	logSum := s.weighHead(s.lastKept, t)
	for _, x := range s.head[:s.lastKept] {
		dst = append(dst, l2s.Prediction{ID: x.ID, Logit: min((x.Logit-s.head[0].Logit)/t-logSum, 0)})
	}
	return dst, true
}

// prepare checks the edits, and finds their effects. Edits that the order has no step for
// are dropped.
func (s *Sampler) prepare(e *Edits) error {
	s.biases = s.biases[:0]
	for _, b := range e.Biases {
		s.biases = append(s.biases, exact.Bias(b))
	}
	s.request = exact.Request{Allowed: e.Allowed, Banned: e.Banned, Biases: s.biases}
	if err := exact.Check(&s.request, s.labels, 1); err != nil {
		return err
	}
	if len(e.History) > int(times) {
		return exact.Invalid(exact.ErrRequest, "sample: history: found %d labels, expected at most %d", len(e.History), times)
	}
	history := e.History
	beyond := func(id uint32) bool { return int64(id) >= int64(s.labels) }
	if slices.ContainsFunc(history, beyond) {
		s.drawable = slices.DeleteFunc(append(s.drawable[:0], history...), beyond)
		history = s.drawable
	}
	if !s.o.has(Mask) {
		s.request.Allowed, s.request.Banned = nil, nil
	}
	if !s.o.has(Bias) {
		s.request.Biases = nil
	}
	for _, id := range s.changed {
		s.marks[id] = 0
	}
	s.changed, s.past, s.raised = s.changed[:0], 0, s.raised[:0]
	if s.o.has(Penalties) && (s.o.Repetition != 1 || s.o.Presence != 0 || s.o.Frequency != 0) {
		s.changed = grow.Slice(s.changed, len(history))
		changed, marks, past := s.changed, s.marks, 0
		for _, id := range history { // a CPU could not foretell a branch
			mark := marks[id]
			changed[past] = id
			marks[id] = mark + 1
			if mark == 0 {
				past++
			}
		}
		s.changed, s.past = changed[:past], past
		if s.o.Repetition < 1 || s.o.Presence < 0 || s.o.Frequency < 0 {
			for _, id := range s.changed {
				s.marks[id] |= mayGrow
				s.raised = append(s.raised, id)
			}
		}
	}
	for _, b := range s.request.Biases {
		if s.mark(b.ID, biased); b.Add > 0 && s.marks[b.ID]&mayGrow == 0 {
			s.marks[b.ID] |= mayGrow
			s.raised = append(s.raised, b.ID)
		}
	}
	return nil
}

// mark notes the effect of the edits on a label.
func (s *Sampler) mark(id, what uint32) {
	if s.marks[id] == 0 {
		s.changed = append(s.changed, id)
	}
	s.marks[id] |= what
}

// refused iterates over the labels that may not be drawn, some perhaps twice.
func (s *Sampler) refused(yield func(id uint32) bool) {
	if a := s.request.Allowed; a != nil {
		for id := range a.Missing(0, s.labels) {
			if !yield(id) {
				return
			}
		}
	}
	if b := s.request.Banned; b != nil {
		b.All()(yield)
	}
}

// edit returns the logit x of a label, after biases and penalties in their order. It does not
// descend in x.
func (s *Sampler) edit(id uint32, x float64) float64 {
	mark := s.marks[id]
	if mark == 0 {
		return x
	}
	for _, step := range s.edited {
		switch {
		case step == Bias && mark&biased != 0:
			x += exact.Added(&s.request, id)
		case step == Penalties && mark&times > 0:
			if x > 0 {
				x /= s.o.Repetition
			} else {
				x *= s.o.Repetition
			}
			x -= float64(s.o.Frequency*float64(mark&times)) + s.o.Presence
		}
	}
	return x
}

// pool holds labels with their edited logits, none of them -Inf unless ids is nil.
type pool struct {
	ids    []uint32 // nil: 0, 1, 2, ...
	logits []float64
	// whole: no other label may be drawn that the order does not put after all of these,
	// nor has any other a share of the probability that matters.
	whole bool
	// open: of other labels is known no more than their weight, sampler.outside.
	open bool
	// every: all candidates that may be drawn are in the pool.
	every bool
	// nucleus: the pool is the set that a first top-p keeps.
	nucleus bool
	// inside is the log of the sum over the pool of e^((x-largest)/T) at the temperature of the
	// first truncation, if that needs it.
	inside float64
	summed bool
}

func (p *pool) label(i int) uint32 {
	if p.ids == nil {
		return uint32(i)
	}
	return p.ids[i]
}

var errNone = errors.New("sample: found no label that may be drawn, expected at least one")
