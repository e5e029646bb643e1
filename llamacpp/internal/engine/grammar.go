package engine

import (
	"bytes"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/hybridgroup/yzma/pkg/llama"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/llamacpp"
	"github.com/learning-to-screen/l2s/llamacpp/internal/gbnf"
)

// Vocabulary has the tokens of a model as a grammar reads them. Its methods are for any goroutine.
type Vocabulary struct {
	vocab llama.Vocab
	sort  func()
	// The tokens with a text, in the order of their texts: after each, up to its end, the tokens whose
	// texts begin with its text. Tokens that end a text are apart.
	ids    []uint32
	after  []int32
	ending []uint32
	bytes  [256]int32 // the token of a byte, -1 if there is none
}

// NewVocabulary returns the vocabulary of a model, which the first grammar reads.
func NewVocabulary(m *llamacpp.Model) *Vocabulary {
	v := &Vocabulary{vocab: llama.ModelGetVocab(m.Llama())}
	v.sort = sync.OnceFunc(func() { v.read(m.Labels()) })
	return v
}

// text is the text of a token, where special tokens have their names.
func (v *Vocabulary) text(room []byte, id uint32) []byte {
	n := llama.TokenToPiece(v.vocab, llama.Token(id), room, 0, true)
	if n < 0 {
		room = make([]byte, -n)
		n = llama.TokenToPiece(v.vocab, llama.Token(id), room, 0, true)
	}
	return room[:max(n, 0)]
}

func (v *Vocabulary) read(labels int) {
	for i := range v.bytes {
		v.bytes[i] = -1
	}
	texts := make([][]byte, labels)
	room := make([]byte, 64)
	for id := range uint32(labels) {
		if llama.VocabIsEOG(v.vocab, llama.Token(id)) {
			v.ending = append(v.ending, id)
			continue
		}
		text := v.text(room, id)
		if len(text) == 0 || text[0] == 0 { // no grammar allows it
			continue
		}
		if texts[id] = bytes.Clone(text); len(text) == 1 && v.bytes[text[0]] < 0 {
			v.bytes[text[0]] = int32(id)
		}
		v.ids = append(v.ids, id)
	}
	slices.SortFunc(v.ids, func(a, b uint32) int {
		if c := bytes.Compare(texts[a], texts[b]); c != 0 {
			return c
		}
		return int(a) - int(b)
	})
	v.after = make([]int32, len(v.ids))
	var open []int // places whose texts the next one may begin with
	for i := 0; i <= len(v.ids); i++ {
		for len(open) > 0 {
			last := open[len(open)-1]
			if i < len(v.ids) && bytes.HasPrefix(texts[v.ids[i]], texts[v.ids[last]]) {
				break
			}
			v.after[last] = int32(i)
			open = open[:len(open)-1]
		}
		open = append(open, i)
	}
}

// Grammar is a grammar of the text that a request writes: llama.cpp's, which judges tokens. It is
// for any number of requests and goroutines.
type Grammar struct {
	of      *Vocabulary
	begun   llama.Sampler // at the beginning, to copy
	trigger string
	bytes   bool
	copying sync.Mutex // llama.cpp does not promise that two may copy at once
}

// Grammar reads a grammar in the language of llama.cpp (GBNF), whose rule root is all of the text,
// or, unless trigger is empty, the text after the first trigger: the text before is free.
func (v *Vocabulary) Grammar(text, trigger string) (*Grammar, error) {
	byBytes, err := gbnf.Check(text)
	if err != nil {
		return nil, err
	}
	s := llama.SamplerInitGrammar(v.vocab, text, "root")
	if v.sort(); s == 0 {
		return nil, fmt.Errorf("found a grammar that llama.cpp does not read, such as one with the name of no token")
	}
	g := &Grammar{of: v, begun: s, trigger: trigger, bytes: byBytes}
	runtime.AddCleanup(g, func(s llama.Sampler) { llama.SamplerFree(s) }, s)
	return g, nil
}

// grammarState is the state of a grammar in one sequence. It is for one goroutine at a time.
type grammarState struct {
	of     *Grammar
	s      llama.Sampler
	waits  bool   // for the trigger
	off    bool   // the text after the trigger is none of the grammar: all is free
	tail   []byte // of the text, in which the trigger may begin
	room   []byte
	list   []llama.TokenData
	array  llama.TokenDataArray
	ids    []uint32
	places []int32
	next   []int32
	// few are the tokens that left has found, if known, and all that are allowed if whole.
	few          []uint32
	known, whole bool
}

// start returns the state at the beginning.
func (g *Grammar) start() *grammarState {
	g.copying.Lock()
	defer g.copying.Unlock()
	s := &grammarState{of: g, s: llama.SamplerClone(g.begun), waits: g.trigger != ""}
	runtime.AddCleanup(s, func(x llama.Sampler) { llama.SamplerFree(x) }, s.s)
	runtime.KeepAlive(g)
	return s
}

