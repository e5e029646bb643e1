// Command translate is the paper's second task, translation ("Learning to Screen for Fast Softmax
// Inference on Large Vocabulary Neural Networks", Table 2), on a model in use: the small one of
// Firefox from English to Portuguese, with the list of labels per sentence that Firefox chooses among.
//
// It translates the text of training by all logits, keeps the contexts of the decoder, and makes a
// screen and a preview of them. Then each head translates the sentences of the test, greedily and by a
// beam of 5: its P@1 on the contexts of the translation by all logits; the time of a context, heads in
// turns, on one thread; how often its text is that of all logits; the chrF of the two; and words per
// second of the whole translation, sentences of similar length 16 at a time, on one thread.
//
// The table goes to translation.json in the folder -out, and the page of package report next to it.
// Contexts, the screen and the preview stay in the folder -cache for the next run.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/benchmarks/internal/command"
	"github.com/learning-to-screen/l2s/benchmarks/internal/inorder"
	"github.com/learning-to-screen/l2s/benchmarks/internal/marian"
	"github.com/learning-to-screen/l2s/benchmarks/internal/measure"
	"github.com/learning-to-screen/l2s/benchmarks/internal/npy"
	"github.com/learning-to-screen/l2s/benchmarks/internal/points"
	"github.com/learning-to-screen/l2s/benchmarks/internal/report"
	"github.com/learning-to-screen/l2s/benchmarks/internal/sentencepiece"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/progress"
	"github.com/learning-to-screen/l2s/preview"
	"github.com/learning-to-screen/l2s/train"
)

func main() { command.Main("translate", run) }

// options are the arguments.
type options struct {
	model, train, test, cache, out, peer   string
	sentences, wide, timed, states, rounds int
	seed                                   uint64
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("translate", flag.ContinueOnError)
	f.SetOutput(stderr)
	var o options
	f.StringVar(&o.model, "model", "../bin/real/firefox-en-pt", "`folder` of the model: model.*.bin, vocab.*.spm and lex.*.bin")
	f.StringVar(&o.train, "train", "../../shared/real/train.txt", "`file` of the text to learn from")
	f.StringVar(&o.test, "test", "../../shared/real/test.txt", "`file` of the text to translate")
	f.StringVar(&o.cache, "cache", "../bin/translate", "`folder` that keeps contexts for the next run")
	f.StringVar(&o.out, "out", "results/firefox-en-pt", "`folder` to write to")
	f.StringVar(&o.peer, "peer", "", "`command` of another program that translates the lines of its input: it writes its name and seconds, by a tab, and the translations, a line each")
	f.IntVar(&o.sentences, "sentences", 1000, "translate the first `N` sentences")
	f.IntVar(&o.wide, "wide", 150, "of these, `N` by the beam of 5")
	f.IntVar(&o.timed, "timed", 20, "time heads on `N` sentences")
	f.IntVar(&o.states, "states", 300_000, "learn from `N` contexts, at most")
	f.IntVar(&o.rounds, "rounds", 5, "`number` of rounds")
	f.Uint64Var(&o.seed, "seed", 1, "seed of all random choices")
	if err := f.Parse(args); err != nil {
		return err
	}
	for name, n := range map[string]int{"sentences": o.sentences, "wide": o.wide, "timed": o.timed, "states": o.states, "rounds": o.rounds} {
		if n < 1 {
			return fmt.Errorf("-%s: found %d, expected at least 1", name, n)
		}
	}
	if f.NArg() > 0 {
		return fmt.Errorf("found the argument %q, expected flags only", f.Arg(0))
	}
	p := progress.New(stderr)
	defer p.Close()
	b, err := load(o, p)
	if err != nil {
		return err
	}
	t, err := b.measure(ctx)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o777); err != nil {
		return err
	}
	if err := t.Save(filepath.Join(o.out, "translation.json")); err != nil {
		return err
	}
	if err := report.Page(filepath.Join(o.out, "figures.md"), "", o.out); err != nil {
		return err
	}
	return report.TranslationSummary(stdout, t)
}

