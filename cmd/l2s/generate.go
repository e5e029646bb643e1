package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/learning-to-screen/l2s/internal/demolm"
	"github.com/learning-to-screen/l2s/internal/lstm"
	"github.com/learning-to-screen/l2s/internal/progress"
	"github.com/learning-to-screen/l2s/internal/vocab"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/sample"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// generatedToken is a line of the JSON of l2s generate.
type generatedToken struct {
	ID      uint32  `json:"id"`
	Word    string  `json:"word"`
	LogProb float64 `json:"logprob"` // of what was left after the truncations
	Grade   string  `json:"grade"`   // exact, bounded or approximate
}

// generateResult is the last line of the JSON of l2s generate.
type generateResult struct {
	Tokens          int     `json:"tokens"`
	Seconds         float64 `json:"seconds"` // without those for opening the model
	TokensPerSecond float64 `json:"tokens_per_second"`
	// DrawSeconds is the part of Seconds that the draws took, without the LSTM.
	DrawSeconds float64 `json:"draw_seconds"`
	// LayerShare is the share of the draws that used the exact layer, ExactShare the
	// share that are exact, and BoundedShare the share within their bound (package
	// sample).
	LayerShare   float64 `json:"layer_share"`
	ExactShare   float64 `json:"exact_share"`
	BoundedShare float64 `json:"bounded_share"`
	Level        string  `json:"level"`
}

func (r *generateResult) summary(screened bool) string {
	text := fmt.Sprintf("%s tokens, %.0f tokens/s; a draw took %.1f us", progress.Count(r.Tokens), r.TokensPerSecond, 1e6*r.DrawSeconds/float64(r.Tokens))
	if screened {
		text += fmt.Sprintf("; the exact layer was asked for %.1f%%; %.1f%% exact, %.1f%% within their bound", 100*r.LayerShare, 100*r.ExactShare, 100*r.BoundedShare)
	}
	return text
}

func runGenerate(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := newFlags("generate", description{
		purpose: `Let an LSTM language model write text, word by word, by draws from the exact softmax
layer or from a screen. Without --lm it is the small model of l2s demo, which needs no
file. The model reads <eos>, then the prompt, and writes --length tokens behind it;
<eos> ends a line.

The order of the processors is vLLM's: temperature, min-p, top-k, top-p. Equal
seeds give equal tokens on every CPU. The exact layer answers a draw if the screen does
not suffice, and all draws if the screen was trained without --tail regression.

The tokens a second go to standard error. With --json each token is a line, and the
figures are the last line. An interrupt ends the text at once, after a whole word.`,
		usage: "[--lm model.safetensors --vocab vocab.txt] [--screen m.l2s] [--prompt TEXT] [flags]",
		notes: `The language model is one as for l2s contexts. White space separates the words of
the prompt; a word that the vocabulary lacks is <unk>.`,
		advanced: "min-p top-k",
		example: `l2s generate --prompt "it was a" --temperature 0.8 --top-p 0.9
l2s generate --lm model.safetensors --vocab vocab.txt --screen m.l2s --length 500`,
	}, stdout, stderr)
	o := sample.DefaultOptions()
	o.Order = sample.VLLM()
	lm := f.text("lm", "language model, a safetensors `FILE`")
	vocabulary := f.text("vocab", "vocabulary `FILE` of the language model, line i (from 0) is word i")
	screenFile := f.text("screen", "screen `FILE`; the exact layer without it")
	prompt := f.text("prompt", "`TEXT` that the model goes on from")
	length := f.whole("length", 100, 1, "write `N` tokens")
	temperature := f.real("temperature", 1, 0, "divide logits by `T`; 0 takes the best word each time")
	topP := f.number("top-p", 1, "a number above 0, at most 1", "keep the fewest words with the share `P` of the probability, 1 for all", func(x float64) bool { return x > 0 && x <= 1 })
	topK := f.whole("top-k", 0, 0, "keep the `N` best words, 0 for all")
	minP := f.number("min-p", 0, "a number from 0 to 1", "keep words of at least `P` times the probability of the best, 0 for all", func(x float64) bool { return x >= 0 && x <= 1 })
	seed := f.seed(1)
	quiet := f.boolean("quiet", "show no figures")
	asJSON := f.json()
	if err := f.parse(args, nil); err != nil {
		return err
	}
	if f.given("lm") || f.given("vocab") {
		if err := f.require("lm", "vocab"); err != nil {
			return err
		}
	}
	model, voc, err := openLM(ctx, *lm, *vocabulary)
	if err != nil {
		return err
	}
	eos, err := voc.EOS()
	if err != nil {
		return err
	}
	tokens := []uint32{eos}
	for word := range strings.FieldsSeq(*prompt) {
		id, ok := voc.ID(word)
		if !ok {
			if id, err = voc.Unknown(); err != nil {
				return fmt.Errorf("--prompt: %w", err)
			}
		}
		tokens = append(tokens, id)
	}
	o.Temperature, o.TopP, o.TopK, o.MinP, o.Seed = *temperature, *topP, *topK, *minP, *seed
	sampler, err := openSampler(ctx, f, model, *screenFile, o)
	if err != nil {
		return err
	}
	w := tokenWriter{w: stdout, voc: voc, eos: eos, json: *asJSON}
	for _, token := range tokens[1:] {
		if err := w.prompt(token); err != nil {
			return err
		}
	}
	r, err := generate(ctx, model, sampler, tokens, *length, w.drawn)
	if failed := w.end(); err == nil {
		err = failed
	}
	if err != nil {
		if ctx.Err() != nil {
			err = interruptedError{err, fmt.Sprintf("standard output has the first %s of %s tokens", progress.Count(r.Tokens), progress.Count(*length))}
		}
		return err
	}
	if *asJSON {
		return printJSONLine(stdout, r)
	}
	if !*quiet {
		fmt.Fprintf(stderr, "l2s generate: %s\n", r.summary(*screenFile != ""))
	}
	return nil
}

