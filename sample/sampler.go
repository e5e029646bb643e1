package sample

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/files/heads"
	"github.com/learning-to-screen/l2s/internal/ground/ranking"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/previewing"
	"github.com/learning-to-screen/l2s/internal/search/screening"
)

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
	o      Options
	plan   plan
	random *rand.Rand
	stats  Stats
	labels int
	file   *heads.Head // that has the rows of the layer

	edits    edits  // of the draw
	finder   finder // of logits, and of the best labels of the layer
	list     list   // what a screen knows
	envelope envelope
	pool     pool
	head     []exact.Prediction // the first labels of the pool, in order, and how many of them
	lastKept int                // the last draw was from, 0 if it was from others

	terms   []float64 // probabilities of the head or the pool
	sorter  ranking.Sorter
	order   []exact.Prediction // places in the head, to put in order
	buckets buckets
}

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
		o: o, plan: o.plan(), labels: l.Labels(), file: layer.Head(), random: rand.New(rand.NewPCG(o.Seed, 0x6c3273)),
		finder: finder{layer: exact.NewSearcher(layer.Exact()), query: exact.NewQuery(l.Dim()), budget: o.Budget},
	}
	s.edits = edits{o: &s.o, order: s.plan.edited, marks: make([]uint32, s.labels)}
	err := layer.Read(func() (err error) {
		if err := index.Check(layer); err != nil {
			return err
		}
		switch {
		case index == nil:
		case index.Preview() != nil:
			s.finder.preview, err = previewing.NewSearcher(index.Preview(), layer.Exact())
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
	if s.list.budgets = append(s.list.budgets, budget); budget < most {
		s.list.budgets = append(s.list.budgets, most)
	}
	s.list.screened, err = screening.NewSearcher(m, l, screening.Options{Budget: budget})
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
	before, err := s.file.Enter()
	if err != nil {
		return Token{}, err
	}
	defer s.file.Leave(before, &err)
	if err := s.edits.set(&e); err != nil {
		return Token{}, err
	}
	u := s.random.Float64()
	s.lastKept = 0
	s.list.forget()
	var x outcome
	if s.list.screened != nil {
		x, err = s.drawListed(h, u)
	}
	if x.how != drawn && err == nil {
		if err = s.finder.begin(h, s.plan.narrow && s.edits.request.Allowed == nil); err == nil {
			x, err = s.drawExact(u)
		}
		if s.finder.end() {
			s.stats.Layer++
		}
	}
	if err != nil {
		return Token{}, err
	}
	s.lastKept = x.kept
	s.stats.Draws++
	s.stats.Variation += x.Variation
	return x.Token, nil
}

// outcome is the result of an attempt to draw.
type outcome struct {
	Token
	how  how
	kept int // the first labels of the head that it is from, 0 if it is from others
	// chance decides about a proposed label: it is drawn if less of its probability than this leaves
	// is certain.
	chance float64
}

type how uint8

const (
	undecided how = iota
	proposed      // the label is drawn if all logits agree
	drawn
)

// Distribution appends the labels that the last token was drawn from, the best first, and the
// natural logarithms of their probabilities, to dst, for a caller who accepts or rejects the draft
// of another model. It reports false if the last draw did not put them together: one without
// truncation, by the certain part of the candidates, or with a nucleus of the exact layer whose end
// intervals leave open.
func (s *Sampler) Distribution(dst []l2s.Prediction) ([]l2s.Prediction, bool) {
	if s.lastKept == 0 {
		return dst, false
	}
	t := s.plan.temperature
	if t == 0 {
		return append(dst, l2s.Prediction{ID: s.head[0].ID}), true
	}
	logSum := s.weighHead(s.lastKept, t)
	for _, x := range s.head[:s.lastKept] {
		dst = append(dst, l2s.Prediction{ID: x.ID, Logit: min((x.Logit-s.head[0].Logit)/t-logSum, 0)})
	}
	return dst, true
}

// pool holds labels with their edited logits, none of them -Inf unless it is dense.
type pool struct {
	ids    []uint32
	logits []float64
	extent
	// inside is the log of the sum over the pool of e^((x-largest)/T) at the temperature of the
	// first truncation, if that needs it.
	inside float64
	summed bool
}

// extent tells which labels a pool has.
type extent struct {
	// dense: the labels are 0, 1, 2, ..., and not in ids.
	dense bool
	// whole: no other label may be drawn that the order does not put after all of these,
	// nor has any other a share of the probability that matters.
	whole bool
	// open: of other labels is known no more than their weight, sampler.outside.
	open bool
	// every: all candidates that may be drawn are in the pool.
	every bool
	// nucleus: the pool is the set that a first top-p keeps.
	nucleus bool
}

// filled says which labels the pool has now.
func (p *pool) filled(e extent) { p.extent, p.summed = e, false }

func (p *pool) empty() { p.ids, p.logits = p.ids[:0], p.logits[:0] }

func (p *pool) add(id uint32, x float64) { p.ids, p.logits = append(p.ids, id), append(p.logits, x) }

func (p *pool) label(i int) uint32 {
	if p.dense {
		return uint32(i)
	}
	return p.ids[i]
}

var errNone = errors.New("sample: found no label that may be drawn, expected at least one")
