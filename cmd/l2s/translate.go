package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/learning-to-screen/l2s/beam"
	"github.com/learning-to-screen/l2s/internal/atomicfile"
	"github.com/learning-to-screen/l2s/internal/bleu"
	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/internal/progress"
	"github.com/learning-to-screen/l2s/internal/seq2seq"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// translateResult is the JSON of l2s translate.
type translateResult struct {
	Out       string `json:"out"`
	Sentences int    `json:"sentences"`
	// Words is how many the translations have, Unknown how many of the source
	// are <unk>, Cut how many translations did not end by themselves.
	Words   int `json:"words"`
	Unknown int `json:"unknown"`
	Cut     int `json:"cut"`
	// Seconds is the time of all. DecoderSeconds is that in the encoder, the decoder and
	// the search, and SoftmaxSeconds that in the softmax layer, both summed over
	// Threads.
	Seconds        float64 `json:"seconds"`
	DecoderSeconds float64 `json:"decoder_seconds"`
	SoftmaxSeconds float64 `json:"softmax_seconds"`
	Threads        int     `json:"threads"`
	// Contexts is how many the softmax layer has answered.
	Contexts int      `json:"contexts"`
	BLEU     *float64 `json:"bleu,omitempty"`
}

func (r *translateResult) summary() string {
	s := max(r.Seconds, 1e-9)
	text := fmt.Sprintf("%s sentences, %s words: %.1f sentences/s, %.0f words/s, %.1f%% of the time in the softmax layer (%.1f us a context)",
		progress.Count(r.Sentences), progress.Count(r.Words),
		float64(r.Sentences)/s, float64(r.Words)/s, 100*r.SoftmaxSeconds/max(r.DecoderSeconds+r.SoftmaxSeconds, 1e-9), 1e6*r.SoftmaxSeconds/float64(max(1, r.Contexts)))
	if r.Cut > 0 {
		text += fmt.Sprintf("; %s cut", progress.Count(r.Cut))
	}
	if r.BLEU != nil {
		text += fmt.Sprintf("; BLEU %.2f", *r.BLEU)
	}
	return text
}

