package main

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/learning-to-screen/l2s/internal/lstm"
	"github.com/learning-to-screen/l2s/internal/progress"
	"github.com/learning-to-screen/l2s/internal/vocab"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
	"github.com/learning-to-screen/l2s/train"
)

// The embedded language model: a 2-layer LSTM of 200 units over a vocabulary
// of 20,000, trained on public-domain novels, weights in float16.
var (
	//go:embed model/model.safetensors
	demoModel []byte
	//go:embed model/vocab.txt
	demoVocab []byte
)

func demoVerb() *verb {
	return &verb{
		name: "demo", args: "[--seed N] [--json]",
		summary: "train and measure a screen on the embedded language model",
		help: `
Needs no file and no network. A small language model that is part of the
command generates text; its context vectors train a screen; contexts held out
from training measure it. Then it predicts the next word after a few prompts,
by the exact layer and by the screen side by side.

Example:
  l2s demo --seed 1`,
		run: runDemo,
	}
}

const (
	demoTrain   = 90000 // contexts to train on
	demoHeldOut = 10000 // contexts to measure on
	demoBudget  = 60
)

var demoPrompts = []string{
	"it was the best of",
	"she looked at him and",
	"the old man went to the",
	"i do not know what you",
	"there was a knock at the",
}

func runDemo(ctx context.Context, e *env) error {
	seed := e.flags.Uint64("seed", 1, "`N`, the seed of the text and of the training")
	quiet := e.flags.Bool("quiet", false, "show no progress")
	asJSON := e.flags.Bool("json", false, "print JSON: the fields of eval and bench together")
	if _, err := e.parse(); err != nil {
		return err
	}
	begin := time.Now()
	m, err := lstm.Read(demoModel)
	if err != nil {
		return err
	}
	v, err := vocab.Read(demoVocab)
	if err != nil {
		return err
	}
	w, b := m.Decoder()
	layer, err := softmax.NewLayer(w, b, m.Dim())
	if err != nil {
		return err
	}
	p := e.printer(*quiet)
	defer p.Close()

	contexts, err := demoContexts(ctx, m, v, *seed, p)
	if err != nil {
		return err
	}
	opt := train.DefaultOptions()
	opt.Budget, opt.Seed = demoBudget, *seed
	opt.Progress = newStopwatch(p).progress
	split := demoTrain * m.Dim()
	model, _, err := train.Run(ctx, layer, contexts[:split], opt)
	if err != nil {
		return err
	}
	held := contexts[split:]
	ev, err := evaluate(ctx, model, layer, held, []int{1, 5}, func(done, total int) { p.Update("evaluating", done, total) })
	if err != nil {
		return err
	}
	t, err := bench(ctx, model, layer, held, 5, p)
	if err != nil {
		return err
	}
	p.Close()
	if *asJSON {
		return writeJSON(e.stdout, struct {
			*evaluation
			*timings
			Seconds float64 `json:"seconds"`
		}{ev, t, time.Since(begin).Seconds()})
	}
	if err := demoPredictions(e, m, v, layer, model); err != nil {
		return err
	}
	demoTable(e, ev, t, time.Since(begin))
	return nil
}

// demoContexts lets the model write and returns the contexts.
func demoContexts(ctx context.Context, m *lstm.Model, v *vocab.Vocab, seed uint64, p *progress.Printer) ([]float32, error) {
	eos, err := v.EOS()
	if err != nil {
		return nil, err
	}
	const n = demoTrain + demoHeldOut
	contexts := make([]float32, 0, n*m.Dim())
	err = m.Generate(ctx, n, lstm.GenerateOptions{Start: eos, Seed: seed}, func(_ []uint32, h []float32) error {
		contexts = append(contexts, h...)
		p.Update("generating text", len(contexts)/m.Dim(), n)
		return nil
	})
	return contexts, err
}

// demoPredictions prints the next words after each prompt, exact and
// screened side by side.
func demoPredictions(e *env, m *lstm.Model, v *vocab.Vocab, layer *softmax.Layer, model *screen.Model) error {
	s, err := screen.NewSearcher(model, layer)
	if err != nil {
		return err
	}
	unk, err := v.Unknown()
	if err != nil {
		return err
	}
	q := softmax.NewQuery(layer.Dim())
	exact, screened := make([]softmax.Prediction, 5), make([]softmax.Prediction, 5)
	for _, prompt := range demoPrompts {
		state := m.NewState()
		var h []float32
		for word := range strings.FieldsSeq(prompt) {
			id, ok := v.ID(word)
			if !ok {
				id = unk
			}
			h = state.Step(id)
		}
		// The best of a few tries: one call is soon over.
		exactTime := fastest(func() {
			if err = q.Set(h); err == nil {
				layer.TopKFloat32(exact, q)
			}
		})
		if err != nil {
			return err
		}
		layer.TopK(exact, q)
		screenedTime := fastest(func() { _, err = s.TopK(screened, h) })
		if err != nil {
			return err
		}
		fmt.Fprintf(e.stdout, "\n  %s ...\n", prompt)
		fmt.Fprintf(e.stdout, "    exact     %8.1f us   %s\n", exactTime, words(v, exact))
		fmt.Fprintf(e.stdout, "    screened  %8.1f us   %s\n", screenedTime, words(v, screened))
	}
	return nil
}

// fastest returns the microseconds of the fastest of some calls.
func fastest(f func()) float64 {
	best := time.Duration(1 << 62)
	for range 15 {
		start := time.Now()
		f()
		best = min(best, time.Since(start))
	}
	return float64(best.Nanoseconds()) / 1000
}

func words(v *vocab.Vocab, top []softmax.Prediction) string {
	var s strings.Builder
	for _, p := range top {
		fmt.Fprintf(&s, "%-9s ", v.Word(p.ID))
	}
	return strings.TrimSpace(s.String())
}

func demoTable(e *env, ev *evaluation, t *timings, took time.Duration) {
	out := func(format string, args ...any) { fmt.Fprintf(e.stdout, format+"\n", args...) }
	out("")
	out("  Next-word prediction over %d words, %d contexts held out from training", ev.Labels, ev.Contexts)
	out("")
	out("    clusters                     %8d", ev.Clusters)
	out("    candidates a query (L-bar)   %8.1f   of %d words", ev.AvgCandidates, ev.Labels)
	out("    P@1                          %8.4f   share of the exact best word found", ev.Precision["1"])
	out("    P@5                          %8.4f   share of the exact five best found", ev.Precision["5"])
	out("    exact, dense float32 scan    %8.1f   us a query", t.DenseF32Micros)
	out("    exact, int8 codes            %8.1f   us a query", t.ExactMicros)
	out("    screened                     %8.1f   us a query (99th percentile %.1f)", t.ScreenedMicros, t.ScreenedP99Micros)
	out("    speedup                      %8.1f x over the dense scan, on one thread, level %s", t.Speedup, t.Level)
	out("")
	out("  All in %.0f s. The model is small and its top five come from few distinct words, so a", took.Seconds())
	out("  fixed list of frequent words would be a strong rival here; on larger models it is not.")
}
