// Command translate reproduces Table 2 of "Learning to Screen for Fast Softmax Inference on Large
// Vocabulary Neural Networks" and its table of translations (Section 4) on a translation model:
// BLEU against the speedup of the softmax layer in beam search.
//
// It makes the contexts of the model's decoder, under teacher forcing with the references and of
// its own greedy decoding; trains screens on them; translates the test text with each method; and
// measures the time of the softmax layer: the k best labels and their log-probabilities, for the
// contexts of the exact search, step by step. Methods take turns on the same steps, on one thread.
// A speedup is to the dense float32 scan with top-k and log-sum-exp in the same round.
//
// The figures go to translate.json in the folder --out, and the tables that package report makes of
// them to TRANSLATE.md there. An interrupt leaves neither; the contexts in the folder --cache are
// kept for the next run.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/benchmarks/internal/bleu"
	"github.com/learning-to-screen/l2s/benchmarks/internal/command"
	"github.com/learning-to-screen/l2s/benchmarks/internal/measure"
	"github.com/learning-to-screen/l2s/benchmarks/internal/methods"
	"github.com/learning-to-screen/l2s/benchmarks/internal/points"
	"github.com/learning-to-screen/l2s/benchmarks/internal/report"
	"github.com/learning-to-screen/l2s/internal/kernels"
	"github.com/learning-to-screen/l2s/internal/progress"
	"github.com/learning-to-screen/l2s/internal/screening"
)

func main() { command.Main("translate", run) }

// sweep has the measurements of a run and their length.
type sweep struct {
	plans    []plan
	rivals   []rival
	widths   []int // of the beam
	timed    int   // sentences whose contexts are timed, at most
	rounds   int
	block    time.Duration // of a turn
	examples int
}

// rival is a method of package methods, at some of its settings.
type rival struct {
	methods.Method
	settings []string
}

func defaultSweep(labels int) sweep {
	return sweep{
		plans: plans(labels),
		rivals: []rival{
			{methods.FGD{M: 16}, []string{"ef=48"}},
			{methods.IPNSW{M: 16}, []string{"ef=48"}},
		},
		widths: []int{1, 5}, timed: 200, rounds: 21, block: 10 * time.Millisecond, examples: 8,
	}
}

// options are the arguments.
type options struct {
	model, cache, out string
	seed              uint64
	alpha             float64
	longest, limit    int
	rounds            int
}

// run runs the measurement that the arguments describe.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("translate", flag.ContinueOnError)
	f.SetOutput(stderr)
	var o options
	f.StringVar(&o.model, "model", "../../shared/data/nmt-multi30k", "`folder` of a translation model: model.safetensors, vocab.de and vocab.en, and the texts train and test in both languages")
	f.StringVar(&o.cache, "cache", "../bin/translate", "`folder` that keeps contexts for the next run")
	f.StringVar(&o.out, "out", "results", "`folder` to write to")
	f.Uint64Var(&o.seed, "seed", 1, "seed of all random choices")
	f.Float64Var(&o.alpha, "alpha", 1, "divide log-probabilities by the length to the power of `A`")
	f.IntVar(&o.longest, "longest", 60, "cut translations after `N` words")
	f.IntVar(&o.limit, "limit", 0, "take the first `N` pairs of each text; 0 for all")
	f.IntVar(&o.rounds, "rounds", 0, "`number` of rounds (default: 21)")
	if err := f.Parse(args); err != nil {
		return err
	}
	switch {
	case f.NArg() > 0:
		return fmt.Errorf("found the argument %q, expected flags only", f.Arg(0))
	case !(o.alpha >= 0) || math.IsInf(o.alpha, 0):
		return fmt.Errorf("--alpha: found %v, expected a finite number that is not negative", o.alpha)
	case o.longest < 1:
		return fmt.Errorf("--longest: found %d, expected at least 1", o.longest)
	case o.limit < 0:
		return fmt.Errorf("--limit: found %d, expected at least 0", o.limit)
	case o.rounds < 0:
		return fmt.Errorf("--rounds: found %d, expected at least 1", o.rounds)
	}
	p := progress.New(stderr)
	defer p.Close()
	d, err := load(ctx, o.model, o.limit)
	if err != nil {
		return err
	}
	s := defaultSweep(d.model.Layer().Labels())
	if o.rounds > 0 {
		s.rounds = o.rounds
	}
	return translate(ctx, d, s, o, stdout, p)
}

// translate runs the measurements of the sweep and writes them.
func translate(ctx context.Context, d *data, s sweep, o options, stdout io.Writer, p *progress.Printer) error {
	if err := os.MkdirAll(o.out, 0o777); err != nil {
		return err
	}
	t, err := table(ctx, d, s, o, p)
	if err != nil {
		return err
	}
	path := filepath.Join(o.out, "translate.json")
	if err := t.Save(path); err != nil {
		return err
	}
	if err := report.WriteTranslation(o.out, t); err != nil {
		return err
	}
	p.Line(fmt.Sprintf("%s: %d methods in %s", path, len(t.Rows), progress.Duration(time.Duration(t.Seconds*1e9))))
	return report.TranslationSummary(stdout, t)
}

