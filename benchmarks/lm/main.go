// Command lm writes the contexts of a text, which a screen is trained on and measured with: the
// states of an LSTM language model, one after each word.
//
//	lm --lm DIR --text F --out H.npy
//	lm --lm DIR --write N --seed S --out H.npy
//
// With --write the model writes the text itself, N words.
//
// The folder of a model has model.safetensors, with the tensor names of PyTorch's
// word_language_model example (encoder.weight; rnn.weight_ih_l0, rnn.weight_hh_l0,
// rnn.bias_ih_l0, rnn.bias_hh_l0 and so on; decoder.weight, not in a tied model;
// decoder.bias), and vocab.txt, a word a line. Without --lm it is the model of make demo.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/learning-to-screen/l2s/benchmarks/internal/command"
	"github.com/learning-to-screen/l2s/benchmarks/internal/layers"
	"github.com/learning-to-screen/l2s/benchmarks/internal/npy"
	"github.com/learning-to-screen/l2s/benchmarks/internal/text"
	"github.com/learning-to-screen/l2s/internal/ground/progress"
)

func main() { command.Main("lm", run) }

// run writes the contexts that the arguments name.
func run(ctx context.Context, args []string, _, stderr io.Writer) error {
	f := flag.NewFlagSet("lm", flag.ContinueOnError)
	f.SetOutput(stderr)
	dir := f.String("lm", "lm/model", "`folder` of a language model, with model.safetensors and vocab.txt")
	path := f.String("text", "", "text `file`, UTF-8: words between white space, <eos> at the end of each line")
	words := f.Int("write", 0, "`number` of words of a text that the model writes, in place of --text")
	seed := f.Uint64("seed", 1, "seed of that text")
	out := f.String("out", "", ".npy `file` to write")
	if err := f.Parse(args); err != nil {
		return err
	}
	switch {
	case f.NArg() > 0:
		return fmt.Errorf("found the argument %q, expected flags only", f.Arg(0))
	case (*path == "") == (*words <= 0) || *out == "":
		return errors.New("found no --out, or not one of --text and --write, expected --out and one of both")
	}
	m, v, err := layers.LoadLM(*dir)
	if err != nil {
		return err
	}
	w, err := npy.Create(*out, m.Dim())
	if err != nil {
		return err
	}
	defer w.Abort()
	p := progress.New(stderr)
	defer p.Close()
	p.Start("contexts", "words", *words)
	if *words > 0 {
		rows, err := layers.Written(ctx, m, v, *words, *seed, p.Set)
		if err == nil {
			err = w.WriteRows(rows)
		}
		if err != nil {
			return err
		}
		p.End()
		return w.Commit()
	}
	file, err := os.Open(*path)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := m.Contexts(ctx, text.Tokens(v, file, *path), func(h []float32) error {
		p.Set(w.Rows() + 1)
		return w.WriteRows(h)
	}); err != nil {
		return err
	}
	p.End()
	return w.Commit()
}
