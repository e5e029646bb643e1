package sample

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/grow"
	"github.com/learning-to-screen/l2s/kernels"
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

// NewScreened returns a sampler over a screen and its layer. The screen has a
// regression of the tail ([screen.Regression]).
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
	if m.Regression() == nil {
		return nil, errors.New("sample: found a screen without a regression of the tail, expected one: l2s train --tail regression makes it, or train.FitRegression")
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
			x = x - float64(s.o.Frequency*float64(s.past[i].n)) - s.o.Presence
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

var nothing = screen.Interval{Log: math.Inf(-1), Low: math.Inf(-1), High: math.Inf(-1)}

var errNone = errors.New("sample: found no label that may be drawn, expected at least one")

// drawExact draws from the distribution of the layer.
func (s *Sampler) drawExact(u float64) (Token, error) {
	first, temperature, cut := s.o.firstCut()
	greedy := s.o.temperature() == 0
	if !greedy && (!cut || first == TopP) {
		if !cut || s.o.onlyTopP() {
			if t, ok, err := s.drawEnclosed(temperature, cut); ok || err != nil {
				return t, err
			}
		}
		if err := s.lookAtAll(); err != nil {
			return Token{}, err
		}
		if !cut {
			return s.drawFrom(s.o.temperature(), u)
		}
		if s.o.onlyTopP() {
			return s.drawNucleus(temperature, u)
		}
		s.sumInside(temperature)
		t, _, err := s.drawKept(u)
		return t, err
	}
	k := 16
	if greedy {
		k = 1
	} else if first == TopK {
		k = s.o.TopK
	}
	for ; ; k *= 4 {
		if err := s.lookAtBest(min(k, s.labels)); err != nil {
			return Token{}, err
		}
		if t, ok, err := s.drawKept(u); ok || err != nil {
			return t, err
		}
	}
}

// lookAtAll makes all labels the pool.
func (s *Sampler) lookAtAll() error {
	s.stats.Passes++
	s.all = grow.Slice(s.all, s.labels)
	if err := s.layer.Logits(s.all, s.query, softmax.Labels{}); err != nil {
		return err
	}
	for _, id := range s.changed {
		s.all[id] = s.edit(id, s.all[id])
	}
	if a := s.edits.Allowed; a != nil {
		for id := range a.Missing(0, s.labels) {
			s.all[id] = math.Inf(-1)
		}
	}
	if b := s.edits.Banned; b != nil {
		for id := range b.All() {
			s.all[id] = math.Inf(-1)
		}
	}
	s.pool = pool{logits: s.all, whole: true, exact: true, rest: nothing}
	return nil
}

// lookAtBest makes the labels of the k largest edited logits the pool, and perhaps a few
// more, but no label without all that are better.
func (s *Sampler) lookAtBest(k int) error {
	// Labels of the history may take places of others: their logits are others in the
	// search.
	k = min(k+len(s.past), s.labels)
	s.found = grow.Slice(s.found, k)
	req := s.request(k)
	s.asked[0] = s.query
	if err := s.layer.Find(s.found, s.one[:], s.asked[:], &req); err != nil {
		return err
	}
	n := s.one[0].Count
	whole := n < k || k == s.labels
	s.pastX = grow.Slice(s.pastX, len(s.past))
	if err := s.layer.Logits(s.pastX, s.query, softmax.Only(s.pastIDs)); err != nil {
		return err
	}
	s.poolIDs, s.poolX = s.poolIDs[:0], s.poolX[:0]
	for _, p := range s.found[:n] {
		if _, past := slices.BinarySearch(s.pastIDs, p.ID); !past {
			s.poolIDs, s.poolX = append(s.poolIDs, p.ID), append(s.poolX, p.Logit)
		}
	}
	for i, id := range s.pastIDs {
		if !s.permits(id) {
			continue
		}
		x := s.edit(id, s.pastX[i])
		if whole || compare(softmax.Prediction{ID: id, Logit: x}, s.found[n-1]) <= 0 {
			s.poolIDs, s.poolX = append(s.poolIDs, id), append(s.poolX, x)
		}
	}
	s.pool = pool{ids: s.poolIDs, logits: s.poolX, whole: whole, exact: true}
	return nil
}

// compare orders by larger logit, ties by the lower label.
func compare(a, b softmax.Prediction) int {
	switch {
	case a.Logit > b.Logit || a.Logit == b.Logit && a.ID < b.ID:
		return -1
	case a == b:
		return 0
	}
	return 1
}

// drawFrom draws from all labels of the pool, which is whole.
func (s *Sampler) drawFrom(temperature, u float64) (Token, error) {
	largest := slices.Max(s.pool.logits)
	if math.IsInf(largest, -1) {
		return Token{}, errNone
	}
	logSum := s.weigh(s.pool.logits, largest, temperature)
	i := walk(s.terms, u)
	return Token{ID: s.pool.label(i), LogProb: (s.pool.logits[i]-largest)/temperature - logSum}, nil
}

// sumInside finds the log of the sum of e^((x-largest)/T) over the pool, and returns the
// largest.
func (s *Sampler) sumInside(temperature float64) (largest float64) {
	if len(s.pool.logits) == 0 {
		return math.Inf(-1)
	}
	if largest = slices.Max(s.pool.logits); !math.IsInf(largest, -1) {
		s.pool.inside = s.weigh(s.pool.logits, largest, temperature)
	}
	return largest
}

// weigh leaves probabilities in proportion to e^(x/T) in s.terms, whose sum is 1, and
// returns the log of the sum of e^((x-largest)/T).
func (s *Sampler) weigh(logits []float64, largest, temperature float64) float64 {
	s.terms = grow.Slice(s.terms, len(logits))
	for i, x := range logits {
		s.terms[i] = (x - largest) / temperature
	}
	return kernels.Softmax(s.terms, s.terms)
}

// walk returns the first index up to which the terms exceed at, the last one that is
// not 0 if none does by rounding.
func walk(terms []float64, at float64) int {
	sum, last := 0.0, 0
	for i, w := range terms {
		if sum += w; at < sum {
			return i
		}
		if w > 0 {
			last = i
		}
	}
	return last
}

// headStep is the natural logarithm of the share, of the first probability, that one
// look further down the order of a pool adds: labels are put in order as far as they
// are needed.
const headStep = 3.0

// drawKept draws from the labels that the truncations keep. It reports false if the
// pool does not hold them all.
func (s *Sampler) drawKept(u float64) (Token, bool, error) {
	p := &s.pool
	if len(p.logits) == 0 {
		return Token{}, p.whole, errIf(p.whole, errNone)
	}
	largest := slices.Max(p.logits)
	if math.IsInf(largest, -1) {
		return Token{}, true, errNone
	}
	_, temperature, _ := s.o.firstCut()
	if temperature == 0 {
		temperature = 1
	}
	for depth := headStep; ; depth *= 2 {
		threshold := largest - float64(temperature*depth)
		if depth > 1000 {
			threshold = -math.MaxFloat64
		}
		s.head = s.head[:0]
		left := false
		for i, x := range p.logits {
			switch {
			case x >= threshold:
				s.head = append(s.head, softmax.Prediction{ID: p.label(i), Logit: x})
			case !math.IsInf(x, -1):
				left = true
			}
		}
		slices.SortFunc(s.head, compare)
		n, grade, ok := s.keep(left)
		if !ok && left {
			continue
		}
		if !ok {
			return Token{}, false, nil
		}
		t := s.drawHead(n, u)
		t.Grade = grade
		return t, true, nil
	}
}

func errIf(some bool, err error) error {
	if some {
		return err
	}
	return nil
}

// drawHead draws from the first n labels of the head.
func (s *Sampler) drawHead(n int, u float64) Token {
	temperature := s.o.temperature()
	if temperature == 0 {
		return Token{ID: s.head[0].ID}
	}
	logSum := s.weighHead(n, temperature)
	i := walk(s.terms, u)
	return Token{ID: s.head[i].ID, LogProb: (s.head[i].Logit-s.head[0].Logit)/temperature - logSum}
}

// weighHead is weigh for the first n labels of the head.
func (s *Sampler) weighHead(n int, temperature float64) float64 {
	s.terms = grow.Slice(s.terms, n)
	for i, x := range s.head[:n] {
		s.terms[i] = (x.Logit - s.head[0].Logit) / temperature
	}
	return kernels.Softmax(s.terms, s.terms)
}

// keep applies the truncations to the head, the first labels of the pool in order, of
// which more are left or not, and returns how many labels they keep. It reports false if
// the head does not hold them all.
func (s *Sampler) keep(left bool) (n int, grade Grade, ok bool) {
	p := &s.pool
	n = len(s.head)
	// all: the labels that are kept so far are the first n of the head.
	all := !left && p.whole
	temperature, certain, first := 1.0, true, true
	if s.o.temperature() == 0 {
		n, all = 1, true // the largest, whatever else is cut
		return n, s.gradeOf(n, 1, true), true
	}
	at := 1.0 // the temperature of the first truncation
	for _, step := range s.o.Order {
		if step == Temperature {
			temperature = s.o.Temperature
		}
		if !s.o.cuts(step) {
			continue
		}
		if first {
			at, first = temperature, false
		}
		switch step {
		case TopK:
			if n < s.o.TopK && !all {
				return 0, 0, false
			}
			n, all = min(n, s.o.TopK), true
		case MinP:
			least := kernels.Log(s.o.MinP)
			m := 0
			for m < n && (s.head[m].Logit-s.head[0].Logit)/temperature >= least {
				m++
			}
			if m == n && !all {
				return 0, 0, false
			}
			n, all = m, true
		case TopP:
			var m, low, high int
			if all {
				s.weighHead(n, temperature)
				m = s.nucleus(1)
				low, high = m, m
			} else {
				// Shares of the sum over the pool, and over the head among them.
				inside := p.inside
				share := kernels.Exp(s.weighHead(n, temperature) - inside)
				for i := range s.terms {
					s.terms[i] *= share
				}
				with := func(rest float64) int {
					return s.nucleus(1 + kernels.Exp(rest-s.head[0].Logit/temperature-inside))
				}
				m, low, high = with(p.rest.Log), with(p.rest.Low), with(p.rest.High)
				if m > n {
					return 0, 0, false
				}
			}
			certain = certain && low == m && high == m
			n, all = m, true
		}
	}
	return n, s.gradeOf(n, at, certain), all
}

// gradeOf grades the first n labels of the head as those that a truncation keeps, first
// at a temperature: no other label is among them unless it weighs more than all others
// together can.
func (s *Sampler) gradeOf(n int, temperature float64, certain bool) Grade {
	switch {
	case s.pool.whole || s.pool.exact:
		return Exact
	case certain && s.head[n-1].Logit/temperature > s.pool.rest.High:
		return Bounded
	}
	return Approximate
}

// nucleus is the number of first labels of the head, whose weights are s.terms, that
// hold the share TopP of a total, one more than there are if they do not.
func (s *Sampler) nucleus(total float64) int {
	want, sum := s.o.TopP*total, 0.0
	for m, w := range s.terms {
		if sum += w; sum >= want {
			return m + 1
		}
	}
	return len(s.terms) + 1
}

// drawScreened draws by the screen. It reports false if the exact layer is to answer.
func (s *Sampler) drawScreened(h []float32, u float64) (Token, bool, error) {
	if s.edits.Allowed != nil || s.edits.Banned != nil && s.edits.Banned.Count() > maxBanned {
		return Token{}, false, nil
	}
	first, temperature, cut := s.o.firstCut()
	greedy := s.o.temperature() == 0
	if greedy {
		temperature = 1
	}
	extra := s.changed
	if b := s.edits.Banned; b != nil {
		s.extra = b.AppendIDs(append(s.extra[:0], extra...))
		s.extra = distinct(s.extra)
		extra = s.extra
	}
	head, err := s.screened.Head(h, extra, temperature, s.o.Confidence)
	if err != nil || math.IsNaN(head.Tail.Log) && (head.IDs == nil || !cut || first == TopP) {
		return Token{}, false, err
	}
	s.poolIDs, s.poolX = s.poolIDs[:0], s.poolX[:0]
	changed := s.changed
	for i, id := range head.IDs {
		x := head.Logits[i]
		for len(changed) > 0 && changed[0] < id {
			changed = changed[1:]
		}
		if len(changed) > 0 && changed[0] == id {
			x = s.edit(id, x)
		}
		if s.edits.Banned == nil || !s.edits.Banned.Has(id) {
			s.poolIDs, s.poolX = append(s.poolIDs, id), append(s.poolX, x)
		}
	}
	s.pool = pool{ids: s.poolIDs, logits: s.poolX, whole: len(head.IDs) == s.labels, rest: head.Tail}
	if !cut && !greedy {
		return s.drawWithTail(temperature, u)
	}
	if !greedy && !math.IsNaN(head.Tail.Log) {
		inside := s.sumInside(temperature)/temperature + s.pool.inside
		if outside := head.Tail.Log - kernels.LogAddExp(head.Tail.Log, inside); kernels.Exp(outside) > s.o.MaxOutside {
			return Token{}, false, nil
		}
	}
	return s.drawKept(u)
}

// drawWithTail draws from the labels of the pool with the probability that they have at
// least. In the rest of the cases the exact layer draws: from the labels of the pool
// by what they have above that, and from all others.
func (s *Sampler) drawWithTail(temperature, u float64) (Token, bool, error) {
	p := &s.pool
	if p.whole && len(p.logits) > 0 {
		t, err := s.drawFrom(temperature, u)
		return t, true, err
	}
	if len(p.logits) == 0 || math.IsInf(p.rest.High, 1) {
		return Token{}, false, nil
	}
	largest := slices.Max(p.logits)
	logSum := s.weigh(p.logits, largest, temperature)
	// All weights are those relative to the pool.
	relative := func(rest float64) float64 { return kernels.Exp(rest - largest/temperature - logSum) }
	most := relative(p.rest.High)
	if math.IsInf(most, 1) {
		return Token{}, false, nil
	}
	token := func(id uint32, x, rest float64) Token {
		return Token{id, (x-largest)/temperature - logSum - kernels.Log(1+rest), Bounded}
	}
	at := u * (1 + most)
	if at < 1 || most == 0 {
		i := walk(s.terms, at)
		return token(p.ids[i], p.logits[i], relative(p.rest.Log)), true, nil
	}
	ids, logits := p.ids, p.logits
	s.stats.Layer++
	if i, others, ok, err := s.drawRest(temperature, most, relative); ok || err != nil {
		return token(i.ID, i.Logit, others), ok, err
	}
	// The probabilities of all other labels, and their weight together.
	if err := s.lookAtAll(); err != nil {
		return Token{}, false, err
	}
	s.tailTrue = grow.Slice(s.tailTrue, s.labels)
	for id, x := range s.all {
		s.tailTrue[id] = (x - largest) / temperature
	}
	for _, id := range ids {
		s.tailTrue[id] = math.Inf(-1)
	}
	others := kernels.Exp(kernels.Softmax(s.tailTrue, s.tailTrue) - logSum)
	// What is left of the probability of a label of the pool, in proportion to its
	// probability, and the part of all that is left which belongs to the pool.
	left := max(most-others, 0) / (1 + most)
	above := left * (1 + most) / float64(most*(1+others))
	if len(s.proposed) > 0 && s.chance < left {
		return token(s.proposed[0].ID, s.proposed[0].Logit, others), true, nil
	}
	v := (at - 1) / most
	if v < above || others == 0 {
		i := walk(s.terms, v/above)
		return token(ids[i], logits[i], others), true, nil
	}
	id := walk(s.tailTrue, (v-above)/(1-above))
	return token(uint32(id), s.all[id], others), true, nil
}

// drawRest draws what drawWithTail leaves to the exact layer, by the envelope: labels by
// their probability, of which one of the pool is taken with the share of it that is left.
// It returns the weight of all labels outside the pool too, as it is estimated. It reports
// false if all logits are to be computed; a label that is in s.proposed then is the one
// that is drawn if s.chance is below that share.
func (s *Sampler) drawRest(temperature, most float64, relative func(float64) float64) (drawn softmax.Prediction, others float64, ok bool, err error) {
	s.proposed = s.proposed[:0]
	if ok, err := s.enclose(temperature); !ok || err != nil {
		return drawn, 0, false, err
	}
	e, ids := &s.envelope, s.pool.ids
	for i, id := range ids {
		e.pin(id, s.pool.logits[i])
	}
	left := func(others float64) float64 { return max(most-others, 0) / (1 + most) }
	bounded := func() (least, largest float64) {
		outside := e.sumWithout(ids, temperature)
		others = relative(outside.about)
		return left(relative(outside.high) * slack), left(relative(outside.low) / slack)
	}
	least, largest := bounded()
	if !e.weigh(temperature) {
		return drawn, 0, false, nil
	}
	for range maxProposals {
		id, x, ok, err := s.propose()
		if !ok || err != nil {
			return drawn, 0, false, err
		}
		drawn = softmax.Prediction{ID: id, Logit: x}
		if _, in := slices.BinarySearch(ids, id); !in {
			return drawn, others, true, nil
		}
		s.chance = s.random.Float64()
		for _, depth := range tailDepths {
			if s.chance < least || s.chance >= largest {
				break
			}
			more := e.atLeast(e.reference - float64(depth*temperature))
			if float64(len(more)) > float64(maxPinned*float64(s.labels)) {
				break
			}
			if err := s.pinAll(more); err != nil {
				return drawn, 0, false, err
			}
			least, largest = bounded()
		}
		if s.chance < least {
			return drawn, others, true, nil
		}
		if s.chance < largest {
			s.proposed = append(s.proposed, drawn)
			break
		}
	}
	return drawn, 0, false, nil
}