// contestant is a setting that is measured.
type contestant struct {
	row      points.Translator
	setting  methods.Setting
	screen   func() (*screening.Searcher, error) // of a screen
	searcher searchers
	turn     *measure.Turn
	found    [][]translation // one per width of the beam
}

// The exact contestants.
const (
	exactName    = "Exact, certified int8"
	togetherName = "Dense float32, rows shared by a step"
)

// table builds, judges, decodes and measures.
func table(ctx context.Context, d *data, s sweep, o options, p *progress.Printer) (*points.Translation, error) {
	start := time.Now()
	layer := d.model.Layer()
	if n := layer.Labels(); n < topK {
		return nil, fmt.Errorf("%s: found %d words to translate to, expected at least %d", d.dir, n, topK)
	}
	learn, err := d.contexts(ctx, "train", d.train, true, o.longest, o.cache, p)
	if err != nil {
		return nil, err
	}
	defer learn.release()
	held, err := d.contexts(ctx, "held", d.held, true, o.longest, o.cache, p)
	if err != nil {
		return nil, err
	}
	defer held.release()
	tests, err := d.contexts(ctx, "test", d.test, false, o.longest, o.cache, p)
	if err != nil {
		return nil, err
	}
	defer tests.release()
	want, err := labels(ctx, layer, tests.rows, p)
	if err != nil {
		return nil, err
	}
	wantHeld, err := labels(ctx, layer, held.rows, p)
	if err != nil {
		return nil, err
	}
	c := &corpus{layer: layer, rows: learn.rows, end: d.model.End(), seed: o.seed}
	if c.labels, err = labels(ctx, layer, learn.rows, p); err != nil {
		return nil, err
	}
	list, err := contestants(ctx, c, s, p)
	if err != nil {
		return nil, err
	}
	p.Start("precision", "methods", len(list))
	for i, x := range list {
		if x.row.Method == togetherName { // the answers of the dense scan
			x.row.P1, x.row.P5 = list[0].row.P1, list[0].row.P5
		} else if err := x.judge(ctx, tests.rows, want); err != nil {
			return nil, err
		}
		if err := x.judgeHeldOut(ctx, held.rows, wantHeld); err != nil {
			return nil, err
		}
		p.Set(i + 1)
	}
	p.End()
	dim := layer.Dim()
	t := &points.Translation{
		Schema: points.Schema, Machine: points.Here(), Level: kernels.Level(),
		Layer: points.Layer{Name: d.name, Labels: layer.Labels(), Dim: dim},
		Seed:  o.seed, Alpha: o.alpha, MaxLen: o.longest, Sentences: len(d.test),
		References: learn.references, Own: len(learn.rows)/dim - learn.references,
		Calibration: len(held.rows) / dim, TestContexts: len(tests.rows) / dim,
		Rounds: s.rounds, Resamples: resamples, Widths: s.widths,
	}
	coder := newDecoder(d, o.alpha, o.longest)
	exact := make([][]translation, len(s.widths))
	for i, width := range s.widths {
		if exact[i], err = decode(ctx, coder, list, width, o.seed, p); err != nil {
			return nil, err
		}
	}
	for i := range s.widths {
		stride := max((len(exact[i])+s.timed-1)/s.timed, 1)
		t.TimedSentences = (len(exact[i]) + stride - 1) / stride
		if err := clock(ctx, list, batches(exact[i], stride), dim, i, s, o.seed, p); err != nil {
			return nil, err
		}
	}
	for _, x := range list {
		t.Rows = append(t.Rows, x.row)
	}
	examples(t, d, list, s.examples)
	t.Seconds = measure.Round(time.Since(start).Seconds(), 3)
	return t, nil
}

