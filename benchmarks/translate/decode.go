package main

import (
	"context"
	"slices"

	"github.com/learning-to-screen/l2s/internal/bleu"
	"github.com/learning-to-screen/l2s/internal/ordered"
	"github.com/learning-to-screen/l2s/internal/seq2seq"
	"github.com/learning-to-screen/l2s/screen/beam"
)

// scorers returns a Scorer for one goroutine.
type scorers func() (beam.Scorer, error)

// step is one step of the search of a sentence: the hypotheses that it continues,
// and their contexts.
type step struct {
	parents  []int
	tokens   []uint32
	contexts []float32
}

// translation is that of one sentence.
type translation struct {
	words []string
	cut   bool
	steps []step // where they are recorded
}

// decoder translates the sentences of a test, one at a time.
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

// translate translates all sentences with a beam of the width, on all cores.
// Where exact is nil the steps are recorded. Otherwise it is what this recorded for
// the exact layer: a search does not compute again the contexts that it has in
// common with the exact search. They would be the same bits. progress, unless nil,
// is told how many sentences are done.
func (c *decoder) translate(ctx context.Context, width int, scorer scorers, exact []translation, progress func(done int)) ([]translation, error) {
	m := c.data.model
	all := make([]translation, 0, len(c.sources))
	type work = func(context.Context, int) (translation, error)
	err := ordered.Each(ctx, len(c.sources), 0, func() work {
		w := &walker{d: m.NewDecoder(), record: exact == nil}
		s, err := scorer()
		var search *beam.Search
		if err == nil {
			search, err = beam.New(w, s, beam.Options{Width: width, MaxLen: c.longest, Start: m.Start(), End: m.End(), Alpha: c.alpha})
		}
		return func(ctx context.Context, i int) (t translation, _ error) {
			if err != nil {
				return t, err
			}
			w.source, w.steps, w.at, w.live = c.sources[i], nil, 0, false
			if exact != nil {
				w.steps = exact[i].steps
			}
			found, err := search.Run(ctx, 1)
			if err != nil {
				return t, err
			}
			t = translation{words: c.data.text(found[0].Tokens), cut: !found[0].Ended}
			if w.record {
				t.steps = w.steps
			}
			return t, nil
		}
	}, func(t translation) error {
		all = append(all, t)
		if progress != nil {
			progress(len(all))
		}
		return nil
	})
	return all, err
}

// walker is the Decoder of one sentence. As long as the search takes the steps that
// are known it answers from those, and computes from then on.
type walker struct {
	d      *seq2seq.Decoder
	source *seq2seq.Source
	record bool
	steps  []step
	at     int  // in steps
	live   bool // d is where the search is
}

func (w *walker) Step(parents []int, tokens []uint32) ([]float32, error) {
	if !w.live && w.at < len(w.steps) {
		if s := w.steps[w.at]; slices.Equal(s.parents, parents) && slices.Equal(s.tokens, tokens) {
			w.at++
			return s.contexts, nil
		}
	}
	if !w.live {
		w.live = true
		w.d.Start([]*seq2seq.Source{w.source})
		for _, s := range w.steps[:w.at] {
			w.d.Reorder(s.parents)
			w.d.Step(s.tokens)
		}
	}
	w.d.Reorder(parents)
	h := w.d.Step(tokens)
	if w.record {
		w.steps = append(w.steps, step{slices.Clone(parents), slices.Clone(tokens), slices.Clone(h)})
	}
	return h, nil
}

// score returns the BLEU of translations.
func (d *data) score(list []translation) float64 {
	var c bleu.Corpus
	for i, t := range list {
		c.Add(t.words, d.words[i])
	}
	return c.Score()
}

// batches returns what a search of group sentences together asks its Scorer for,
// step by step, for every stride-th of the sentences of an exact search: the
// contexts of a step are those of the sentences that are not done, in order.
func batches(exact []translation, stride, group int) (list [][]float32) {
	var some []translation
	for i := 0; i < len(exact); i += stride {
		some = append(some, exact[i])
	}
	for part := range slices.Chunk(some, group) {
		for at := 0; ; at++ {
			var together []float32
			for _, t := range part {
				if at < len(t.steps) {
					together = append(together, t.steps[at].contexts...)
				}
			}
			if together == nil {
				break
			}
			list = append(list, together)
		}
	}
	return list
}
