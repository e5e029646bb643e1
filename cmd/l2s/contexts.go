package main

import (
	"context"
	"fmt"
	"iter"
	"os"

	"github.com/learning-to-screen/l2s/internal/lstm"
	"github.com/learning-to-screen/l2s/internal/tensorfile"
	"github.com/learning-to-screen/l2s/internal/vocab"
)

func contextsVerb() *verb {
	return &verb{
		name: "contexts", args: "--lm FILE --vocab FILE (--text FILE | --generate N) --out H.npy",
		summary: "write the context vectors of a text, or of generated text",
		help: `
Runs an LSTM language model over a text and writes its context vectors, the
inputs of the softmax layer, as an .npy file of float32: row i is the context
after token i. The text is one stream from the zero state; words are separated
by white space, <eos> is added at each line's end, unknown words become <unk>.
With --generate the model writes the text itself, by sampling.

The model is a safetensors file with the tensor names of PyTorch's
word_language_model example; without decoder.weight the embedding is tied.

Example:
  l2s contexts --lm model.safetensors --vocab vocab.txt --text train.txt --out H.npy`,
		run: runContexts,
	}
}

func runContexts(ctx context.Context, e *env) error {
	f := e.flags
	lm := f.String("lm", "", "language model, a safetensors `FILE`")
	vocabPath := f.String("vocab", "", "vocabulary `FILE`: line i, from 0, is word i")
	text := f.String("text", "", "text `FILE` to read")
	out := f.String("out", "", ".npy `FILE` to write")
	limit := f.Int("limit", 0, "read at most `N` tokens of the text; 0 reads all")
	generate := f.Int("generate", 0, "generate `N` tokens in place of --text")
	seed := f.Uint64("seed", 1, "`N`, the seed of --generate")
	quiet := f.Bool("quiet", false, "show no progress")
	if _, err := e.parse(); err != nil {
		return err
	}
	if err := e.need("lm", "vocab", "out"); err != nil {
		return err
	}
	switch {
	case (*text != "") == e.given("generate"):
		return usagef("give either --text or --generate")
	case *limit < 0:
		return usagef("--limit: found %d, expected 0 or more", *limit)
	case e.given("generate") && *generate < 1:
		return usagef("--generate: found %d, expected at least 1", *generate)
	case e.given("generate") && e.given("limit"):
		return usagef("--limit goes with --text: with --generate say how many there")
	}
	v, err := vocab.Load(*vocabPath)
	if err != nil {
		return err
	}
	model, err := lstm.Load(*lm)
	if err != nil {
		return err
	}
	if err := v.CheckLen(model.Vocab()); err != nil {
		return err
	}
	w, err := tensorfile.CreateNPY(*out, model.Dim())
	if err != nil {
		return err
	}
	defer w.Abort()
	p := e.printer(*quiet)
	defer p.Close()

	if e.given("generate") {
		eos, err := v.EOS()
		if err != nil {
			return err
		}
		err = model.Generate(ctx, *generate, lstm.GenerateOptions{Start: eos, Seed: *seed}, func(_ []uint32, h []float32) error {
			err := w.WriteRows(h)
			p.Update("contexts", w.Rows(), *generate)
			return err
		})
		if err != nil {
			return err
		}
	} else {
		file, err := os.Open(*text)
		if err != nil {
			return err
		}
		defer file.Close()
		total, err := countTokens(v, *text, *limit)
		if err != nil {
			return err
		}
		err = model.Contexts(ctx, first(v.Tokens(file, *text), *limit), func(h []float32) error {
			err := w.WriteRows(h)
			p.Update("contexts", w.Rows(), total)
			return err
		})
		if err != nil {
			return err
		}
	}
	if err := w.Commit(); err != nil {
		return err
	}
	fmt.Fprintf(e.stdout, "%s: %d contexts of dimension %d\n", *out, w.Rows(), model.Dim())
	return nil
}

// first returns at most n of the tokens, all where n is 0.
func first(tokens iter.Seq2[uint32, error], n int) iter.Seq2[uint32, error] {
	if n == 0 {
		return tokens
	}
	return func(yield func(uint32, error) bool) {
		left := n
		for t, err := range tokens {
			if !yield(t, err) || err != nil {
				return
			}
			if left--; left == 0 {
				return
			}
		}
	}
}

// countTokens reads the text once: progress wants a total, and an error in
// the text is better found before the work than after.
func countTokens(v *vocab.Vocab, path string, limit int) (int, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	n := 0
	for _, err := range first(v.Tokens(file, path), limit) {
		if err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}