// contestants builds all methods, the dense scan first and the exact layer after it.
func contestants(ctx context.Context, c *corpus, s sweep, p *progress.Printer) ([]*contestant, error) {
	l := c.layer
	in := &methods.Input{Layer: l, Contexts: c.rows, Labels: c.labels, K: topK, Seed: c.seed}
	setting := func(m methods.Method) (methods.Setting, error) {
		x, err := m.Build(ctx, in)
		if err != nil {
			return nil, err
		}
		return x.Settings()[0], nil
	}
	plain, err := setting(methods.Dense{})
	if err != nil {
		return nil, err
	}
	certified, err := setting(methods.Certified{})
	if err != nil {
		return nil, err
	}
	list := []*contestant{
		{row: points.Translator{Method: methods.Dense{}.Name()}, setting: plain, searcher: func() (l2s.Asker, error) { return newOneScan(l), nil }},
		{row: points.Translator{Method: exactName}, setting: certified, searcher: exactly(l)},
		{row: points.Translator{Method: togetherName}, setting: plain, searcher: func() (l2s.Asker, error) { return newShared(l), nil }},
	}
	for _, r := range s.rivals {
		p.Start("building "+r.Name()+" "+r.Params(), "methods", 0)
		start := time.Now()
		x, err := r.Build(ctx, in)
		if err != nil {
			return nil, err
		}
		seconds := measure.Round(time.Since(start).Seconds(), 3)
		p.End()
		found := 0
		for _, setting := range x.Settings() {
			for _, want := range r.settings {
				if setting.Params() != want {
					continue
				}
				found++
				list = append(list, &contestant{
					row:     points.Translator{Method: r.Name(), Build: r.Params(), Query: want, BuildSeconds: seconds},
					setting: setting,
					searcher: func() (l2s.Asker, error) {
						return &oneByOne{by: setting.Searcher().(methods.Normaliser), dim: l.Dim()}, nil
					},
				})
			}
		}
		if found == 0 {
			return nil, fmt.Errorf("%s: found none of the settings %s", r.Name(), strings.Join(r.settings, ", "))
		}
	}
	for _, plan := range s.plans {
		more, err := c.contest(ctx, plan, p)
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
	return list, nil
}

// resamples is the number of resamples of an interval.
const resamples = 1000

// decode translates all sentences with each contestant, and returns the translations of the exact
// layer, with the steps of its search.
func decode(ctx context.Context, c *decoder, list []*contestant, width int, seed uint64, p *progress.Printer) (exact []translation, err error) {
	n := len(c.sources)
	p.Start(fmt.Sprintf("translating, beam %d", width), "sentences", (len(list)+1)*n)
	done := 0
	count := func(k int) { p.Set(done + k) }
	if exact, err = c.translate(ctx, width, list[report.ExactRow].searcher, nil, count); err != nil {
		return nil, err
	}
	for _, x := range list {
		done += n
		found, err := c.translate(ctx, width, x.searcher, exact, count)
		if err != nil {
			return nil, err
		}
		difference := bleu.Paired(texts(found), texts(exact), c.data.words, resamples, seed)
		r := points.Decoding{BLEU: measure.Round(c.data.score(found), 3), Low: measure.Round(difference.Low, 3), High: measure.Round(difference.High, 3)}
		for i, t := range found {
			if !slices.Equal(t.words, exact[i].words) {
				r.Differ++
			}
			if t.cut {
				r.Cut++
			}
		}
		x.found = append(x.found, found)
		x.row.Decodings = append(x.row.Decodings, r)
	}
	p.End()
	return exact, nil
}

// texts are the words of translations.
func texts(list []translation) [][]string {
	all := make([][]string, len(list))
	for i, t := range list {
		all[i] = t.words
	}
	return all
}

// clock times the contestants on batches of contexts of the exact search with the beam
// at that place of the widths.
func clock(ctx context.Context, list []*contestant, batches [][]float32, dim, at int, s sweep, seed uint64, p *progress.Printer) error {
	width := s.widths[at]
	var turns []*measure.Turn
	for _, x := range list {
		searcher, err := x.searcher()
		if err != nil {
			return err
		}
		dst, answers := make([]l2s.Prediction, width*width), make([]l2s.Answer, width)
		x.turn = &measure.Turn{Query: func(i int) int {
			n := len(batches[i]) / dim
			if err := searcher.SearchBatch(dst[:n*width], answers[:n], batches[i], l2s.Request{LogSum: true}); err != nil {
				panic(err) // the contexts were good enough for the exact layer
			}
			return n
		}}
		turns = append(turns, x.turn)
	}
	p.Start(fmt.Sprintf("measuring, beam %d", width), "rounds", s.rounds)
	if n := measure.InTurns(ctx, turns[0], turns[1:], len(batches), s.rounds, s.block, seed, p.Set); n < s.rounds {
		return fmt.Errorf("%d of %d rounds are complete: %w", n, s.rounds, context.Cause(ctx))
	}
	p.End()
	for _, x := range list {
		x.row.Decodings[at].Timing = x.turn.Timing()
	}
	return nil
}

// examples puts sentences into t that the representative screen translates differently.
func examples(t *points.Translation, d *data, list []*contestant, n int) {
	at := report.Representative(t)
	if at < 0 {
		return
	}
	last := len(t.Widths) - 1
	exact, other := list[report.ExactRow].found[last], list[at].found[last]
	t.Example = report.TranslatorName(t.Rows[at])
	var differ []int
	for i := range exact {
		if !slices.Equal(exact[i].words, other[i].words) {
			differ = append(differ, i)
		}
	}
	n = min(n, len(differ))
	for j := range n {
		i := differ[j*len(differ)/n]
		t.Examples = append(t.Examples, points.Differently{
			Source: d.sources[i], Reference: strings.Join(d.words[i], " "),
			Exact: strings.Join(exact[i].words, " "), Screened: strings.Join(other[i].words, " "),
		})
	}
}
