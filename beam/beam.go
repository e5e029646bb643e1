// Package beam decodes by beam search over a softmax layer, exact or screened: the use of a
// screen in machine translation ("Learning to Screen for Fast Softmax Inference on Large
// Vocabulary Neural Networks", Section 4).
//
// A [Search] drives a [Decoder], which turns hypotheses into context vectors, and an l2s.Asker,
// which finds the best next labels of each with their log-probabilities: the label's logit minus the
// log-sum of the answer. By a screen, labels that are no candidates count as impossible; every list
// should have the end of a sentence (train.Options.Always), or hypotheses there cannot end.
//
// Several sentences are decoded together, so that the contexts of one step share the loads of
// rows. Other sentences do not change a result, if they do not change its contexts. Ties
// are broken in a fixed order, so equal contexts give equal results on every CPU.
package beam

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
)

// Decoder computes contexts.
type Decoder interface {
	// Step lets hypothesis i, for each i below len(parents), continue hypothesis
	// parents[i] of the step before, by tokens[i], and returns their contexts, row-major,
	// in that order. In the first step parents[i] = i is the number of a sentence, and
	// tokens[i] is Options.Start. The arguments are valid during the call, the result until
	// the next.
	Step(parents []int, tokens []uint32) (contexts []float32, err error)
}

// Options are the options of a Search.
type Options struct {
	// Width is the number of hypotheses kept for a sentence, at least 1: 1 is greedy.
	Width int
	// MaxLen is the number of tokens after which a hypothesis is cut, at least 1.
	MaxLen int
	// Start is the token that the first step reads, End the token that ends a hypothesis.
	Start, End uint32
	// Alpha is the length normalisation: the score of a hypothesis of n tokens, End included, is
	// its log-probability divided by n^Alpha: with 1 the mean per token, with 0 the log-probability
	// itself. It is finite and not negative. It only affects the choice among ended hypotheses:
	// within a step all have the same length.
	Alpha float64
	// Candidates is the k of the requests: at most the number of
	// labels. 0 is Width, which is always enough.
	Candidates int
}

// Hypothesis is the result for a sentence.
type Hypothesis struct {
	// Tokens are the tokens, without End. They are valid until the next Run.
	Tokens []uint32
	// LogProb is the sum of the log-probabilities of the tokens and of End.
	LogProb float64
	// Score is LogProb, normalised for the length.
	Score float64
	// Ended is false if the hypothesis was cut: at MaxLen, or because there was no label to
	// continue with. A cut hypothesis is the result only if no hypothesis of the sentence ended.
	Ended bool
}

// Search is a beam search, for one goroutine, as its Decoder is. After its
// largest batch and longest result it allocates nothing.
//
// [New] makes one: a zero value has no use, and its methods may panic.
type Search struct {
	decoder Decoder
	asker   l2s.Asker
	opt     Options

	nodes     []node // of all hypotheses of a run: a forest
	live      []hypothesis
	next      []hypothesis
	pool      []hypothesis // the continuations of one sentence
	parents   []int
	tokens    []uint32
	top       []l2s.Prediction
	answers   []l2s.Answer
	sentences []sentence
	results   []Hypothesis
	text      []uint32
}

// node is the last token of a hypothesis and the node before it, -1
// for nothing.
type node struct {
	before int
	token  uint32
}

// hypothesis is one that has not ended.
type hypothesis struct {
	sentence int
	logp     float64
	parent   int // its place in the step before
	before   int // node of its parent
	token    uint32
	node     int
}

// sentence is the state of one: the number of its ended hypotheses, and its result so far.
type sentence struct {
	ended int
	best  Hypothesis // without its tokens
	node  int        // of the last one
	found bool       // there is a result
}

// New returns a search. Errors name the option, the value found and the value expected.
func New(d Decoder, s l2s.Asker, opt Options) (*Search, error) {
	switch {
	case d == nil || s == nil:
		return nil, errors.New("beam: found no decoder or no searcher, expected both")
	case opt.Width < 1:
		return nil, fmt.Errorf("beam: width: found %d, expected at least 1", opt.Width)
	case opt.MaxLen < 1:
		return nil, fmt.Errorf("beam: maximum length: found %d, expected at least 1", opt.MaxLen)
	case !(opt.Alpha >= 0) || math.IsInf(opt.Alpha, 0):
		return nil, fmt.Errorf("beam: alpha: found %v, expected a finite number that is not negative", opt.Alpha)
	case opt.Candidates < 0:
		return nil, fmt.Errorf("beam: candidates: found %d, expected at least 0", opt.Candidates)
	}
	if opt.Candidates == 0 {
		opt.Candidates = opt.Width
	}
	return &Search{decoder: d, asker: s, opt: opt}, nil
}

