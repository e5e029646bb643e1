package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/learning-to-screen/l2s/internal/progress"
	"github.com/learning-to-screen/l2s/internal/seq2seq"
	"github.com/learning-to-screen/l2s/internal/tensorfile"
	"github.com/learning-to-screen/l2s/internal/vocab"
)

// pairFlags are the flags that name a translation model and pairs of
// sentences.
type pairFlags struct{ dir, name, from, to *string }

func (f *flags) pairs() pairFlags {
	same := func(s string) (string, error) { return s, nil }
	return pairFlags{
		dir:  f.text("nmt", "folder `DIR` of a translation model"),
		name: f.text("pairs", "`NAME` of the pairs of sentences in DIR/NAME.de and DIR/NAME.en"),
		from: custom(f, "from", "de", "de", "`LANGUAGE` of the sources, the ending of their files", same),
		to:   custom(f, "to", "en", "en", "`LANGUAGE` of the translations, the ending of their files", same),
	}
}

// file returns the path of the sentences of one language.
func (p pairFlags) file(language string) string {
	return filepath.Join(*p.dir, *p.name+"."+language)
}

// load loads the model.
func (p pairFlags) load(ctx context.Context) (*seq2seq.Model, error) {
	return waiting(ctx, func() (*seq2seq.Model, error) { return seq2seq.Load(*p.dir, *p.from, *p.to) })
}

// readSentences reads the lines of a text, limit at most unless that is 0.
func readSentences(ctx context.Context, words *vocab.Vocab, path string, limit int) (lines [][]uint32, err error) {
	file, err := openInput(ctx, path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	for line, err := range words.Lines(file, path) {
		if err != nil {
			return nil, err
		}
		if lines = append(lines, line); len(lines) == limit {
			break
		}
		if len(lines)%(1<<12) == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return lines, nil
}

const pairsUsage = "--nmt DIR --pairs NAME --out H.npy"

// pairContexts writes the contexts of a translation model.
type pairContexts struct {
	pairs          pairFlags
	read, own      bool // the translations are read, are the model's own
	longest, limit int
	threads        int
	out            string
}

// pairsResult is the result of l2s contexts --nmt.
type pairsResult struct {
	contextsResult
	words int // read, in both languages
	read  bool
}

func (r *pairsResult) String() string {
	kind := "pairs"
	if !r.read {
		kind = "sentences"
	}
	empty := ""
	if *r.Empty > 0 {
		empty = fmt.Sprintf(", %s left out for an empty line", progress.Count(*r.Empty))
	}
	return fmt.Sprintf("%s: %s contexts of dimension %d from %s %s%s; %.1f%% of the words are unknown\n",
		r.Out, progress.Count(r.Contexts), r.Dim, progress.Count(*r.Pairs), kind, empty, 100*float64(r.Unknown)/float64(max(1, r.words)))
}

func (c *pairContexts) run(ctx context.Context, f *flags, p *progress.Printer) (*pairsResult, error) {
	if *c.pairs.name == "" {
		return nil, f.wrongUse("missing --pairs, as in: l2s contexts %s", pairsUsage)
	}
	if !c.own && f.given("longest") {
		return nil, f.wrongUse("--longest is for --own and --both")
	}
	from, to := c.pairs.file(*c.pairs.from), c.pairs.file(*c.pairs.to)
	inputs := append(seq2seq.Files(*c.pairs.dir, *c.pairs.from, *c.pairs.to), from, to)
	if err := checkOutputs(f, []output{{flag: "--out", path: c.out}}, inputs...); err != nil {
		return nil, err
	}
	m, err := c.pairs.load(ctx)
	if err != nil {
		return nil, err
	}
	sources, err := readSentences(ctx, m.Source(), from, c.limit)
	if err != nil {
		return nil, err
	}
	var targets [][]uint32
	if c.read {
		if targets, err = readSentences(ctx, m.Target(), to, c.limit); err != nil {
			return nil, err
		}
		if len(targets) != len(sources) {
			return nil, fmt.Errorf("%s: found %s lines, expected %s, as many as %s has", to, progress.Count(len(targets)), progress.Count(len(sources)), from)
		}
	}

	r := &pairsResult{read: c.read}
	r.Out, r.Dim = c.out, m.Dim()
	count := func(words *vocab.Vocab, line []uint32) {
		unknown, _ := words.Unknown() // Load has seen it
		for _, word := range line {
			if r.words++; word == unknown {
				r.Unknown++
			}
		}
	}
	var pairs []seq2seq.Pair
	for i, source := range sources {
		if len(source) == 0 || c.read && len(targets[i]) == 0 {
			continue
		}
		pair := seq2seq.Pair{Source: source}
		count(m.Source(), source)
		if c.read {
			pair.Target = targets[i]
			count(m.Target(), pair.Target)
		}
		pairs = append(pairs, pair)
	}
	n, empty := len(pairs), len(sources)-len(pairs)
	r.Pairs, r.Empty = &n, &empty
	if n == 0 {
		return nil, fmt.Errorf("%s: found empty lines alone, expected sentences", from)
	}

	w, err := tensorfile.CreateNPY(c.out, m.Dim())
	if err != nil {
		return nil, err
	}
	defer w.Abort()
	defer p.Close()
	done := 0
	take := func(d seq2seq.Decoded) error {
		done++
		p.Set(done)
		return w.WriteRows(d.Contexts)
	}
	if c.read {
		p.Start("contexts", "pairs", n)
		if err := m.Contexts(ctx, pairs, c.threads, take); err != nil {
			return nil, err
		}
		p.End()
	}
	if c.own {
		done = 0
		p.Start("translate", "sentences", n)
		list := make([][]uint32, 0, n)
		for _, pair := range pairs {
			list = append(list, pair.Source)
		}
		if err := m.Greedy(ctx, list, c.longest, c.threads, take); err != nil {
			return nil, err
		}
		p.End()
	}
	if err := w.Commit(); err != nil {
		return nil, err
	}
	r.Contexts = w.Rows()
	return r, nil
}