// free reports whether all tokens are allowed now, and nothing is to be judged.
func (s *grammarState) free() bool { return s == nil || s.waits || s.off }

// judge leaves the allowed ones of ids, in their order.
func (s *grammarState) judge(ids []uint32) []uint32 {
	if len(ids) == 0 {
		return ids
	}
	s.list = s.list[:0]
	for _, id := range ids {
		s.list = append(s.list, llama.TokenData{Id: llama.Token(id)})
	}
	s.array = llama.TokenDataArray{Data: &s.list[0], Size: uint64(len(s.list)), Selected: -1}
	llama.SamplerApply(s.s, &s.array)
	n := 0
	for i, x := range s.list {
		if !math.IsInf(float64(x.Logit), -1) {
			ids[n] = ids[i]
			n++
		}
	}
	return ids[:n]
}

// allows judges one token.
func (s *grammarState) allows(id uint32) bool {
	s.ids = append(s.ids[:0], id)
	return len(s.judge(s.ids)) == 1
}

// mostFew bounds the tokens that are judged before a search, to find out whether there are few: it
// takes a small part of the time of a token.
const mostFew = 1024

// left returns the allowed tokens, unless more than mostFew must be judged for that. The list is
// valid until the next accept.
func (s *grammarState) left() (ids []uint32, whole bool) {
	if !s.known {
		s.few, s.whole = s.walk(s.few[:0], mostFew)
		s.known = true
	}
	return s.few, s.whole
}

// all appends all allowed tokens.
func (s *grammarState) all(dst []uint32) []uint32 {
	dst, _ = s.walk(dst, math.MaxInt)
	return dst
}

// walk appends all allowed tokens to dst, and judges at most so many: otherwise the list is not
// whole. A token that begins with another one is judged if that is allowed.
func (s *grammarState) walk(dst []uint32, most int) (list []uint32, whole bool) {
	v := s.of.of
	dst = append(dst, s.judge(append(s.ids[:0], v.ending...))...)
	if !s.of.bytes {
		if len(v.ids) > most {
			return dst, false
		}
		s.ids = append(s.ids[:0], v.ids...)
		return append(dst, s.judge(s.ids)...), true
	}
	s.next = s.next[:0]
	for p := int32(0); p < int32(len(v.ids)); p = v.after[p] {
		s.next = append(s.next, p)
	}
	for judged := 0; len(s.next) > 0; {
		if judged += len(s.next); judged > most {
			return dst, false
		}
		s.places, s.next = s.next, s.places[:0]
		s.ids = s.ids[:0]
		for _, p := range s.places {
			s.ids = append(s.ids, v.ids[p])
		}
		allowed := s.judge(s.ids)
		dst = append(dst, allowed...)
		at := 0
		for _, id := range allowed { // in the order of the places
			for v.ids[s.places[at]] != id {
				at++
			}
			p := s.places[at]
			for child := p + 1; child < v.after[p]; child = v.after[child] {
				if s.next = append(s.next, child); judged+len(s.next) > most {
					return dst, false
				}
			}
		}
	}
	return dst, true
}

// accept continues with a token that is allowed.
func (s *grammarState) accept(id uint32) {
	switch {
	case s.off:
	case s.waits:
		s.waitsFor(id)
	default:
		llama.SamplerAccept(s.s, llama.Token(id))
		s.known = false
	}
}

// waitsFor looks for the trigger, and continues with the text after it.
func (s *grammarState) waitsFor(id uint32) {
	if s.room == nil {
		s.room = make([]byte, 64)
	}
	s.tail = append(s.tail, s.of.of.text(s.room, id)...)
	_, rest, found := strings.Cut(string(s.tail), s.of.trigger)
	if !found {
		keep := min(len(s.tail), len(s.of.trigger)-1)
		s.tail = append(s.tail[:0], s.tail[len(s.tail)-keep:]...)
		return
	}
	s.waits, s.tail = false, nil
	// The token that completes the trigger may have more text, which tokens of one byte spell.
	for _, c := range []byte(rest) {
		of := s.of.of.bytes[c]
		if s.off = of < 0 || !s.allows(uint32(of)); s.off {
			return
		}
		llama.SamplerAccept(s.s, llama.Token(of))
	}
}

// The part of a Chooser that a grammar takes part in.

// mostRedraws is the number of further draws before all tokens are judged.
const mostRedraws = 20

// mostJudged is the number of best tokens that are judged when a drawn one is refused: more than
// that are found as all allowed ones.
const mostJudged = 256