func runTranslate(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := newFlags("translate", description{
		purpose: `Translate a text with an LSTM translation model, a sentence a line, by beam
search over the exact softmax layer or over a screen. Log-probabilities are
normalised over the labels that a query looks at. The best hypothesis has the
largest log-probability, divided by its length to the power of --alpha.`,
		usage: "--model DIR --text test.de [--screen m.l2s] [--beam 5] [--out hyp.en]",
		notes: `The text is UTF-8; white space separates its words. A word that the
vocabulary lacks is <unk>. An empty line stays empty. There is no limit to the
length of a sentence; a translation is cut after --longest words.

An interrupt keeps the lines that are translated, in FILE.partial. The folder of
the model is as for l2s contexts --nmt. Every candidate set of the screen must hold </s>.`,
		advanced: "alpha batch from longest tail threads to",
		example: `l2s translate --model nmt-multi30k --text test.de --screen m.l2s --out hyp.en
l2s translate --model nmt-multi30k --text test.de --beam 1 --reference test.en --out hyp.en`,
	}, stdout, stderr)
	dir := f.needs("model", "folder `DIR` of a translation model")
	text := f.needs("text", "text `FILE` to translate")
	screenFile := f.text("screen", "screen `FILE`; the exact layer without it")
	out := f.text("out", "`FILE` to write; standard output without it")
	reference := f.text("reference", "`FILE` of translations, line by line; gives BLEU-4")
	tail := f.boolean("tail", "normalise over all words, by the screen's tail (l2s train --tail)")
	same := func(s string) (string, error) { return s, nil }
	from := custom(f, "from", "de", "de", "`LANGUAGE` of the text, the ending of its vocabulary file", same)
	to := custom(f, "to", "en", "en", "`LANGUAGE` of the translation, the ending of its vocabulary file", same)
	width := f.whole("beam", 5, 1, "keep `N` hypotheses a sentence; 1 is greedy")
	alpha := f.real("alpha", 1, 0, "divide log-probabilities by the length to the power of `A`")
	longest := f.whole("longest", 60, 1, "cut translations after `N` words")
	batch := f.whole("batch", 32, 1, "translate `N` sentences together; does not change the result")
	threads := f.threads("translate")
	quiet := f.boolean("quiet", "show no progress")
	asJSON := f.json()
	f.quiet = quiet
	if err := f.parse(args, nil); err != nil {
		return err
	}
	if *asJSON && *out == "" {
		return f.wrongUse("--json needs --out: the translations would go to standard output too")
	}
	var outputs []output
	if *out != "" {
		inputs := append(seq2seq.Files(*dir, *from, *to), *text, *screenFile, *reference)
		outputs = []output{{flag: "--out", path: *out}, {"--out", *out + partialSuffix, "where an interrupt keeps what is done"}}
		if err := checkOutputs(f, outputs, inputs...); err != nil {
			return err
		}
	}
	if *out == "" {
		if err := checkStdout(stdout); err != nil {
			return err
		}
	}
	m, err := pairFlags{dir: dir, from: from, to: to}.load(ctx)
	if err != nil {
		return err
	}
	if n := m.Target().Len(); *width > n {
		return f.wrongUse("--beam: found %d, expected at most the %s words of the target vocabulary", *width, progress.Count(n))
	}
	if *tail && *screenFile == "" {
		return f.wrongUse("--tail needs --screen: the exact layer is normalised over all words")
	}
	newSearcher, err := openSearcher(ctx, *screenFile, *tail, m, filepath.Join(*dir, "model.safetensors")+":generator.weight")
	if err != nil {
		return err
	}
	sentences, err := readSentences(ctx, m.Source(), *text, 0)
	if err != nil {
		return err
	}
	var references [][]string
	if *reference != "" {
		if references, err = loading(ctx, readWords, *reference); err != nil {
			return err
		}
		if len(references) != len(sentences) {
			return fmt.Errorf("%s: found %s lines, expected %s, as many as %s has", *reference, progress.Count(len(references)), progress.Count(len(sentences)), *text)
		}
	}
	var w io.Writer = writerFunc(func(b []byte) (int, error) { return len(b), write(stdout, string(b)) })
	var file *atomicfile.File
	if *out != "" {
		if err := checkWritable(outputs); err != nil {
			return err
		}
		if kept := *out + partialSuffix; fileThere(kept) {
			return fmt.Errorf("%s: found a file, expected none: an interrupt would replace it. Move it away: it may have the translations of an interrupted run", kept)
		}
		if file, err = atomicfile.Create(*out); err != nil {
			return err
		}
		defer file.Abort()
		w = file
	}
	p := f.printer()
	defer p.Close()
	t := &translator{
		m: m, newSearcher: newSearcher, w: bufio.NewWriter(w), references: references,
		opt: beam.Options{Width: *width, MaxLen: *longest, Start: m.Start(), End: m.End(), Alpha: *alpha},
	}
	p.Start("translate", "sentences", len(sentences))
	err = t.run(ctx, sentences, *batch, *threads, p)
	if err != nil && t.Sentences == 0 {
		return err
	}
	if flushed := t.w.Flush(); flushed != nil {
		return flushed
	}
	if err != nil {
		where := "standard output"
		if file != nil {
			where = unusedName(*out + partialSuffix)
			if kept := file.CommitAs(where); kept != nil {
				return kept
			}
		}
		note := fmt.Sprintf("%s has the translations of the first %s of %s lines", where, progress.Count(t.Sentences), progress.Count(len(sentences)))
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return interruptedError{err, note}
		}
		return fmt.Errorf("%w; %s", err, note)
	}
	if file != nil {
		if err := file.Commit(); err != nil {
			return err
		}
	}
	r := &t.translateResult
	r.Out = *out
	if references != nil {
		score := t.bleu.Score()
		r.BLEU = &score
	}
	p.EndWith(r.summary())
	switch {
	case *asJSON:
		return printJSON(stdout, r)
	case r.BLEU != nil && *out != "":
		return write(stdout, fmt.Sprintf("BLEU %.2f\n", *r.BLEU))
	case r.BLEU != nil && *quiet: // the translations are on standard output
		return write(stderr, fmt.Sprintf("BLEU %.2f\n", *r.BLEU))
	}
	return nil
}

// unusedName returns a name for a file that nobody else has: path, or path-2 and so on if
// another run has made one meanwhile.
func unusedName(path string) string {
	name := path
	for n := 2; fileThere(name); n++ {
		name = fmt.Sprintf("%s-%d", path, n)
	}
	return name
}

