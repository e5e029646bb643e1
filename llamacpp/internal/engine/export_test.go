package engine

import (
	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/llamacpp"
)

// NextOfSearch chooses a token as a search for several states does, and reports false if the
// chooser is not for that.
func NextOfSearch(c *Chooser, x *llamacpp.Head, h []float32, history []uint32) (uint32, bool, error) {
	if c.width == 0 || !c.same(c) {
		return 0, false, nil
	}
	found, answers := make([]l2s.Prediction, 2*c.width), make([]l2s.Answer, 2)
	if err := x.SearchBatch(found, answers, append(h[:len(h):len(h)], h...), c.request()); err != nil {
		return 0, false, err
	}
	id, err := c.choose(h, history, found[c.width:][:answers[1].Count])
	return id, true, err
}

// Asked is the request of a slot.
type Asked struct {
	Sampling
	LogProbs int
	H        []float32
	History  []uint32
}

// Choices are the tokens of one step of an engine for slots with these states, in their order.
func Choices(e *Engine, all []Asked) ([]Token, error) {
	e.ready = e.ready[:0]
	for _, a := range all {
		c, err := NewChooser(e.Head(), a.Sampling)
		if err != nil {
			return nil, err
		}
		e.ready = append(e.ready, &slot{job: &Job{choose: c, head: c.head, Request: Request{LogProbs: a.LogProbs}}, h: a.H, history: a.History})
	}
	e.choosesAll()
	var tokens []Token
	for _, s := range e.ready {
		if s.chosen.err != nil {
			return nil, s.chosen.err
		}
		tokens = append(tokens, s.chosen.Token)
	}
	return tokens, nil
}

// Doubt counts the reason for which the exact layer answers about a state.
func Doubt(c *Chooser, h []float32) (f Fallbacks) {
	newDoubter(c).count(h, &f)
	return f
}

// GrammarWalk returns the allowed tokens after some, by the walk over the vocabulary, and how many of
// the tokens are allowed, one after the other.
func GrammarWalk(g *Grammar, after []uint32) (allowed []uint32, accepted int) {
	s := g.start()
	for _, id := range after {
		if !s.free() && !s.allows(id) {
			break
		}
		s.accept(id)
		accepted++
	}
	return s.all(nil), accepted
}

// Few is the number of tokens that the grammar leaves, -1 if they are many.
func (c *Chooser) Few() int {
	if c.few == nil {
		return -1
	}
	return len(c.few)
}
