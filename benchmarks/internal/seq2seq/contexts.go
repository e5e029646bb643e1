package seq2seq

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/learning-to-screen/l2s/benchmarks/internal/inorder"
	"github.com/learning-to-screen/l2s/internal/exact"
)

// groupLen is the number of sentences that are decoded together, so that the weights are read once
// for all of them. It changes only the speed.
const groupLen = 64

// Pair is a sentence and its translation: words, without <s> and </s>.
type Pair struct{ Source, Target []uint32 }

// Decoded is the decoder's result for one sentence.
type Decoded struct {
	// Words are the translation, without </s>.
	Words []uint32
	// Contexts are the context vectors, Dim elements each: row i is the
	// context after <s> and the first i words.
	Contexts []float32
}

// Contexts reads pairs and calls f for each, in order, with the contexts of its translation under
// teacher forcing: the decoder reads <s> and the words of Target, whatever words it would have
// chosen. There is one context more than words, the last for </s>. f may keep the slices.
//
// The work runs on threads goroutines, 0 for GOMAXPROCS, which does not change the result. f runs
// on the caller's. Contexts returns the first error of f, or the error of ctx once it is done.
func (m *Model) Contexts(ctx context.Context, pairs []Pair, threads int, f func(Decoded) error) error {
	return m.groups(ctx, len(pairs), threads, func() groupWork {
		d := m.NewDecoder()
		return func(ctx context.Context, from, to int) ([]Decoded, error) { return m.force(ctx, d, pairs[from:to]) }
	}, f)
}

// Greedy translates sentences, words without </s>, and calls f for each, in order, with its
// translation and the contexts of the decoder: at each step the word with the largest logit, until
// that is </s> or there are most words, at least 1. So there is one context more than words, except
// if the translation was cut. Otherwise it is as [Model.Contexts]. It returns an error if a context
// is not finite.
func (m *Model) Greedy(ctx context.Context, sentences [][]uint32, most, threads int, f func(Decoded) error) error {
	if most < 1 {
		return fmt.Errorf("seq2seq: words of a translation: found at most %d, expected at least 1", most)
	}
	return m.groups(ctx, len(sentences), threads, func() groupWork {
		g := &greedy{
			m: m, d: m.NewDecoder(), most: most, searcher: exact.NewSearcher(m.layer),
			best: make([]exact.Prediction, groupLen), answers: make([]exact.Answer, groupLen),
		}
		return func(ctx context.Context, from, to int) ([]Decoded, error) { return g.run(ctx, sentences[from:to]) }
	}, f)
}

// groupWork decodes the sentences from to to, at most groupLen of them.
type groupWork func(ctx context.Context, from, to int) ([]Decoded, error)

func (m *Model) groups(ctx context.Context, n, threads int, worker func() groupWork, f func(Decoded) error) error {
	if threads < 0 {
		return fmt.Errorf("seq2seq: threads: found %d, expected 0 or more", threads)
	}
	return inorder.Run(ctx, (n+groupLen-1)/groupLen, threads, func() func(context.Context, int) ([]Decoded, error) {
		work := worker()
		return func(ctx context.Context, i int) ([]Decoded, error) {
			return work(ctx, i*groupLen, min((i+1)*groupLen, n))
		}
	}, func(group []Decoded) error {
		for _, d := range group {
			if err := f(d); err != nil {
				return err
			}
		}
		return nil
	})
}

// force computes the contexts of a group of pairs.
func (m *Model) force(ctx context.Context, d *Decoder, pairs []Pair) ([]Decoded, error) {
	// In order of length the translations that continue are the first ones.
	order := make([]int, len(pairs))
	sentences, out := make([][]uint32, len(pairs)), make([]Decoded, len(pairs))
	for i, p := range pairs {
		order[i], sentences[i] = i, p.Source
		out[i] = Decoded{Words: p.Target, Contexts: make([]float32, 0, (len(p.Target)+1)*m.Dim())}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(pairs[b].Target), len(pairs[a].Target)) })

	encoded := m.Encode(sentences)
	sources := make([]*Source, len(pairs))
	tokens, parents := make([]uint32, len(pairs)), slices.Clone(order)
	for at, i := range order {
		sources[at], parents[at] = encoded[i], at
	}
	d.Start(sources)
	for t := 0; ; t++ {
		going := d.Len()
		for going > 0 && len(pairs[order[going-1]].Target) < t {
			going--
		}
		if going == 0 {
			return out, nil
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		d.Reorder(parents[:going])
		for at, i := range order[:going] {
			if t == 0 {
				tokens[at] = m.Start()
			} else {
				tokens[at] = pairs[i].Target[t-1]
			}
		}
		h := d.Step(tokens[:going])
		for at, i := range order[:going] {
			out[i].Contexts = append(out[i].Contexts, h[at*m.Dim():(at+1)*m.Dim()]...)
		}
	}
}

// greedy translates groups of sentences.
type greedy struct {
	m        *Model
	d        *Decoder
	most     int
	searcher *exact.Searcher
	best     []exact.Prediction
	answers  []exact.Answer
	tokens   []uint32
	parents  []int
	going    []int // the sentence of each hypothesis
}

func (g *greedy) run(ctx context.Context, sentences [][]uint32) ([]Decoded, error) {
	m, dim := g.m, g.m.Dim()
	out := make([]Decoded, len(sentences))
	g.d.Start(m.Encode(sentences))
	g.tokens, g.going = g.tokens[:0], g.going[:0]
	for i := range sentences {
		g.tokens, g.going = append(g.tokens, m.Start()), append(g.going, i)
	}
	for len(g.going) > 0 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n := len(g.going)
		h := g.d.Step(g.tokens)
		if err := g.searcher.SearchBatch(g.best[:n], g.answers[:n], h, exact.Request{}); err != nil {
			return nil, err
		}
		g.parents, g.tokens = g.parents[:0], g.tokens[:0]
		for at, i := range g.going {
			o := &out[i]
			o.Contexts = append(o.Contexts, h[at*dim:(at+1)*dim]...)
			word := g.best[at].ID
			if word == m.End() {
				continue
			}
			if o.Words = append(o.Words, word); len(o.Words) < g.most {
				g.going[len(g.parents)] = i
				g.parents, g.tokens = append(g.parents, at), append(g.tokens, word)
			}
		}
		g.going = g.going[:len(g.parents)]
		g.d.Reorder(g.parents)
	}
	return out, nil
}