// dense32 is the number of sentences that dense float32 translates greedily, and times the width of the
// beam by a beam: its translations are those of the exact search but for rounding, and take long.
const dense32 = 100

// bench is a run.
type bench struct {
	options
	progress *progress.Printer
	file     string // of the model
	model    *marian.Model
	pieces   *sentencepiece.Model
	list     *marian.Shortlist
	layer    *l2s.Layer
	learn    *text
	test     [2]*text         // for each width of the beam
	want     [2][]translation // by all logits, with the contexts
}

// load reads the model and the texts.
func load(o options, p *progress.Printer) (*bench, error) {
	b := &bench{options: o, progress: p}
	var err error
	one := func(pattern string) string {
		files, _ := filepath.Glob(filepath.Join(o.model, pattern))
		if len(files) != 1 && err == nil {
			err = fmt.Errorf("%s: found %d files %s, expected one", o.model, len(files), pattern)
		}
		return strings.Join(files, " ")
	}
	b.file = one("model.*.bin")
	spm, lex := one("vocab.*.spm"), one("lex.*.bin")
	if err != nil {
		return nil, err
	}
	if b.model, err = marian.Load(b.file); err != nil {
		return nil, err
	}
	if b.pieces, err = sentencepiece.Load(spm); err != nil {
		return nil, err
	}
	if n := b.pieces.Len(); n != b.model.Labels() {
		return nil, fmt.Errorf("%s: found %d pieces, expected the %d rows of %s", spm, n, b.model.Labels(), b.file)
	}
	if b.list, err = marian.LoadShortlist(lex, b.model.Labels()); err != nil {
		return nil, err
	}
	if b.layer, err = b.model.Layer(); err != nil {
		return nil, err
	}
	if b.learn, err = read(o.train, b.pieces, 10, 1000); err != nil {
		return nil, err
	}
	test, err := read(o.test, b.pieces, 20, 220)
	if err != nil {
		return nil, err
	}
	b.test = [2]*text{test.first(o.sentences), test.first(min(o.wide, o.sentences))}
	return b, nil
}

// exactly is the head whose translations are those by all logits.
func (b *bench) exactly() head { return indexed("exact", b.layer, nil, l2s.Options{}) }

// measure makes the table.
func (b *bench) measure(ctx context.Context) (*report.Translation, error) {
	key := fmt.Sprint(b.states, b.learn.pieces)
	rows, release, err := npy.Kept(b.cache, "states", key, []string{b.file}, b.model.Dim(), func(w *npy.Writer) error {
		return b.contexts(ctx, w)
	})
	if err != nil {
		return nil, err
	}
	defer release()
	heads, err := b.heads(ctx, rows, key)
	if err != nil {
		return nil, err
	}
	for i, width := range report.Widths {
		if b.want[i], err = b.translate(ctx, fmt.Sprintf("translating by all logits, beam %d", width), b.test[i], b.exactly(), width, 0, true); err != nil {
			return nil, err
		}
	}
	t := &report.Translation{
		Model: filepath.Base(b.options.model), Level: kernels.Level(), Machine: points.Here(),
		Labels: b.model.Labels(), Dim: b.model.Dim(),
		Note: fmt.Sprintf("P@1 of %d contexts of greedy decoding, %d sentences; %d sentences by the beam of 5. The screen and the preview learned from %d contexts of another text. "+
			"Screens read the codes of the layer, which fit the caches, and no copies. "+
			"Dense float32 translated %d sentences, and %d by the beam. Times on one thread, %d sentences, %d rounds in turns. Labels is the mean number that a head looks at with all codes; one of a list that is a candidate too counts twice. "+
			"The thin list leaves out what translations do not use: for a piece that %d sentences of the other text have, the pieces of its list that fewer than %d of their translations have.",
			contextsOf(b.want[0]), len(b.test[0].pieces), len(b.test[1].pieces), len(rows)/b.model.Dim(), min(dense32, len(b.want[0])), min(dense32/report.Widths[1], len(b.want[1])), min(b.timed, len(b.test[1].pieces)), b.rounds, often, least),
	}
	for i, h := range heads {
		row := report.Head{Name: h.name}
		n := len(b.want[0])
		if i == 0 {
			n = min(n, dense32)
		}
		if row.P1, row.Labels, err = b.precision(ctx, h, n); err != nil {
			return nil, err
		}
		for j, width := range report.Widths {
			x, want := b.test[j], b.want[j]
			if i == 0 {
				n := min(len(want), dense32/width)
				x, want = x.first(n), want[:n]
			}
			found, err := b.translate(ctx, fmt.Sprintf("%s, beam %d", h.name, width), x, h, width, 0, false)
			if err != nil {
				return nil, err
			}
			row.Same[j], row.ChrF[j] = b.compare(found, want)
		}
		t.Heads = append(t.Heads, row)
	}
	for j := range report.Widths {
		if err := b.clock(ctx, heads, t.Heads, j); err != nil {
			return nil, err
		}
		if err := b.speed(ctx, heads, t.Heads, j); err != nil {
			return nil, err
		}
	}
	if b.peer != "" {
		t.Rivals, err = b.rival(ctx)
	}
	return t, err
}

