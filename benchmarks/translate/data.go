package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/benchmarks/internal/npy"
	"github.com/learning-to-screen/l2s/benchmarks/internal/seq2seq"
	"github.com/learning-to-screen/l2s/benchmarks/internal/text"
	"github.com/learning-to-screen/l2s/internal/engine"
	"github.com/learning-to-screen/l2s/internal/exact"
	"github.com/learning-to-screen/l2s/internal/progress"
	"github.com/learning-to-screen/l2s/internal/vocab"
	"github.com/learning-to-screen/l2s/train"
)

// The languages of the model.
const from, to = "de", "en"

// data is a translation model with its texts.
type data struct {
	name    string
	dir     string
	model   *seq2seq.Model
	sources []string // the lines to translate, unchanged
	test    []seq2seq.Pair
	train   []seq2seq.Pair // of these the contexts to learn from are made
	held    []seq2seq.Pair // a part of these, which sets margins
	words   [][]string     // the references of test
}

// heldOut is the share of the pairs for training that only measurements use.
const heldOut = 30 // one of this number

// load reads the model in dir and its texts: train and test, a file per language, at most limit
// pairs of each, all if limit is 0.
func load(ctx context.Context, dir string, limit int) (*data, error) {
	m, err := seq2seq.Load(dir, from, to)
	if err != nil {
		return nil, err
	}
	d := &data{name: filepath.Base(dir), dir: dir, model: m}
	if d.sources, d.words, d.test, err = d.pairs("test", limit); err != nil {
		return nil, err
	}
	_, _, pairs, err := d.pairs("train", limit)
	if err != nil {
		return nil, err
	}
	at := len(pairs) - (len(pairs)+heldOut-1)/heldOut
	if d.train, d.held = pairs[:at], pairs[at:]; at == 0 {
		return nil, fmt.Errorf("%s: found %d pairs, expected at least 2", filepath.Join(dir, "train."+from), len(pairs))
	}
	return d, ctx.Err()
}

// pairs reads the pairs of a text, and the lines of its sources and the words of its translations,
// unchanged. Pairs with an empty line are left out.
func (d *data) pairs(name string, limit int) (lines []string, words [][]string, pairs []seq2seq.Pair, err error) {
	read := func(language string, v *vocab.Vocab) (sentences []string, ids [][]uint32, err error) {
		path := filepath.Join(d.dir, name+"."+language)
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, nil, err
		}
		for line := range strings.Lines(string(content)) {
			sentences = append(sentences, strings.TrimSpace(line))
		}
		for line, err := range text.Lines(v, strings.NewReader(string(content)), path) {
			if err != nil {
				return nil, nil, err
			}
			ids = append(ids, line)
		}
		return sentences, ids, nil
	}
	sources, in, err := read(from, d.model.Source())
	if err != nil {
		return nil, nil, nil, err
	}
	targets, out, err := read(to, d.model.Target())
	if err != nil {
		return nil, nil, nil, err
	}
	if len(in) != len(out) || len(sources) != len(in) || len(targets) != len(out) {
		return nil, nil, nil, fmt.Errorf("%s: found %d lines, expected %d, the number of %s.%s", filepath.Join(d.dir, name+"."+to), len(out), len(in), name, from)
	}
	for i := range in {
		if len(in[i]) == 0 || len(out[i]) == 0 {
			continue
		}
		if len(pairs) == limit && limit > 0 {
			break
		}
		lines, words = append(lines, sources[i]), append(words, strings.Fields(targets[i]))
		pairs = append(pairs, seq2seq.Pair{Source: in[i], Target: out[i]})
	}
	if len(pairs) == 0 {
		return nil, nil, nil, fmt.Errorf("%s: found no pair of sentences, expected some", filepath.Join(d.dir, name+"."+from))
	}
	return lines, words, pairs, nil
}

// contexts are the contexts of pairs: the ones under teacher forcing, then the ones of
// the model's own greedy decoding.
type contexts struct {
	rows       []float32 // n x d
	references int       // of the n
	release    func() error
}

// contexts returns the contexts of pairs, from the folder cache if it has them. It includes the
// model's own decoding if own is true.
func (d *data) contexts(ctx context.Context, name string, pairs []seq2seq.Pair, own bool, longest int, cache string, p *progress.Printer) (*contexts, error) {
	c := &contexts{}
	for _, pair := range pairs {
		c.references += len(pair.Target) + 1
	}
	dim := d.model.Dim()
	var err error
	c.rows, c.release, err = npy.Kept(cache, name, fmt.Sprintf("%v %d %v", own, longest, pairs), []string{filepath.Join(d.dir, "model.safetensors")}, dim, func(w *npy.Writer) error {
		return d.writeContexts(ctx, w, name, pairs, own, longest, p)
	})
	if err != nil {
		return nil, err
	}
	if n := len(c.rows) / dim; n < c.references || !own && n > c.references {
		c.release()
		return nil, fmt.Errorf("%s: %s: found %d contexts, expected %d under teacher forcing", cache, name, n, c.references)
	}
	return c, nil
}

func (d *data) writeContexts(ctx context.Context, w *npy.Writer, name string, pairs []seq2seq.Pair, own bool, longest int, p *progress.Printer) error {
	done := 0
	take := func(x seq2seq.Decoded) error {
		done++
		p.Set(done)
		return w.WriteRows(x.Contexts)
	}
	p.Start("contexts of "+name+", references", "pairs", len(pairs))
	if err := d.model.Contexts(ctx, pairs, 0, take); err != nil {
		return err
	}
	p.End()
	if own {
		var sentences [][]uint32
		for _, pair := range pairs {
			sentences = append(sentences, pair.Source)
		}
		done = 0
		p.Start("contexts of "+name+", own decoding", "sentences", len(pairs))
		if err := d.model.Greedy(ctx, sentences, longest, 0, take); err != nil {
			return err
		}
		p.End()
	}
	return nil
}

// labels returns the exact labels of contexts.
func labels(ctx context.Context, l *exact.Layer, rows []float32, p *progress.Printer) ([]uint32, error) {
	p.Start("labels", "contexts", len(rows)/l.Dim())
	ids, err := train.Labels(ctx, asLayer(l), rows, topK, train.RunOptions{Progress: func(r train.Progress) { p.Set(r.Done) }})
	p.End()
	return ids, err
}

// text returns words of the target vocabulary.
func (d *data) text(ids []uint32) []string {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = d.model.Target().Word(id)
	}
	return words
}

// asLayer returns the layer as package l2s has it.
func asLayer(l *exact.Layer) *l2s.Layer { return (*l2s.Layer)(engine.Over(l)) }

// exactly returns the exact search.
func exactly(l *exact.Layer) searchers { return over(l, nil, l2s.Options{}) }

// over returns searchers with an index.
func over(l *exact.Layer, x *l2s.Index, o l2s.Options) searchers {
	return func() (l2s.Asker, error) { return l2s.NewSearcher(asLayer(l), x, o) }
}
