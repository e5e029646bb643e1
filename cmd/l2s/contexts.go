package main

import (
	"context"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/learning-to-screen/l2s/internal/atomicfile"
	"github.com/learning-to-screen/l2s/internal/lstm"
	"github.com/learning-to-screen/l2s/internal/progress"
	"github.com/learning-to-screen/l2s/internal/tensorfile"
	"github.com/learning-to-screen/l2s/internal/vocab"
)

// contextsResult is the JSON of l2s contexts.
type contextsResult struct {
	Out      string `json:"out"`
	Contexts int    `json:"contexts"`
	Dim      int    `json:"dim"`
	// Unknown is how many of the tokens read are <unk>.
	Unknown int `json:"unknown"`
	// Pairs is how many pairs of sentences, or sentences, the contexts are of,
	// and Empty how many were left out for an empty line.
	Pairs *int `json:"pairs,omitempty"`
	Empty *int `json:"empty,omitempty"`
}

func runContexts(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := newFlags("contexts", description{
		purpose: `Compute the context vectors of a text with an LSTM language model, or of
translations with an LSTM translation model, and write them to a .npy file of
float32 rows.

A text is one stream of tokens from the zero state: the words between white
space, <eos> at the end of each line, <unk> for a word that the vocabulary
lacks. Row i is the context after token i. With --generate the model writes the
text itself.

With --nmt the decoder reads <s> and the words of each translation in DIR/NAME.en,
beside its source in DIR/NAME.de, and its contexts are written: one more than the
translation has words, pair after pair. With --own the decoder translates
DIR/NAME.de itself: it takes the best word of the exact layer at each step. With
--both the contexts of both ways are written, one way behind the other: they are
the best to learn a screen from. Pairs with an empty line are left out.`,
		usage: "--lm model.safetensors --vocab vocab.txt --text text.txt --out H.npy",
		notes: `The language model has the tensor names of PyTorch's word_language_model
example: encoder.weight, rnn.weight_ih_l0, rnn.weight_hh_l0, rnn.bias_ih_l0,
rnn.bias_hh_l0, ..., decoder.weight (not in a tied model), decoder.bias.
Its decoder is the softmax layer that the contexts are for.

The folder of a translation model, with Luong's general attention, holds
model.safetensors, vocab.de and vocab.en. The layer is generator.weight and
generator.bias.`,
		advanced: "both from limit longest own seed threads to",
		example: `l2s contexts --lm model.safetensors --vocab vocab.txt --text train.txt --out train.npy
l2s contexts --lm model.safetensors --vocab vocab.txt --generate 100000 --out H.npy
l2s contexts --nmt nmt-multi30k --pairs train --out train.npy`,
	}, stdout, stderr)
	out := f.needs("out", ".npy `FILE` to write")
	targets := f.text("targets", ".npy `FILE` to write too: the token after each of --text, -1 after the last")
	lm := f.text("lm", "language model, a safetensors `FILE`")
	vocabulary := f.text("vocab", "vocabulary `FILE` of the language model, line i (from 0) is word i")
	text := f.text("text", "text `FILE` to read, UTF-8")
	limit := f.whole("limit", 0, 0, "read at most `N` tokens of the text, or N pairs, 0 for all")
	generate := f.whole("generate", 0, 1, "let the language model write `N` tokens, instead of --text")
	seed := f.seed(1)
	pairs := f.pairs()
	own := f.boolean("own", "translate the sources, instead of reading the translations")
	both := f.boolean("both", "read the translations, and translate the sources too")
	longest := f.whole("longest", 60, 1, "cut the translations of --own and --both after `N` words")
	threads := f.threads("run --generate and --nmt")
	quiet := f.boolean("quiet", "show no progress")
	asJSON := f.json()
	f.quiet = quiet
	if err := f.parse(args, nil); err != nil {
		return err
	}
	for _, only := range []struct{ kind, flags string }{
		{"nmt", "lm vocab text targets generate seed"},
		{"lm", "pairs from to own both longest"},
	} {
		for _, name := range strings.Fields(only.flags) {
			if f.given(only.kind) && f.given(name) {
				return f.wrongUse("--%s is not for --%s", name, only.kind)
			}
		}
	}
	if f.given("nmt") {
		w := pairContexts{pairs: pairs, read: !*own || *both, own: *own || *both, longest: *longest, limit: *limit, threads: *threads, out: *out}
		r, err := w.run(ctx, f, f.printer())
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(stdout, r.contextsResult)
		}
		return write(stdout, r.String())
	}
	if !f.given("lm") && !f.given("vocab") && !f.given("pairs") {
		return f.wrongUse("missing --lm and --vocab (or --nmt and --pairs)")
	}
	if f.given("pairs") {
		return f.wrongUse("missing --nmt, as in: l2s contexts %s", pairsUsage)
	}
	if err := f.require("lm", "vocab"); err != nil {
		return err
	}
	switch generating := f.given("generate"); {
	case generating && *text != "":
		return f.wrongUse("--text and --generate exclude each other: give one of them")
	case !generating && *text == "":
		return f.wrongUse("missing --text (or --generate), as in: l2s contexts %s", f.about.usage)
	case generating && *targets != "":
		return f.wrongUse("--targets is for --text")
	case generating && *limit > 0:
		return f.wrongUse("--limit is for --text: give the number of tokens to --generate")
	}
	outputs := []output{{flag: "--out", path: *out}}
	if *targets != "" {
		outputs = append(outputs, output{flag: "--targets", path: *targets})
	}
	if err := checkOutputs(f, outputs, *lm, *vocabulary, *text); err != nil {
		return err
	}

	voc, err := loading(ctx, vocab.Load, *vocabulary)
	if err != nil {
		return err
	}
	model, err := loading(ctx, lstm.Load, *lm)
	if err != nil {
		return err
	}
	if err := voc.CheckLen(model.Vocab()); err != nil {
		return err
	}
	if *targets != "" { // two files, which two runs at once would mix
		if err := checkWritable(outputs); err != nil {
			return err
		}
		for _, o := range outputs {
			release, err := holdOutput(o.path, o.flag)
			if err != nil {
				return err
			}
			defer release()
		}
	}
	w, err := tensorfile.CreateNPY(*out, model.Dim())
	if err != nil {
		return err
	}
	defer w.Abort()

	p := f.printer()
	defer p.Close()
	c := &contextWriter{w: w, voc: voc, model: model, p: p, follow: *targets != ""}
	if *text != "" {
		err = c.read(ctx, *text, *limit)
	} else {
		err = c.generate(ctx, *generate, *seed, *threads)
	}
	if err != nil {
		return err
	}
	file, err := w.Stage()
	if err != nil {
		return err
	}
	files := []*atomicfile.File{file}
	if c.follow && len(c.tokens) > 0 {
		file, err := tensorfile.StageNPYInt32s(*targets, append(c.tokens[1:], -1))
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	if err := atomicfile.CommitTogether(files...); err != nil {
		return err
	}
	p.End()
	r := contextsResult{Out: *out, Contexts: w.Rows(), Dim: model.Dim(), Unknown: c.unknown}
	if *asJSON {
		return printJSON(stdout, r)
	}
	return write(stdout, fmt.Sprintf("%s: %s contexts of dimension %d; %.1f%% of the tokens are unknown words\n",
		r.Out, progress.Count(r.Contexts), r.Dim, 100*float64(r.Unknown)/float64(max(1, r.Contexts))))
}