// rival lets the other program translate.
func (b *bench) rival(ctx context.Context) ([]report.Rival, error) {
	x := b.test[0].first(b.timed)
	args := strings.Fields(b.peer)
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Env = append(os.Environ(), "RAYON_NUM_THREADS=1", "OMP_NUM_THREADS=1")
	c.Stdin, c.Stderr = strings.NewReader(strings.Join(x.sentences, "\n")), os.Stderr
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.peer, err)
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	name, number, _ := strings.Cut(lines[0], "\t")
	seconds, err := strconv.ParseFloat(number, 64)
	if err != nil || len(lines) != len(x.sentences)+1 {
		return nil, fmt.Errorf("%s: found %d lines that begin with %q, expected a name and seconds, and %d translations", b.peer, len(lines), lines[0], len(x.sentences))
	}
	var references []string
	for _, w := range b.want[0][:len(x.sentences)] {
		references = append(references, b.pieces.Decode(w.pieces))
	}
	return []report.Rival{{Name: name, Words: float64(x.words()) / seconds, ChrF: chrF(lines[1:], references)}}, nil
}

func contextsOf(list []translation) (n int) {
	for _, x := range list {
		n += len(x.steps)
	}
	return n
}

// translate translates a text.
func (b *bench) translate(ctx context.Context, what string, x *text, h head, width, threads int, record bool) ([]translation, error) {
	b.progress.Start(what, "sentences", len(x.pieces))
	defer b.progress.End()
	return all(ctx, b.model, x, h, width, threads, b.pieces.End(), record, b.progress.Set)
}

// contexts writes the contexts of greedy decoding of the text of training, sentence by sentence, as
// many as are wanted.
func (b *bench) contexts(ctx context.Context, w *npy.Writer) error {
	b.progress.Start("contexts", "contexts", b.states)
	defer b.progress.End()
	const part = 64 * together
	for at := 0; at < len(b.learn.pieces); at += part {
		end := min(at+part, len(b.learn.pieces))
		list, err := all(ctx, b.model, &text{pieces: b.learn.pieces[at:end]}, b.exactly(), 1, 0, b.pieces.End(), true, func(int) {})
		if err != nil {
			return err
		}
		for _, x := range list {
			for _, h := range x.steps {
				if w.Rows() == b.states {
					return nil
				}
				if err := w.WriteRows(h); err != nil {
					return err
				}
			}
		}
		b.progress.Set(w.Rows())
	}
	return nil
}

// kept returns an index, from the folder of contexts if that has it.
func (b *bench) kept(name, key string, build func() (*l2s.Index, error)) (*l2s.Index, error) {
	path, err := npy.Path(b.cache, name, "", fmt.Sprint(b.seed, key), []string{b.file})
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); err == nil {
		return l2s.Load(path)
	}
	start := time.Now()
	x, err := build()
	if err != nil {
		return nil, err
	}
	b.progress.Line(fmt.Sprintf("%v, in %s", x, progress.Duration(time.Since(start))))
	return x, x.Save(path)
}

