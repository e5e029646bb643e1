package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/learning-to-screen/l2s/beam"
	"github.com/learning-to-screen/l2s/benchmarks/internal/inorder"
	"github.com/learning-to-screen/l2s/benchmarks/internal/measure"
	"github.com/learning-to-screen/l2s/benchmarks/internal/seq2seq"
	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/internal/progress"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// wholeOptions are the options of the measurement of whole times: sentences by group together, with
// a beam of width, on threads.
type wholeOptions struct {
	screen                        string
	width, group, threads, rounds int
	alpha                         float64
	longest                       int
}

// wholeTime has the times of one translation of all sentences. The decoder is all but the softmax
// layer: encoder, decoder and search. Both are summed over the threads.
type wholeTime struct{ wall, decoder, layer float64 }

// whole measures translations from the words of a sentence to the words of its
// translation, with each softmax layer. The layers take turns, in rounds.
func whole(ctx context.Context, d *data, o wholeOptions, stdout io.Writer, p *progress.Printer) error {
	l := d.model.Layer()
	list := []struct {
		name     string
		searcher searchers
		times    []wholeTime
		differ   int
	}{
		{name: "dense float32", searcher: func() (beam.Searcher, error) { return newOneScan(l), nil }},
		{name: "dense float32, rows shared by a step", searcher: func() (beam.Searcher, error) { return newShared(l), nil }},
		{name: "exact, int8 codes", searcher: func() (beam.Searcher, error) { return softmax.NewSearcher(l), nil }},
	}
	if o.screen != "" {
		m, err := screen.Load(o.screen)
		if err != nil {
			return err
		}
		list = append(list, list[0])
		x := &list[len(list)-1]
		x.name, x.searcher = filepath.Base(o.screen), func() (beam.Searcher, error) { return screen.NewSearcher(m, l, screen.Options{}) }
	}
	var sentences [][]uint32
	for _, pair := range d.test {
		sentences = append(sentences, pair.Source)
	}
	p.Start("translating", "rounds", o.rounds)
	var exact []string
	for round := range o.rounds + 1 { // the first one warms the caches up
		for i := range list {
			// Each round begins with another layer.
			x := &list[(i+round)%len(list)]
			t, text, err := translateWhole(ctx, d, sentences, x.searcher, o)
			if err != nil {
				return err
			}
			if round > 0 {
				x.times = append(x.times, t)
				continue
			}
			if exact == nil {
				exact = text // the dense scan is the first of the first round
			}
			for j := range text {
				if text[j] != exact[j] {
					x.differ++
				}
			}
		}
		p.Set(round)
	}
	p.End()
	n := float64(len(sentences))
	median := func(times []wholeTime, of func(t wholeTime) float64) float64 {
		var list []float64
		for _, t := range times {
			list = append(list, of(t))
		}
		slices.Sort(list)
		return measure.Quantile(list, 0.5)
	}
	fmt.Fprintf(stdout, "%d sentences by %d, beam %d, %d threads; medians of %d rounds, ms a sentence\n\n", len(sentences), o.group, o.width, parallel.Threads(o.threads, len(sentences)), o.rounds)
	fmt.Fprintf(stdout, "| softmax layer | whole | decoder | layer | layer's share | of the dense whole | others than dense |\n|---|---:|---:|---:|---:|---:|---:|\n")
	base := median(list[0].times, func(t wholeTime) float64 { return t.wall })
	for _, x := range list {
		wall, decoder, layer := median(x.times, func(t wholeTime) float64 { return t.wall }), median(x.times, func(t wholeTime) float64 { return t.decoder }), median(x.times, func(t wholeTime) float64 { return t.layer })
		if _, err := fmt.Fprintf(stdout, "| %s | %.2f | %.2f | %.2f | %.0f %% | %.2f | %d |\n", x.name, 1e3*wall/n, 1e3*decoder/n, 1e3*layer/n, 100*layer/(decoder+layer), wall/base, x.differ); err != nil {
			return err
		}
	}
	return nil
}

// timedLayer adds up the time in a softmax layer.
type timedLayer struct {
	beam.Searcher
	time time.Duration
}

func (s *timedLayer) SearchBatch(dst []softmax.Prediction, answers []softmax.Answer, contexts []float32, req softmax.Request) error {
	start := time.Now()
	err := s.Searcher.SearchBatch(dst, answers, contexts, req)
	s.time += time.Since(start)
	return err
}

// wholeDecoder makes a translation model a beam.Decoder.
type wholeDecoder struct{ *seq2seq.Decoder }

func (d wholeDecoder) Step(parents []int, tokens []uint32) ([]float32, error) {
	d.Reorder(parents)
	return d.Decoder.Step(tokens), nil
}

// translateWhole translates all sentences once.
func translateWhole(ctx context.Context, d *data, sentences [][]uint32, searcher searchers, o wholeOptions) (t wholeTime, text []string, err error) {
	type piece struct {
		text []string
		t    wholeTime
	}
	m := d.model
	start := time.Now()
	err = inorder.Run(ctx, (len(sentences)+o.group-1)/o.group, o.threads, func() func(context.Context, int) (piece, error) {
		s, err := searcher()
		layer, decoder := &timedLayer{Searcher: s}, wholeDecoder{m.NewDecoder()}
		var search *beam.Search
		if err == nil {
			search, err = beam.New(decoder, layer, beam.Options{Width: o.width, MaxLen: o.longest, Start: m.Start(), End: m.End(), Alpha: o.alpha})
		}
		return func(ctx context.Context, i int) (x piece, _ error) {
			if err != nil {
				return x, err
			}
			start := time.Now()
			layer.time = 0
			part := sentences[i*o.group : min((i+1)*o.group, len(sentences))]
			decoder.Start(m.Encode(part))
			found, err := search.Run(ctx, len(part))
			if err != nil {
				return x, err
			}
			for _, h := range found {
				x.text = append(x.text, strings.Join(d.text(h.Tokens), " "))
			}
			x.t.layer = layer.time.Seconds()
			x.t.decoder = time.Since(start).Seconds() - x.t.layer
			return x, nil
		}
	}, func(x piece) error {
		text = append(text, x.text...)
		t.decoder += x.t.decoder
		t.layer += x.t.layer
		return nil
	})
	t.wall = time.Since(start).Seconds()
	return t, text, err
}