// contextWriter writes contexts to a file as the model yields them.
type contextWriter struct {
	w       *tensorfile.NPYWriter
	voc     *vocab.Vocab
	model   *lstm.Model
	p       *progress.Printer
	unknown int // tokens that are <unk>
	follow  bool
	tokens  []int32 // all that were read, if follow
}

func (c *contextWriter) count(token uint32) {
	if id, err := c.voc.Unknown(); err == nil && token == id {
		c.unknown++
	}
}

// read writes the contexts of a text, of limit tokens at most unless that is
// 0.
func (c *contextWriter) read(ctx context.Context, path string, limit int) error {
	file, err := openInput(ctx, path)
	if err != nil {
		return err
	}
	defer file.Close()
	total, err := c.countTokens(ctx, file, path, limit)
	if err != nil {
		return err
	}
	c.p.Start("contexts", "tokens", total)
	tokens := func(yield func(uint32, error) bool) {
		for token, err := range take(c.voc.Tokens(file, path), limit) {
			if err == nil {
				c.count(token)
				if c.follow {
					c.tokens = append(c.tokens, int32(token))
				}
			}
			if !yield(token, err) {
				return
			}
		}
	}
	return c.model.Contexts(ctx, tokens, func(h []float32) error {
		err := c.w.WriteRows(h)
		c.p.Set(c.w.Rows())
		return err
	})
}

// countTokens reads a text once in advance, so that what is wrong with it is
// known before the long work, and its length. The length of a pipe remains unknown:
// 0.
func (c *contextWriter) countTokens(ctx context.Context, file *input, path string, limit int) (n int, err error) {
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return limit, nil
	}
	for _, err := range take(c.voc.Tokens(file, path), limit) {
		if err != nil {
			return 0, err
		}
		if n++; n%(1<<16) == 0 && ctx.Err() != nil {
			return 0, ctx.Err()
		}
	}
	_, err = file.Seek(0, io.SeekStart)
	return n, err
}

// take ends a sequence after limit elements, unless that is 0.
func take(seq iter.Seq2[uint32, error], limit int) iter.Seq2[uint32, error] {
	if limit == 0 {
		return seq
	}
	return func(yield func(uint32, error) bool) {
		n := 0
		for token, err := range seq {
			if n++; !yield(token, err) || n == limit {
				return
			}
		}
	}
}

// generate writes the contexts of n tokens that the model writes itself.
func (c *contextWriter) generate(ctx context.Context, n int, seed uint64, threads int) error {
	eos, err := c.voc.EOS()
	if err != nil {
		return err
	}
	c.p.Start("generate", "tokens", n)
	opt := lstm.GenerateOptions{Start: eos, Seed: seed, Threads: threads}
	return c.model.Generate(ctx, n, opt, func(tokens []uint32, rows []float32) error {
		for _, token := range tokens {
			c.count(token)
		}
		err := c.w.WriteRows(rows)
		c.p.Set(c.w.Rows())
		return err
	})
}