// heads makes the heads to compare, dense float32 first.
func (b *bench) heads(ctx context.Context, rows []float32, key string) ([]head, error) {
	states := l2s.Float32(rows, b.model.Dim())
	previews, err := b.kept("preview", key, func() (*l2s.Index, error) {
		b.progress.Start("preview", "percent", 100)
		defer b.progress.End()
		return preview.Make(ctx, b.layer, states, preview.Options{Progress: func(_ string, done float64) { b.progress.Set(int(100 * done)) }})
	})
	if err != nil {
		return nil, err
	}
	screen, err := b.kept("screen", key, func() (*l2s.Index, error) {
		opt := train.DefaultOptions()
		opt.Seed, opt.Always, opt.AnyPrecision = b.seed, []uint32{b.pieces.End()}, true
		x, _, err := train.Run(ctx, b.layer, states, opt)
		return x, err
	})
	if err != nil {
		return nil, err
	}
	thin, err := b.thin(rows)
	if err != nil {
		return nil, err
	}
	list := []head{
		dense(b.model), codes(b.model), b.exactly(), indexed("preview", b.layer, previews, l2s.Options{}),
		listed("Firefox's list", b.layer, nil, l2s.Options{}, b.list), listed("thin list", b.layer, nil, l2s.Options{}, thin),
	}
	for _, budget := range []float64{100, 500, 800, 1500} {
		name, o := fmt.Sprintf("screen, budget %g", budget), l2s.Options{Budget: budget, Copies: l2s.NoCopies}
		list = append(list, indexed(name, b.layer, screen, o))
		if budget == 100 {
			list = append(list, listed(name+", with the thin list", b.layer, screen, o, thin))
		}
		list = append(list, listed(name+", with Firefox's list", b.layer, screen, o, b.list))
	}
	return list, nil
}

const (
	// A thin list has of the list of a piece that often of the sentences of training have those pieces
	// that least of their translations have.
	often, least = 100, 4
	batch        = 64
)

// thin returns the list without the pieces that the translations of the text of training do not have.
// Their contexts are in rows, sentence by sentence.
func (b *bench) thin(rows []float32) (*marian.Shortlist, error) {
	s, err := l2s.NewSearcher(b.layer, nil, l2s.Options{})
	if err != nil {
		return nil, err
	}
	d := b.model.Dim()
	b.progress.Start("best labels of the contexts", "contexts", len(rows)/d)
	defer b.progress.End()
	best, answers := make([]l2s.Prediction, len(rows)/d), make([]l2s.Answer, batch)
	for at := 0; at < len(best); at += batch {
		end := min(at+batch, len(best))
		if err := s.SearchBatch(best[at:end], answers[:end-at], rows[at*d:end*d], l2s.Request{}); err != nil {
			return nil, err
		}
		b.progress.Set(end)
	}
	var translations [][]uint32
	for _, pieces := range b.learn.pieces {
		if len(best) == 0 {
			break
		}
		var x []uint32
		for most := limit(len(pieces)); len(x) < most && len(best) > 0; best = best[1:] {
			if x = append(x, best[0].ID); best[0].ID == b.pieces.End() {
				best = best[1:]
				break
			}
		}
		translations = append(translations, x)
	}
	return b.list.Thin(b.learn.pieces[:len(translations)], translations, often, least), nil
}

