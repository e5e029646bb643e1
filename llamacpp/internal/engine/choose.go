package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/llamacpp"
	"github.com/learning-to-screen/l2s/sample"
)

// Sampling has the options for choosing the tokens of one sequence.
type Sampling struct {
	Options sample.Options
	// LastN is the number of last tokens that penalties apply to, -1 for all.
	LastN int
	// Banned has the tokens that may not be written, in addition to those that the model's file
	// forbids, and Allowed the only tokens that may; nil for none.
	Banned, Allowed *bitset.Set
	// Biases are added to logits, ascending by ID.
	Biases []l2s.Bias
	// Grammar, unless nil, has the texts that may be written. The token that is drawn from all is
	// judged first; if it is refused, the samplers see the allowed tokens alone, and so they do where
	// the grammar leaves few.
	Grammar *Grammar
}

func (s *Sampling) penalty() bool {
	return s.Options.Repetition != 1 || s.Options.Presence != 0 || s.Options.Frequency != 0
}

// Learns reports whether a head that learns can serve this.
func (s *Sampling) Learns() bool {
	return s.Options.Temperature == 0 && !s.penalty() || s.Options.TopK >= 1 && (!s.penalty() || s.LastN >= 0)
}

// Unpreviewed returns the option with which the exact head chooses every token though there is a
// preview, in the words of the command's flags; "" if there is none.
func (s *Sampling) Unpreviewed() string {
	switch step := first(&s.Options); {
	case s.Allowed != nil:
		return "--allow"
	case s.Options.Temperature != 0 && step != sample.TopK && step != sample.MinP:
		return "a draw whose first truncation is neither --top-k nor --min-p"
	case s.Options.Temperature != 0 && step == sample.TopK && s.Options.TopK > mostEdited:
		return fmt.Sprintf("--top-k above %d", mostEdited)
	}
	return ""
}

// ErrNoToken is the error of a choice among no tokens.
var ErrNoToken = errors.New("found no token that may be written, expected one at least: too many are banned, or none is allowed")

// errLearn is the error of options that a head that learns cannot serve.
var errLearn = errors.New("expected a top-k of 1 or more, and penalties of 0 or more last tokens, of a head that learns")

// Chooser chooses the next token of one sequence. It is for one goroutine.
type Chooser struct {
	Sampling
	head *llamacpp.Head
	draw *llamacpp.Sampler // nil for the best token
	// One search for several states finds the labels to choose among, if width is not 0: the best,
	// or the candidates of a draw. A head that learns is always asked so, since samplers have no
	// screen that changes.
	width  int
	always bool
	among  *bitset.Set // of a draw: the candidates
	found  []l2s.Prediction

	grammar *grammarState // nil without one
	few     []uint32      // the tokens that the grammar leaves, nil if they are many
	usables []uint32
	best    int // the best allowed tokens are all that a draw may choose, 0 if all may be
	redraws int
	only    *bitset.Set
	small   *llamacpp.Sampler // for few tokens
}

// check returns an error for options that a head cannot fulfil, without the memory of a sampler.
func (s *Sampling) check(x *llamacpp.Head) error {
	switch {
	case none(x.Labels(), s.Allowed, s.Banned):
		return ErrNoToken
	case x.Learner() != nil && !s.Learns():
		return errLearn
	}
	return nil
}

// NewChooser returns a chooser over a head.
func NewChooser(x *llamacpp.Head, s Sampling) (*Chooser, error) {
	c := &Chooser{Sampling: s, head: x}
	if err := s.check(x); err != nil {
		return nil, err
	}
	if s.Grammar != nil {
		c.grammar = s.Grammar.start()
	}
	if s.Options.Temperature == 0 && !s.penalty() {
		c.width, c.always, c.best = 1, true, 1
		return c, nil
	}
	var err error
	if c.draw, err = x.Sampler(s.Options); err != nil {
		return nil, err
	}
	n := s.Options.TopK
	if s.Options.Temperature == 0 {
		n = 1
	}
	if s.penalty() {
		n += max(s.LastN, 0)
	}
	n += len(s.Biases)
	// The candidates of a search hold all tokens that a draw may choose if a top-k comes before all
	// other truncations, and more if edits change the order. choose adds the tokens that edits
	// raise.
	bounded := s.Options.Temperature == 0 || s.Options.TopK >= 1 && first(&s.Options) == sample.TopK
	edited := s.penalty() || s.Biases != nil
	if bounded && !edited && n <= mostJudged/2 {
		c.best = n
	}
	if o := &s.Options; o.Temperature > 0 && o.TopK == 0 && o.TopP == 1 && o.MinP == 0 && o.Typical == 1 {
		c.redraws = mostRedraws
	}
	switch {
	case x.Learner() != nil:
		c.always = true
	case !bounded || s.Allowed != nil:
		return c, nil
	case edited && (!exact(x) || s.penalty() && s.LastN < 0 || n > mostEdited):
		return c, nil
	}
	c.width = min(n, x.Labels())
	c.among = bitset.New(x.Labels())
	return c, nil
}