// openLM opens a language model and its vocabulary, the built-in one for no names.
func openLM(ctx context.Context, lm, vocabulary string) (*lstm.Model, *vocab.Vocab, error) {
	if lm == "" {
		return demolm.Load()
	}
	voc, err := loading(ctx, vocab.Load, vocabulary)
	if err != nil {
		return nil, nil, err
	}
	model, err := loading(ctx, lstm.Load, lm)
	if err != nil {
		return nil, nil, err
	}
	return model, voc, voc.CheckLen(model.Vocab())
}

// openSampler returns a sampler over the softmax layer of a language model, or over a
// screen for it.
func openSampler(ctx context.Context, f *flags, model *lstm.Model, screenFile string, o sample.Options) (*sample.Sampler, error) {
	weights, bias := model.Decoder()
	layer, err := softmax.NewLayer(kernels.Float32Rows(weights, model.Dim()), bias)
	if err != nil {
		return nil, err
	}
	if screenFile == "" {
		return sample.New(layer, o)
	}
	m, err := loading(ctx, screen.Load, screenFile)
	if err != nil {
		return nil, err
	}
	if m.Regression() == nil {
		if _, err := screen.NewSearcher(m, layer); err != nil { // it does not go with the layer
			return nil, fmt.Errorf("%s: %w", screenFile, err)
		}
		noteTail(f, screenFile, "the exact layer draws all tokens")
		return sample.New(layer, o)
	}
	s, err := sample.NewScreened(m, layer, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", screenFile, err)
	}
	return s, nil
}

// generate lets the model read tokens and then write n of its own, each of which it
// tells of. The result counts those that were written, whatever ends it.
func generate(ctx context.Context, model *lstm.Model, s *sample.Sampler, tokens []uint32, n int, tell func(sample.Token) error) (r generateResult, err error) {
	state := model.NewState()
	var h []float32
	for _, token := range tokens {
		if err := ctx.Err(); err != nil {
			return r, err
		}
		h = state.Step(token)
	}
	start := time.Now()
	for r.Tokens < n {
		if err := ctx.Err(); err != nil {
			return r, err
		}
		before := time.Now()
		token, err := s.Draw(h, sample.Edits{})
		if err != nil {
			return r, err
		}
		r.DrawSeconds += time.Since(before).Seconds()
		if err := tell(token); err != nil {
			return r, err
		}
		if r.Tokens++; r.Tokens < n {
			h = state.Step(token.ID)
		}
	}
	stats := s.Stats()
	draws := float64(stats.Draws)
	r.Seconds, r.Level = time.Since(start).Seconds(), kernels.Level()
	r.TokensPerSecond = float64(r.Tokens) / max(r.Seconds, 1e-9)
	r.LayerShare = float64(stats.Layer) / draws
	r.BoundedShare = float64(stats.Bounded) / draws
	r.ExactShare = float64(stats.Draws-stats.Bounded-stats.Approximate) / draws
	return r, nil
}

// tokenWriter writes tokens as they come: as text, with a line's end for <eos>, or as
// JSON.
type tokenWriter struct {
	w    io.Writer
	voc  *vocab.Vocab
	eos  uint32
	json bool
	open bool // the line at hand has begun
}

// prompt writes a word of the prompt, which JSON is without.
func (t *tokenWriter) prompt(id uint32) error {
	if t.json {
		return nil
	}
	return t.word(id)
}

func (t *tokenWriter) word(id uint32) error {
	text := t.voc.Word(id)
	switch {
	case id == t.eos:
		text = "\n"
	case t.open:
		text = " " + text
	}
	t.open = id != t.eos
	return write(t.w, text)
}

func (t *tokenWriter) drawn(token sample.Token) error {
	if !t.json {
		return t.word(token.ID)
	}
	return printJSONLine(t.w, generatedToken{token.ID, t.voc.Word(token.ID), token.LogProb, token.Grade.String()})
}

// end ends the line at hand.
func (t *tokenWriter) end() error {
	if !t.open {
		return nil
	}
	t.open = false
	return write(t.w, "\n")
}

// printJSONLine writes a value as one line.
func printJSONLine(w io.Writer, v any) error {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("standard output: %w", err)
	}
	return write(w, b.String())
}
