// Command lm runs an LSTM language model: it computes the contexts of a text, which a
// screen is trained on and measured with, and lets the model write.
//
//	lm contexts --text F --out H.npy    the context after each word of a text
//	lm generate                         a text that the model writes, exactly or by a screen
//
// The folder of a model has model.safetensors, with the tensor names of PyTorch's
// word_language_model example (encoder.weight; rnn.weight_ih_l0, rnn.weight_hh_l0,
// rnn.bias_ih_l0, rnn.bias_hh_l0 and so on; decoder.weight, not in a tied model;
// decoder.bias), and vocab.txt, a word a line. Without --lm it is the model of l2s demo.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/learning-to-screen/l2s/benchmarks/internal/layers"
	"github.com/learning-to-screen/l2s/benchmarks/internal/lstm"
	"github.com/learning-to-screen/l2s/benchmarks/internal/npy"
	"github.com/learning-to-screen/l2s/benchmarks/internal/text"
	"github.com/learning-to-screen/l2s/internal/progress"
	"github.com/learning-to-screen/l2s/internal/vocab"
	"github.com/learning-to-screen/l2s/sample"
	"github.com/learning-to-screen/l2s/screen"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the program at once.
	context.AfterFunc(ctx, stop)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "lm: interrupted:", err)
		os.Exit(130)
	default:
		fmt.Fprintln(os.Stderr, "lm:", err)
		os.Exit(1)
	}
}

// run runs the command that the arguments name.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	kinds := map[string]func(ctx context.Context, f *flag.FlagSet, args []string, stdout, stderr io.Writer) error{"contexts": contexts, "generate": generate}
	if len(args) == 0 || kinds[args[0]] == nil {
		return fmt.Errorf("found the arguments %q, expected contexts or generate first", args)
	}
	f := flag.NewFlagSet("lm "+args[0], flag.ContinueOnError)
	f.SetOutput(stderr)
	return kinds[args[0]](ctx, f, args[1:], stdout, stderr)
}

// common are the flags of both.
type common struct {
	dir   *string
	quiet *bool
}

func commonFlags(f *flag.FlagSet) common {
	return common{
		dir:   f.String("lm", "lm/model", "`folder` of a language model, with model.safetensors and vocab.txt"),
		quiet: f.Bool("quiet", false, "show no progress and no figures"),
	}
}

// parse reads the arguments and opens the model.
func (c common) parse(f *flag.FlagSet, args []string, check func() error) (*lstm.Model, *vocab.Vocab, error) {
	if err := f.Parse(args); err != nil {
		return nil, nil, err
	}
	if f.NArg() > 0 {
		return nil, nil, fmt.Errorf("found the argument %q, expected flags only", f.Arg(0))
	}
	if err := check(); err != nil {
		return nil, nil, err
	}
	return layers.LoadLM(*c.dir)
}

// contexts writes the contexts of a text, and the words that follow them.
func contexts(ctx context.Context, f *flag.FlagSet, args []string, _, stderr io.Writer) error {
	c := commonFlags(f)
	path := f.String("text", "", "text `file`, UTF-8: words between white space, <eos> at the end of each line")
	out := f.String("out", "", ".npy `file` to write")
	targets := f.String("targets", "", ".npy `file` to write too: the word after each context, -1 after the last")
	limit := f.Int("limit", 0, "read at most `N` words, 0 for all")
	m, v, err := c.parse(f, args, func() error {
		switch {
		case *path == "" || *out == "":
			return errors.New("found no --text or no --out, expected both")
		case *limit < 0:
			return fmt.Errorf("--limit: found %d, expected at least 0", *limit)
		}
		return nil
	})
	if err != nil {
		return err
	}
	file, err := os.Open(*path)
	if err != nil {
		return err
	}
	defer file.Close()
	w, err := npy.Create(*out, m.Dim())
	if err != nil {
		return err
	}
	defer w.Abort()
	var p *progress.Printer
	if !*c.quiet {
		p = progress.New(stderr)
		defer p.Close()
	}
	p.Start("contexts", "words", *limit)
	var words []int32
	tokens := func(yield func(uint32, error) bool) {
		for id, err := range text.Tokens(v, file, *path) {
			if words = append(words, int32(id)); !yield(id, err) || len(words) == *limit {
				return
			}
		}
	}
	if err := m.Contexts(ctx, tokens, func(h []float32) error {
		p.Set(w.Rows() + 1)
		return w.WriteRows(h)
	}); err != nil {
		return err
	}
	if *targets != "" && len(words) > 0 {
		if err := npy.WriteInt32s(*targets, append(words[1:], -1)); err != nil {
			return err
		}
	}
	p.End()
	return w.Commit()
}