// Begin begins the choice of a token under a grammar, before Next: it finds out whether there are few.
func (c *Chooser) Begin() {
	c.few = nil
	if c.grammar.free() {
		return
	}
	if ids, whole := c.grammar.left(); whole {
		c.few = c.usable(ids)
	}
}

// usable leaves out tokens that other options forbid. Where the text is complete one that ends it
// stays: nothing else can be written.
func (c *Chooser) usable(ids []uint32) []uint32 {
	if c.usables == nil {
		c.usables = []uint32{}
	}
	c.usables = c.usables[:0]
	goesOn := func(id uint32) bool { return !slices.Contains(c.grammar.of.of.ending, id) }
	if len(ids) > 0 && !slices.ContainsFunc(ids, goesOn) {
		return append(c.usables, ids[0])
	}
	for _, id := range ids {
		if int64(id) < int64(c.head.Labels()) && (c.Allowed == nil || c.Allowed.Has(id)) && (c.Banned == nil || !c.Banned.Has(id)) {
			c.usables = append(c.usables, id)
		}
	}
	return c.usables
}

// judged returns the token that was chosen among all if the grammar allows it. Otherwise it chooses
// among the tokens that it allows, as llama.cpp's server does: among the best few if these are all
// that the truncations leave, else among all.
func (c *Chooser) judged(id uint32, exactly bool, h []float32, history []uint32) (uint32, bool, error) {
	if c.grammar.free() || c.few != nil || c.grammar.allows(id) {
		return id, exactly, nil
	}
	for range c.redraws { // without truncations: the first allowed of several draws has the masked distribution
		id, again, err := c.any(h, history)
		if exactly = exactly || again; err != nil || c.grammar.allows(id) {
			return id, exactly, err
		}
	}
	if c.best > 0 {
		if c.found = c.found[:cap(c.found)]; len(c.found) < mostJudged {
			c.found = make([]l2s.Prediction, mostJudged)
		}
		k := min(mostJudged, c.head.Labels())
		a, err := c.head.Search(c.found[:k], h, c.request())
		if err != nil {
			return 0, false, err
		}
		ids := make([]uint32, a.Count)
		for i, p := range c.found[:a.Count] {
			ids[i] = p.ID
		}
		if ids = c.grammar.judge(ids); len(ids) >= c.best {
			id, err := c.chooseAmong(ids[:c.best], h, history)
			return id, exactly || a.Exact, err
		}
	}
	ids := c.usable(c.grammar.all(nil))
	id, err := c.chooseAmong(ids, h, history)
	return id, true, err
}

// chooseAmong chooses among a list of tokens, of which it reads the rows alone.
func (c *Chooser) chooseAmong(ids []uint32, h []float32, history []uint32) (uint32, error) {
	switch {
	case len(ids) == 0:
		return 0, ErrNoToken
	case len(ids) == 1:
		return ids[0], nil
	case c.draw == nil:
		var found [1]l2s.Prediction
		r := l2s.Request{Among: l2s.Only(ids), Biases: c.Biases}
		a, err := c.head.Search(found[:], h, r)
		if err == nil && a.Count == 0 {
			err = ErrNoToken
		}
		return found[0].ID, err
	}
	draw := c.draw
	if c.Options.TopK == 0 && len(ids) <= mostFew {
		// A top-k that keeps all of them changes nothing, and has the sampler read their rows alone.
		if c.small == nil {
			o := c.Options
			o.TopK, o.Seed = mostFew, o.Seed^0x6a736f6e // other numbers than those of the other draws
			var err error
			if c.small, err = c.head.Sampler(o); err != nil {
				return 0, err
			}
		}
		draw = c.small
	}
	if c.only == nil {
		c.only = bitset.New(c.head.Labels())
	}
	c.only.Clear()
	for _, id := range ids {
		c.only.Add(id)
	}
	e := c.edits(history)
	e.Allowed = c.only
	t, err := draw.Draw(h, e)
	return t.ID, err
}

// Restart begins the grammar anew.
func (c *Chooser) Restart() { c.grammar = c.Grammar.start() }

// Accept tells the grammar the token that is written.
func (c *Chooser) Accept(id uint32) {
	if c.grammar != nil {
		c.grammar.accept(id)
	}
}

// Forced returns the only token that may be next, if there is one, or one of those that end the text,
// if there are no others.
func (c *Chooser) Forced() (id uint32, ok bool) {
	if c.grammar.free() {
		return 0, false
	}
	ids, whole := c.grammar.left()
	if !whole {
		return 0, false
	}
	ids = c.usable(ids)
	for _, id := range ids[min(1, len(ids)):] {
		if !slices.Contains(c.grammar.of.of.ending, id) {
			return 0, false
		}
	}
	if len(ids) == 0 || len(ids) > 1 && !slices.Contains(c.grammar.of.of.ending, ids[0]) {
		return 0, false
	}
	return ids[0], true
}
