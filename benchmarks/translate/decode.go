package main

import (
	"context"
	"errors"
	"slices"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/beam"
	"github.com/learning-to-screen/l2s/benchmarks/internal/bleu"
	"github.com/learning-to-screen/l2s/benchmarks/internal/inorder"
	"github.com/learning-to-screen/l2s/benchmarks/internal/seq2seq"
)

// searchers returns a Searcher for one goroutine.
type searchers func() (l2s.Asker, error)

// step is one step of the search of a sentence: the hypotheses that it continues,
// and their contexts.
type step struct {
	parents  []int
	tokens   []uint32
	contexts []float32
}

// translation is the translation of one sentence.
type translation struct {
	words []string
	cut   bool
	done  bool
	steps []step // if they are recorded
}

// decoder translates the sentences of a test.
type decoder struct {
	data    *data
	sources []*seq2seq.Source
	alpha   float64
	longest int
}

// newDecoder encodes the sentences to translate.
func newDecoder(d *data, alpha float64, longest int) *decoder {
	c := &decoder{data: d, alpha: alpha, longest: longest}
	for group := range slices.Chunk(d.test, 16) {
		var sentences [][]uint32
		for _, pair := range group {
			sentences = append(sentences, pair.Source)
		}
		c.sources = append(c.sources, d.model.Encode(sentences)...)
	}
	return c
}

// together is the number of sentences that are decoded at once: the weights of the
// model are read once for all. It does not change the result.
const together = 16

// search translates the sentences of the given numbers with a beam of the width, group of them
// together, on all cores, and calls take for each, in order. Each goroutine has a Decoder of its
// own, which start prepares for some of the sentences. If it returns errUnknown the sentences are
// left out.
func (c *decoder) search(ctx context.Context, numbers []int, width, group int, searcher searchers, newDecoder func() startable, take func(number int, t translation)) error {
	m := c.data.model
	type work = func(context.Context, int) ([]translation, error)
	next := 0
	return inorder.Run(ctx, (len(numbers)+group-1)/group, 0, func() work {
		d := newDecoder()
		s, err := searcher()
		var search *beam.Search
		if err == nil {
			search, err = beam.New(d, s, beam.Options{Width: width, MaxLen: c.longest, Start: m.Start(), End: m.End(), Alpha: c.alpha})
		}
		return func(ctx context.Context, i int) ([]translation, error) {
			if err != nil {
				return nil, err
			}
			part := numbers[i*group : min((i+1)*group, len(numbers))]
			list := make([]translation, len(part))
			d.start(part, list)
			found, err := search.Run(ctx, len(part))
			if errors.Is(err, errUnknown) {
				return list, nil
			}
			for j, h := range found {
				list[j].words, list[j].cut, list[j].done = c.data.text(h.Tokens), !h.Ended, true
			}
			return list, err
		}
	}, func(list []translation) error {
		for _, t := range list {
			take(numbers[next], t)
			next++
		}
		return nil
	})
}

// translate translates all sentences with a beam of the width. If exact is nil the steps are
// recorded. Otherwise it is the record of an earlier call for the exact layer: a search that takes
// no other step has the same contexts, and does not need the model; only the other searches run
// again with the model. progress, unless nil, gets the number of finished sentences.
func (c *decoder) translate(ctx context.Context, width int, searcher searchers, exact []translation, progress func(done int)) ([]translation, error) {
	all := make([]translation, len(c.sources))
	left := make([]int, len(c.sources))
	for i := range left {
		left[i] = i
	}
	done := 0
	take := func(number int, t translation) {
		if all[number] = t; t.done {
			if done++; progress != nil {
				progress(done)
			}
		}
	}
	if exact != nil {
		known := func() startable { return &known{exact: exact} }
		if err := c.search(ctx, left, width, 1, searcher, known, take); err != nil {
			return nil, err
		}
		left = slices.DeleteFunc(left, func(i int) bool { return all[i].done })
	}
	computed := func() startable { return &computed{c: c, d: c.data.model.NewDecoder(), record: exact == nil} }
	err := c.search(ctx, left, width, together, searcher, computed, take)
	return all, err
}

// startable is a Decoder that gets the sentences to decode, and may write to their translations.
type startable interface {
	beam.Decoder
	start(numbers []int, list []translation)
}

// errUnknown is the error of a search that takes a step which the exact one does not.
var errUnknown = errors.New("the contexts of this step are not known")

// known is the Decoder of one sentence that answers from the steps of the exact
// search, and fails if another one is taken.
type known struct {
	exact []translation
	steps []step // that are left
}

func (k *known) start(numbers []int, _ []translation) { k.steps = k.exact[numbers[0]].steps }

func (k *known) Step(parents []int, tokens []uint32) ([]float32, error) {
	if len(k.steps) == 0 || !slices.Equal(k.steps[0].parents, parents) || !slices.Equal(k.steps[0].tokens, tokens) {
		return nil, errUnknown
	}
	h := k.steps[0].contexts
	k.steps = k.steps[1:]
	return h, nil
}

// computed is the Decoder that runs the model.
type computed struct {
	c         *decoder
	d         *seq2seq.Decoder
	record    bool
	list      []translation
	sentences []int // of each hypothesis of the last step
	spare     []int
}

func (m *computed) start(numbers []int, list []translation) {
	var sources []*seq2seq.Source
	m.sentences, m.list = m.sentences[:0], list
	for j, i := range numbers {
		sources = append(sources, m.c.sources[i])
		m.sentences = append(m.sentences, j)
	}
	m.d.Start(sources)
}

func (m *computed) Step(parents []int, tokens []uint32) ([]float32, error) {
	m.d.Reorder(parents)
	h := m.d.Step(tokens)
	if m.record {
		m.keep(parents, tokens, h)
	}
	return h, nil
}

// keep adds a step to the translations, each sentence with its own hypotheses,
// which are neighbours.
func (m *computed) keep(parents []int, tokens []uint32, h []float32) {
	dim := len(h) / len(parents)
	m.spare = m.spare[:0]
	for _, p := range parents {
		m.spare = append(m.spare, m.sentences[p])
	}
	for from := 0; from < len(parents); {
		j, to := m.spare[from], from+1
		for to < len(parents) && m.spare[to] == j {
			to++
		}
		first := slices.Index(m.sentences, j)
		s := step{tokens: slices.Clone(tokens[from:to]), contexts: slices.Clone(h[from*dim : to*dim])}
		for _, p := range parents[from:to] {
			s.parents = append(s.parents, p-first)
		}
		m.list[j].steps = append(m.list[j].steps, s)
		from = to
	}
	m.sentences, m.spare = m.spare, m.sentences
}

// score returns the BLEU of translations.
func (d *data) score(list []translation) float64 {
	var c bleu.Corpus
	for i, t := range list {
		c.Add(t.words, d.words[i])
	}
	return c.Score()
}

// batches returns the contexts that a search of one sentence gives to its Searcher, step by step,
// for every stride-th of the sentences of an exact search.
func batches(exact []translation, stride int) (list [][]float32) {
	for i := 0; i < len(exact); i += stride {
		for _, step := range exact[i].steps {
			list = append(list, step.contexts)
		}
	}
	return list
}