// precision returns the P@1 of a head on the contexts of greedy decoding, and the mean number of
// labels that it looks at with all codes, of the first sentences.
func (b *bench) precision(ctx context.Context, h head, sentences int) (p1, labels float64, err error) {
	d, end, hits, n, looked := b.model.Dim(), b.pieces.End(), 0, 0, 0
	b.progress.Start(h.name+", P@1", "sentences", sentences)
	defer b.progress.End()
	type result struct {
		hits, labels int
	}
	i := 0
	err = inorder.Run(ctx, sentences, 0, func() func(context.Context, int) (result, error) {
		f, err := h.open()
		return func(_ context.Context, i int) (r result, _ error) {
			if err != nil {
				return r, err
			}
			if err := f.begin(b.test[0].pieces[i : i+1]); err != nil {
				return r, err
			}
			var dst [1]l2s.Prediction
			var answers [1]l2s.Answer
			before := f.looked()
			x := b.want[0][i]
			for j, context := range x.steps {
				if err := f.find(dst[:], answers[:], context[:d], []int{0}, false); err != nil {
					return r, err
				}
				want := end
				if j < len(x.pieces) {
					want = x.pieces[j]
				}
				if dst[0].ID == want {
					r.hits++
				}
			}
			r.labels = f.looked() - before
			return r, nil
		}
	}, func(r result) error {
		hits, n, looked = hits+r.hits, n+len(b.want[0][i].steps), looked+r.labels
		i++
		b.progress.Set(i)
		return nil
	})
	return float64(hits) / float64(n), float64(looked) / float64(n), err
}

// compare returns the share of equal translations, and the chrF of their texts.
func (b *bench) compare(found, want []translation) (same, score float64) {
	var texts, references []string
	for i := range found {
		if slices.Equal(found[i].pieces, want[i].pieces) {
			same++
		}
		texts, references = append(texts, b.pieces.Decode(found[i].pieces)), append(references, b.pieces.Decode(want[i].pieces))
	}
	return same / float64(len(found)), chrF(texts, references)
}

// clock times heads on the contexts of the translations by all logits, sentence by sentence, with
// what they do for each.
func (b *bench) clock(ctx context.Context, heads []head, rows []report.Head, at int) error {
	width, d := report.Widths[at], b.model.Dim()
	n := min(b.timed, len(b.want[at]))
	var turns []*measure.Turn
	dst, answers, of := make([]l2s.Prediction, width*width), make([]l2s.Answer, width), make([]int, width)
	for _, h := range heads {
		f, err := h.open()
		if err != nil {
			return err
		}
		turns = append(turns, &measure.Turn{Query: func(i int) (contexts int) {
			if err := f.begin(b.test[at].pieces[i : i+1]); err != nil {
				panic(err) // the sentence was translated before
			}
			for _, h := range b.want[at][i].steps {
				n := len(h) / d
				if err := f.find(dst[:n*width], answers[:n], h, of[:n], width > 1); err != nil {
					panic(err)
				}
				contexts += n
			}
			return contexts
		}})
	}
	b.progress.Start(fmt.Sprintf("measuring, beam %d", width), "rounds", b.rounds)
	defer b.progress.End()
	if done := measure.InTurns(ctx, turns[0], turns[1:], n, b.rounds, 20*time.Millisecond, b.seed, b.progress.Set); done < b.rounds {
		return fmt.Errorf("%d of %d rounds are complete: %w", done, b.rounds, context.Cause(ctx))
	}
	for i, t := range turns {
		x := t.Timing()
		rows[i].Micros[at], rows[i].Speedup[at] = x.Micros, x.Speedup
	}
	return nil
}

// speed measures whole translations, heads in turns.
func (b *bench) speed(ctx context.Context, heads []head, rows []report.Head, at int) error {
	x := b.test[at].first(b.timed)
	times := make([][]float64, len(heads))
	rounds := 9 / (1 + at) // by a beam a round takes four times as long
	b.progress.Start(fmt.Sprintf("whole translations, beam %d", report.Widths[at]), "rounds", rounds)
	defer b.progress.End()
	for round := range rounds {
		for i, h := range heads {
			start := time.Now()
			if _, err := all(ctx, b.model, x, h, report.Widths[at], 1, b.pieces.End(), false, func(int) {}); err != nil {
				return err
			}
			times[i] = append(times[i], time.Since(start).Seconds())
		}
		b.progress.Set(round + 1)
	}
	for i := range heads {
		rows[i].Words[at] = float64(x.words()) / measure.Quantile(times[i], .5)
	}
	return nil
}
