package main

import (
	"context"
	"slices"

	"github.com/learning-to-screen/l2s/internal/bleu"
	"github.com/learning-to-screen/l2s/internal/ordered"
	"github.com/learning-to-screen/l2s/internal/seq2seq"
	"github.com/learning-to-screen/l2s/screen/beam"
	"github.com/learning-to-screen/l2s/softmax"
)

// scorers returns a Scorer for one goroutine.
type scorers func() (beam.Scorer, error)

// translation is that of one sentence.
type translation struct {
	words []string
	cut   bool
}

// decoder translates the encoded sentences of a test.
type decoder struct {
	data    *data
	sources []*seq2seq.Source
	alpha   float64
	longest int
}

// newDecoder encodes the sentences to translate.
func newDecoder(d *data, alpha float64, longest int) *decoder {
	c := &decoder{data: d, alpha: alpha, longest: longest}
	for group := range slices.Chunk(d.test, decodeGroup) {
		var sentences [][]uint32
		for _, pair := range group {
			sentences = append(sentences, pair.Source)
		}
		c.sources = append(c.sources, d.model.Encode(sentences)...)
	}
	return c
}

// decodeGroup is the number of sentences that are translated together where no
// times are taken.
const decodeGroup = 16

// translate translates all sentences with a beam of the width, group of them
// together, on so many goroutines, 0 for all cores. The result does not depend on
// either. progress, unless nil, is told how many are done.
func (c *decoder) translate(ctx context.Context, sources []*seq2seq.Source, width, group, threads int, scorer scorers, progress func(done int)) ([]translation, error) {
	m := c.data.model
	all := make([]translation, 0, len(sources))
	type work = func(context.Context, int) ([]translation, error)
	err := ordered.Each(ctx, (len(sources)+group-1)/group, threads, func() work {
		d := nmtDecoder{m, m.NewDecoder()}
		s, err := scorer()
		var search *beam.Search
		if err == nil {
			search, err = beam.New(d, s, beam.Options{Width: width, MaxLen: c.longest, Start: m.Start(), End: m.End(), Alpha: c.alpha})
		}
		return func(ctx context.Context, i int) (list []translation, _ error) {
			if err != nil {
				return nil, err
			}
			part := sources[i*group : min((i+1)*group, len(sources))]
			d.d.Start(part)
			found, err := search.Run(ctx, len(part))
			for _, h := range found {
				list = append(list, translation{c.data.text(h.Tokens), !h.Ended})
			}
			return list, err
		}
	}, func(list []translation) error {
		all = append(all, list...)
		if progress != nil {
			progress(len(all))
		}
		return nil
	})
	return all, err
}

// score returns the BLEU of translations of the first sentences.
func (d *data) score(list []translation) float64 {
	var c bleu.Corpus
	for i, t := range list {
		c.Add(t.words, d.words[i])
	}
	return c.Score()
}

// step is what a search asks a Scorer for at once.
type step struct {
	contexts []float32
	n        int // contexts
}

// recorder keeps the steps that a search takes with its Scorer.
type recorder struct {
	beam.Scorer
	steps *[]step
}

func (r recorder) TopKLogSumExp(dst []softmax.Prediction, lse []float64, k int, contexts []float32) ([]int, error) {
	*r.steps = append(*r.steps, step{slices.Clone(contexts), len(lse)})
	return r.Scorer.TopKLogSumExp(dst, lse, k, contexts)
}

// record returns the steps of the exact search over every stride-th sentence, so
// that n of them take part at most, group of them together.
func (c *decoder) record(ctx context.Context, width, group, n int) ([]step, error) {
	stride := (len(c.sources) + n - 1) / n
	var some []*seq2seq.Source
	for i := 0; i < len(c.sources); i += stride {
		some = append(some, c.sources[i])
	}
	var steps []step
	exact := func() (beam.Scorer, error) { return recorder{beam.NewExact(c.data.model.Layer()), &steps}, nil }
	_, err := c.translate(ctx, some, width, group, 1, exact, nil)
	return steps, err
}