// generate writes a text, word by word, by draws from the softmax layer or a screen.
func generate(ctx context.Context, f *flag.FlagSet, args []string, stdout, stderr io.Writer) error {
	c := commonFlags(f)
	o := sample.DefaultOptions()
	o.Order = sample.VLLM()
	screenFile := f.String("screen", "", "screen `file`, with a tail; the exact layer without it")
	prompt := f.String("prompt", "", "`text` that the model continues")
	length := f.Int("length", 100, "write `N` words")
	out := f.String("contexts", "", ".npy `file` for the contexts that the words are drawn in")
	f.Float64Var(&o.Temperature, "temperature", 1, "divide logits by `T`; 0 takes the best word each time")
	f.Float64Var(&o.TopP, "top-p", 1, "keep the fewest words with the share `P` of the probability, 1 for all")
	f.IntVar(&o.TopK, "top-k", 0, "keep the `N` best words, 0 for all")
	f.Float64Var(&o.MinP, "min-p", 0, "keep words of at least `P` times the probability of the best, 0 for all")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of the draws")
	m, v, err := c.parse(f, args, func() error {
		if *length < 1 {
			return fmt.Errorf("--length: found %d, expected at least 1", *length)
		}
		return nil
	})
	if err != nil {
		return err
	}
	eos, err := v.Special(vocab.EOSWord)
	if err != nil {
		return err
	}
	// A text starts after the end of a line.
	state := m.NewState()
	h, first := state.Step(eos), true // of its line
	write := func(id uint32) error {
		word := v.Word(id)
		switch {
		case id == eos:
			word = "\n"
		case !first:
			word = " " + word
		}
		first = id == eos
		_, err := io.WriteString(stdout, word)
		return err
	}
	for word := range strings.FieldsSeq(*prompt) {
		id, ok := v.ID(word)
		if !ok {
			if id, err = v.Special(vocab.UnknownWord); err != nil {
				return fmt.Errorf("--prompt: %w", err)
			}
		}
		if err := write(id); err != nil {
			return err
		}
		h = state.Step(id)
	}
	s, err := openSampler(m, *screenFile, o)
	if err != nil {
		return err
	}
	var rows *npy.Writer
	if *out != "" {
		if rows, err = npy.Create(*out, m.Dim()); err != nil {
			return err
		}
		defer rows.Abort()
	}
	start, drawing := time.Now(), time.Duration(0)
	for n := range *length {
		if err := ctx.Err(); err != nil {
			return err
		}
		if rows != nil {
			if err := rows.WriteRows(h); err != nil {
				return err
			}
		}
		before := time.Now()
		token, err := s.Draw(h, sample.Edits{})
		if err != nil {
			return err
		}
		drawing += time.Since(before)
		if err := write(token.ID); err != nil {
			return err
		}
		if n < *length-1 {
			h = state.Step(token.ID)
		}
	}
	seconds := time.Since(start).Seconds()
	if !first {
		if _, err := io.WriteString(stdout, "\n"); err != nil {
			return err
		}
	}
	if !*c.quiet {
		stats, n := s.Stats(), float64(*length)
		fmt.Fprintf(stderr, "%d words, %.0f words/s; a draw took %.1f us; %.1f%% asked the exact layer; the mean bound of their total variation is %.4f\n",
			*length, n/seconds, 1e6*drawing.Seconds()/n, 100*float64(stats.Layer)/n, stats.Variation/n)
	}
	if rows != nil {
		return rows.Commit()
	}
	return nil
}

// openSampler returns a sampler over the softmax layer of a model, or over a screen for it.
func openSampler(m *lstm.Model, screenFile string, o sample.Options) (*sample.Sampler, error) {
	layer, err := layers.Decoder(m)
	if err != nil {
		return nil, err
	}
	if screenFile == "" {
		return sample.New(layer, o)
	}
	s, err := screen.Load(screenFile)
	if err != nil {
		return nil, err
	}
	sampler, err := sample.NewScreened(s, layer, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", screenFile, err)
	}
	return sampler, nil
}