// Run decodes n sentences, n >= 0, which the Decoder knows by their numbers, and returns the
// best hypothesis of each, valid until the next Run.
//
// At each step the hypotheses of a sentence are continued by their best labels; Run keeps the
// continuations with the largest log-probability, Width less the number of ended hypotheses; equals
// in the order of their parents, then of their labels. A sentence is done when Width hypotheses
// have ended, or none remains. The result is the ended hypothesis with the largest score, and among
// equals the one that ended first.
//
// Run returns the errors of the Decoder and the Asker, and the error of ctx, which it looks
// at before each step.
func (s *Search) Run(ctx context.Context, n int) ([]Hypothesis, error) {
	if n < 0 {
		return nil, fmt.Errorf("beam: sentences: found %d, expected at least 0", n)
	}
	s.nodes, s.live = s.nodes[:0], s.live[:0]
	s.sentences = mem.Grow(s.sentences, n)
	clear(s.sentences)
	for i := range n {
		s.live = append(s.live, hypothesis{sentence: i, parent: i, token: s.opt.Start, node: -1})
	}
	for length := 1; length <= s.opt.MaxLen && len(s.live) > 0; length++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := s.step(length); err != nil {
			return nil, err
		}
	}
	for _, h := range s.live {
		s.offer(h, h.node, s.opt.MaxLen, false)
	}
	return s.collect(), nil
}

// step makes all hypotheses one token longer: length tokens.
func (s *Search) step(length int) error {
	s.parents, s.tokens = s.parents[:0], s.tokens[:0]
	for _, h := range s.live {
		s.parents, s.tokens = append(s.parents, h.parent), append(s.tokens, h.token)
	}
	contexts, err := s.decoder.Step(s.parents, s.tokens)
	if err != nil {
		return err
	}
	k := s.opt.Candidates
	s.top, s.answers = mem.Grow(s.top, k*len(s.live)), mem.Grow(s.answers, len(s.live))
	if err := s.asker.SearchBatch(s.top, s.answers, contexts, l2s.Request{LogSum: true}); err != nil {
		return err
	}
	s.next = s.next[:0]
	for first := 0; first < len(s.live); {
		number := s.live[first].sentence
		end := first
		s.pool = s.pool[:0]
		for ; end < len(s.live) && s.live[end].sentence == number; end++ {
			h := s.live[end]
			for _, p := range s.top[end*k:][:s.answers[end].Count] {
				s.pool = append(s.pool, hypothesis{sentence: number, logp: h.logp + (p.Logit - s.answers[end].LogSum), parent: end, before: h.node, token: p.ID})
			}
		}
		if len(s.pool) == 0 {
			s.offer(s.live[first], s.live[first].node, length-1, false)
		}
		s.extend(&s.sentences[number], length)
		first = end
	}
	s.live, s.next = s.next, s.live
	return nil
}

// extend takes the best continuations of a sentence from the pool.
func (s *Search) extend(sen *sentence, length int) {
	slices.SortFunc(s.pool, func(a, b hypothesis) int {
		return cmp.Or(cmp.Compare(b.logp, a.logp), cmp.Compare(a.parent, b.parent), cmp.Compare(a.token, b.token))
	})
	for _, h := range s.pool[:min(s.opt.Width-sen.ended, len(s.pool))] {
		if h.token == s.opt.End {
			sen.ended++
			s.offer(h, h.before, length, true)
			continue
		}
		h.node = len(s.nodes)
		s.nodes = append(s.nodes, node{h.before, h.token})
		s.next = append(s.next, h)
	}
}

// offer makes h, of n tokens up to a node, the result of its sentence if it is better: ended
// before cut, then by score.
func (s *Search) offer(h hypothesis, node, n int, ended bool) {
	sen, score := &s.sentences[h.sentence], s.score(h.logp, n)
	if b := sen.best; !sen.found || ended && !b.Ended || ended == b.Ended && score > b.Score {
		sen.best, sen.node, sen.found = Hypothesis{LogProb: h.logp, Score: score, Ended: ended}, node, true
	}
}

// score normalises by the length. Not by math.Pow, which differs between CPUs.
func (s *Search) score(logp float64, n int) float64 {
	switch {
	case n == 0 || s.opt.Alpha == 0:
		return logp
	case s.opt.Alpha == 1:
		return logp / float64(n)
	}
	return logp / kernels.Exp(s.opt.Alpha*kernels.Log(float64(n)))
}

// collect reads the results off the forest.
func (s *Search) collect() []Hypothesis {
	s.text, s.results = s.text[:0], s.results[:0]
	for _, sen := range s.sentences {
		start := len(s.text)
		for at := sen.node; at >= 0; at = s.nodes[at].before {
			s.text = append(s.text, s.nodes[at].token)
		}
		sen.best.Tokens = slices.Clip(s.text[start:])
		slices.Reverse(sen.best.Tokens)
		s.results = append(s.results, sen.best)
	}
	return s.results
}