// mostEdited bounds the candidates of a draw with penalties or biases, of a search for several
// states. With more the search for one is faster.
const mostEdited = 512

// exact reports whether a head misses no label.
func exact(x *llamacpp.Head) bool {
	return x.Index() == nil && x.Learner() == nil
}

// none reports whether nothing may be written.
func none(labels int, allowed, banned *bitset.Set) bool {
	switch {
	case allowed == nil:
		return banned != nil && banned.Count() == labels
	case banned == nil:
		return allowed.Count() == 0
	}
	left := allowed.Clone()
	left.Difference(banned)
	return left.Count() == 0
}

// first is the first truncation of an order.
func first(o *sample.Options) sample.Step {
	for _, s := range o.Order {
		switch {
		case s == sample.TopK && o.TopK > 0, s == sample.TopP && o.TopP < 1, s == sample.MinP && o.MinP > 0, s == sample.Typical && o.Typical < 1:
			return s
		}
	}
	return sample.Temperature
}

// request is the search whose answer choose takes.
func (c *Chooser) request() l2s.Request {
	r := l2s.Request{Banned: c.Banned, Allowed: c.Allowed}
	if c.draw == nil {
		r.Biases = c.Biases
	}
	if r.Allowed != nil {
		r.Exact = true // among few tokens there is nothing to preview
	}
	return r
}

// same reports whether two choosers ask the same of one search. They may want numbers of labels
// that differ where no label is missed: the best few are the first of the best many.
func (c *Chooser) same(o *Chooser) bool {
	return c.few == nil && o.few == nil && c.head == o.head && (c.width == o.width || exact(c.head) && o.width > 0) && c.Banned == o.Banned && c.Allowed == o.Allowed && (c.draw != nil || c.Biases == nil) && (o.draw != nil || o.Biases == nil)
}

// choose chooses among the tokens that a search has found.
func (c *Chooser) choose(h []float32, history []uint32, found []l2s.Prediction) (uint32, error) {
	if len(found) == 0 {
		return 0, ErrNoToken
	}
	if c.draw == nil {
		return found[0].ID, nil
	}
	e := c.edits(history)
	c.among.Clear()
	for _, p := range found {
		c.among.Add(p.ID)
	}
	add := func(id uint32) {
		if int64(id) < int64(c.among.Len()) && (c.Allowed == nil || c.Allowed.Has(id)) {
			c.among.Add(id)
		}
	}
	for _, id := range e.History { // a penalty may be a gain
		add(id)
	}
	for _, b := range e.Biases {
		add(b.ID)
	}
	e.Allowed = c.among
	t, err := c.draw.Draw(h, e)
	return t.ID, err
}

func (c *Chooser) edits(history []uint32) sample.Edits {
	e := sample.Edits{Banned: c.Banned, Allowed: c.Allowed, Biases: c.Biases}
	if c.penalty() {
		e.History = history
		if c.LastN >= 0 {
			e.History = history[max(0, len(history)-c.LastN):]
		}
	}
	return e
}

// Next chooses the token after the state h, given the tokens before. It reports whether the exact
// layer answered.
func (c *Chooser) Next(h []float32, history []uint32) (id uint32, exact bool, err error) {
	if c.few != nil {
		id, err = c.chooseAmong(c.few, h, history)
		return id, false, err
	}
	if id, exact, err = c.any(h, history); err != nil {
		return 0, false, err
	}
	return c.judged(id, exact, h, history)
}

// any chooses without the grammar.
func (c *Chooser) any(h []float32, history []uint32) (id uint32, exact bool, err error) {
	if !c.always {
		before := c.draw.Stats().Layer
		t, err := c.draw.Draw(h, c.edits(history))
		return t.ID, c.draw.Stats().Layer > before, err
	}
	if c.found == nil {
		c.found = make([]l2s.Prediction, c.width)
	}
	a, err := c.head.Search(c.found, h, c.request())
	if err != nil {
		return 0, false, err
	}
	id, err = c.choose(h, history, c.found[:a.Count])
	return id, a.Exact, err
}

// Banned returns the set of the tokens that a head's file forbids, and of more ids; nil if there
// are none.
func Banned(x *llamacpp.Head, more []uint32) (*bitset.Set, error) {
	ids := append(slices.Clone(more), x.Layer().Info().Suppressed...)
	ids = slices.DeleteFunc(ids, func(id uint32) bool { return int64(id) >= int64(x.Labels()) })
	if len(ids) == 0 {
		return nil, nil
	}
	return Set(x, ids)
}

// Set returns the set of ids, in any order, which are below the labels of the head.
func Set(x *llamacpp.Head, ids []uint32) (*bitset.Set, error) {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	return bitset.FromIDs(x.Labels(), slices.Compact(ids))
}