// fileThere reports whether there is something of this name.
func fileThere(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// partialSuffix ends the name of the file that keeps what an interrupted run has
// done.
const partialSuffix = ".partial"

// openSearcher opens the screen of a path for the model's layer, or the layer if
// there is none, and returns what makes the searcher of a goroutine.
func openSearcher(ctx context.Context, path string, tail bool, m *seq2seq.Model, name string) (func() (beam.Searcher, error), error) {
	if path == "" {
		return func() (beam.Searcher, error) { return softmax.NewSearcher(m.Layer()), nil }, nil
	}
	s, err := loadScreenFor(ctx, path, &layer{Layer: m.Layer(), name: name})
	if err != nil {
		return nil, err
	}
	for t := range s.Clusters() * (1 + len(s.Shells())) {
		held := false
		for _, id := range s.Candidates(t) {
			held = held || id == m.End()
		}
		if !held {
			return nil, fmt.Errorf("%s: candidate set of cluster %d: found no </s> (id %d), expected it in every set: train with --always %d", path, t, m.End(), m.End())
		}
	}
	var options []screen.Option
	if tail {
		if s.Regression() == nil {
			return nil, fmt.Errorf("%s: found no tail, expected one for --tail: train with --tail regression", path)
		}
		options = append(options, screen.OverTail())
	}
	return func() (beam.Searcher, error) { return screen.NewSearcher(s, m.Layer(), options...) }, nil
}

// readWords reads the words of each line of a file.
func readWords(path string) ([][]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var lines [][]string
	for line := range strings.Lines(string(data)) {
		lines = append(lines, strings.Fields(line))
	}
	return lines, nil
}

// nmtDecoder makes a translation model a beam.Decoder.
type nmtDecoder struct {
	m *seq2seq.Model
	d *seq2seq.Decoder
}

func (n *nmtDecoder) start(sentences [][]uint32) {
	n.d.Start(n.m.Encode(sentences))
}

func (n *nmtDecoder) Step(parents []int, tokens []uint32) ([]float32, error) {
	n.d.Reorder(parents)
	return n.d.Step(tokens), nil
}

// timedSearcher measures the time in the softmax layer.
type timedSearcher struct {
	beam.Searcher
	time     time.Duration
	contexts int
}

func (s *timedSearcher) SearchBatch(dst []softmax.Prediction, answers []softmax.Answer, contexts []float32, req softmax.Request) error {
	start := time.Now()
	err := s.Searcher.SearchBatch(dst, answers, contexts, req)
	s.time += time.Since(start)
	s.contexts += len(answers)
	return err
}

// translator translates sentences and writes them in order.
type translator struct {
	m           *seq2seq.Model
	newSearcher func() (beam.Searcher, error)
	opt         beam.Options
	w           *bufio.Writer
	references  [][]string
	bleu        bleu.Corpus
	translateResult
}

// translated is the translation of one sentence.
type translated struct {
	words []string
	cut   bool
}

// group is what one goroutine made of some sentences, and how long that took.
type group struct {
	list           []translated
	all, inSoftmax time.Duration
	contexts       int
}

// run translates groups of sentences on threads.
func (t *translator) run(ctx context.Context, sentences [][]uint32, batch, threads int, p *progress.Printer) error {
	unknown, err := t.m.Source().Unknown()
	if err != nil {
		return err
	}
	groups := (len(sentences) + batch - 1) / batch
	t.Threads = parallel.Threads(threads, groups)
	start := time.Now()
	return parallel.InOrder(ctx, groups, threads, func() func(context.Context, int) (group, error) {
		work, err := t.worker(ctx)
		return func(_ context.Context, i int) (g group, _ error) {
			if err != nil {
				return g, err
			}
			return work(sentences[i*batch : min((i+1)*batch, len(sentences))])
		}
	}, func(g group) error {
		for _, x := range g.list {
			for _, id := range sentences[t.Sentences] {
				if id == unknown {
					t.Unknown++
				}
			}
			if x.cut {
				t.Cut++
			}
			t.Words += len(x.words)
			if t.references != nil {
				t.bleu.Add(x.words, t.references[t.Sentences])
			}
			if _, err := t.w.WriteString(strings.Join(x.words, " ") + "\n"); err != nil {
				return err
			}
			t.Sentences++
		}
		t.Seconds = time.Since(start).Seconds()
		t.SoftmaxSeconds += g.inSoftmax.Seconds()
		t.DecoderSeconds += (g.all - g.inSoftmax).Seconds()
		t.Contexts += g.contexts
		p.Set(t.Sentences)
		return nil
	})
}

// worker returns what translates some sentences together, for one goroutine.
func (t *translator) worker(ctx context.Context) (func(sentences [][]uint32) (group, error), error) {
	found, err := t.newSearcher()
	if err != nil {
		return nil, err
	}
	searcher, decoder := &timedSearcher{Searcher: found}, &nmtDecoder{m: t.m, d: t.m.NewDecoder()}
	search, err := beam.New(decoder, searcher, t.opt)
	if err != nil {
		return nil, err
	}
	return func(sentences [][]uint32) (g group, _ error) {
		start := time.Now()
		searcher.time, searcher.contexts = 0, 0
		g.list = make([]translated, len(sentences))
		var full [][]uint32
		var places []int
		for i, s := range sentences {
			if len(s) > 0 {
				full, places = append(full, s), append(places, i)
			}
		}
		if len(full) > 0 {
			decoder.start(full)
			results, err := search.Run(ctx, len(full))
			if err != nil {
				return g, err
			}
			for i, r := range results {
				x := &g.list[places[i]]
				x.cut = !r.Ended
				for _, id := range r.Tokens {
					x.words = append(x.words, t.m.Target().Word(id))
				}
			}
		}
		g.all, g.inSoftmax, g.contexts = time.Since(start), searcher.time, searcher.contexts
		return g, nil
	}, nil
}
