package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/learning-to-screen/l2s"
	l2sengine "github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/previewing"
	"github.com/learning-to-screen/l2s/llamacpp"
)

// AnswerTokens bounds the tokens of an answer of [Engine.Score].
const AnswerTokens = 512

// Answer is the score of an answer.
type Answer struct {
	Tokens   []uint32
	LogProbs []float64 // of each token, given all before
}

// score is the work on answers after a prompt.
type score struct {
	answers [][]uint32
	next    int // the first that has no log-probabilities but of its first token
	begun   bool
}

// Score asks for the log-probabilities of the tokens of answers after a prompt. The prompt is read
// once, and the answers share its cache: each adds its own tokens except the last. Result.Answers
// has them.
func (e *Engine) Score(ctx context.Context, prompt []uint32, answers [][]uint32) (*Job, error) {
	p, err := e.Reserve()
	if err != nil {
		return nil, err
	}
	defer p.Free()
	return p.Score(ctx, Request{Prompt: prompt}, answers)
}

// Score is [Engine.Score] at a place. Of the request it takes Prompt, Alone and Fresh.
func (p *Place) Score(ctx context.Context, r Request, answers [][]uint32) (*Job, error) {
	e, prompt := p.e, r.Prompt
	j := &Job{Request: Request{Prompt: prompt, Most: -1, Alone: r.Alone, Fresh: r.Fresh}, ctx: ctx, head: e.Head(), done: make(chan struct{}), score: &score{answers: answers}}
	if err := e.check(prompt); err != nil {
		return nil, err
	}
	if e.o.Forks == 0 {
		return nil, errors.New("found an engine without forks, expected one at least")
	}
	for i, a := range answers {
		switch {
		case len(a) == 0 || len(a) > AnswerTokens:
			return nil, fmt.Errorf("answers[%d]: found %d tokens, expected 1 to %d", i, len(a), AnswerTokens)
		case len(prompt)+len(a)-1 > e.m.Context():
			return nil, &TooLongError{len(prompt) + len(a) - 1, e.m.Context()}
		}
		for _, id := range a {
			if int64(id) >= int64(j.head.Labels()) {
				return nil, fmt.Errorf("answers[%d]: found token %d, expected one below the %d of the head", i, id, j.head.Labels())
			}
		}
	}
	return j, p.take(j)
}

// scores continues with the answers of a slot: first all of one token, then batches of the others.
func (e *Engine) scores(ctx context.Context, s *slot) {
	if err := e.scoresSome(ctx, s); err != nil {
		e.end(s, "", err)
	} else if s.job.score.next == len(s.job.score.answers) {
		e.end(s, Full, nil)
	}
}

func (e *Engine) scoresSome(ctx context.Context, s *slot) error {
	w, r := s.job.score, &s.job.result
	if !w.begun {
		w.begun = true
		sums, err := e.logSums(s.job.head, s.h)
		if err != nil {
			return err
		}
		for _, a := range w.answers {
			p, err := e.logProb(s.job.head, s.h, a[0], sums[0])
			if err != nil {
				return err
			}
			r.Answers = append(r.Answers, Answer{a, append(make([]float64, 0, len(a)), p)})
		}
	}
	for w.next < len(w.answers) && len(w.answers[w.next]) == 1 {
		w.next++
	}
	e.tokens = e.tokens[:0]
	first, fork := w.next, 0
	for ; w.next < len(w.answers); w.next++ {
		a := w.answers[w.next]
		if len(a) == 1 {
			continue
		}
		if fork == e.o.Forks || fork > 0 && len(e.tokens)+len(a)-1 > chunk {
			break
		}
		sequence := s.forks + fork
		fork++
		if err := s.m.Copy(sequence, s.number); err != nil {
			return err
		}
		for _, id := range a[:len(a)-1] {
			e.tokens = append(e.tokens, llamacpp.Token{Sequence: sequence, ID: id, State: true})
		}
	}
	if fork == 0 {
		return nil
	}
	defer func() {
		for i := range fork {
			s.m.Clear(s.forks + i)
		}
	}()
	start := time.Now()
	states, err := s.m.Decode(ctx, e.tokens...)
	if err != nil {
		return err
	}
	e.step.Read, e.step.Reading = e.step.Read+len(e.tokens), e.step.Reading+time.Since(start)
	sums, err := e.logSums(s.job.head, states)
	if err != nil {
		return err
	}
	d := e.m.Dim()
	for i := first; i < w.next; i++ {
		a := &r.Answers[i]
		for _, id := range a.Tokens[1:] {
			p, err := e.logProb(s.job.head, states[:d], id, sums[0])
			if err != nil {
				return err
			}
			a.LogProbs = append(a.LogProbs, p)
			states, sums = states[d:], sums[1:]
		}
	}
	return nil
}

// logSums returns log Z of each state, of one search for all.
func (e *Engine) logSums(x *llamacpp.Head, states []float32) ([]float64, error) {
	defer func(start time.Time) { e.step.Head += time.Since(start) }(time.Now())
	d := e.m.Dim()
	sums := make([]float64, len(states)/d)
	r := sum(x)
	r.LogSum = true
	answers := make([]l2s.Answer, len(sums))
	if err := x.SearchBatch(nil, answers, states, r); err != nil {
		return nil, err
	}
	for i, a := range answers {
		sums[i] = a.LogSum
	}
	return sums, nil
}

func (e *Engine) logProb(x *llamacpp.Head, h []float32, id uint32, logSum float64) (float64, error) {
	if len(e.logits) == 0 {
		e.logits = make([]float64, 1)
	}
	err := x.Logits(e.logits, h, id)
	return min(e.logits[0]-logSum, 0), err
}

// Rung returns the rung of a budget, 0 for the preview's own: the last that keeps no more.
func Rung(preview *l2s.Index, budget float64) previewing.Rung {
	x := (*l2sengine.Index)(preview)
	return x.Preview().Parts().Rungs[x.StepOf(budget)]
}
