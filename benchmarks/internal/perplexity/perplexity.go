// Package perplexity measures the perplexity of a text under a language model whose softmax layer
// is approximated, and the time of it: the table of the paper's appendix ("Perplexity Results").
//
// The logits of the labels that a method finds are exact, the logits of all others are w~_s.h + b_s
// with a low-rank W~ ([LowRank]), and the probability is the softmax over all labels. So a method
// that misses the next word still gives it a probability.
package perplexity

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/learning-to-screen/l2s/benchmarks/internal/layers"
	"github.com/learning-to-screen/l2s/benchmarks/internal/measure"
	"github.com/learning-to-screen/l2s/benchmarks/internal/points"
	"github.com/learning-to-screen/l2s/benchmarks/internal/text"
	"github.com/learning-to-screen/l2s/internal/ground/parallel"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// Text is a text as a language model reads it: contexts, each with the word that comes next.
type Text struct {
	// Name is the name of the file.
	Name string
	// Layer is the softmax layer of the model.
	Layer *exact.Layer
	// Contexts are len(Next) rows of the layer's dimension, row-major: row i is
	// the context after the words up to i.
	Contexts []float32
	// Next holds the label that follows each context.
	Next []uint32
}

// Load reads the first n words of the text of that name in dir, all where n is 0, as one stream
// from the zero state of the language model in dir (model.safetensors, vocab.txt). The first word
// is predicted by nothing, so that there is one context less than words.
func Load(dir, name string, n int) (*Text, error) {
	m, v, err := layers.LoadLM(dir)
	if err != nil {
		return nil, err
	}
	layer, err := layers.Decoder(m)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, name)
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var words []uint32
	for id, err := range text.Tokens(v, f, path) {
		if err != nil {
			return nil, err
		}
		if words = append(words, id); len(words) == n {
			break
		}
	}
	if len(words) < 2 {
		return nil, fmt.Errorf("%s: found %d words, expected at least 2", path, len(words))
	}
	rows, err := layers.Contexts(context.Background(), m, v, path, len(words)-1, nil)
	return &Text{Name: name, Layer: layer, Contexts: rows, Next: words[1:]}, err
}

func (t *Text) check() error {
	if n := len(t.Next) * t.Layer.Dim(); len(t.Next) == 0 || len(t.Contexts) != n {
		return fmt.Errorf("perplexity: %s: found %d elements of contexts, expected dimension %d times %d words", t.Name, len(t.Contexts), t.Layer.Dim(), len(t.Next))
	}
	for i, id := range t.Next {
		if int64(id) >= int64(t.Layer.Labels()) {
			return fmt.Errorf("perplexity: %s: found label %d at word %d, expected one below %d", t.Name, id, i, t.Layer.Labels())
		}
	}
	return nil
}

func (t *Text) context(i int) []float32 {
	d := t.Layer.Dim()
	return t.Contexts[i*d : (i+1)*d]
}

// LogProber gives log-probabilities of labels, on one thread.
type LogProber interface {
	// LogProb returns the natural logarithm of the probability of the label id in the context h. It
	// does not keep h, and allocates nothing once it has answered a few.
	LogProb(h []float32, id uint32) float64
}

// Row is a row of the table to measure.
type Row struct {
	// Method and Params name it.
	Method, Params string
	// Rank is the rank of W~, 0 if there is none.
	Rank int
	// New returns a LogProber for one goroutine.
	New func() LogProber
}

// Options are the options of the measurement.
type Options struct {
	// Rounds is the number of timed turns of each row, at least 1.
	Rounds int
	// Block is the approximate time of a turn.
	Block time.Duration
	// Seed seeds the order of the rows in a round and where in the text it begins.
	Seed uint64
	// Progress, unless nil, is called with a line for each row whose perplexity
	// is found, and when times are taken.
	Progress func(format string, args ...any)
}

// Measure returns the perplexity of the text by each row, e to the mean of -log p of the next word,
// on all cores; and then the times of a word, on one thread with the other cores at rest: medians
// and quartiles over rounds, in which the rows take turns in a new random order, all at the same
// words. A speedup is the time of the first row in the round divided by the row's own: the first
// row must be [Exact].
//
// It returns ctx's error where ctx ends, and an error where a row finds a word
// impossible, as its perplexity is infinite.
func Measure(ctx context.Context, text *Text, rows []Row, o Options) ([]points.Perplexity, error) {
	if err := text.check(); err != nil {
		return nil, err
	}
	if len(rows) < 2 || o.Rounds < 1 {
		return nil, fmt.Errorf("perplexity: found %d rows and %d rounds, expected at least 2 and 1", len(rows), o.Rounds)
	}
	note := o.Progress
	if note == nil {
		note = func(string, ...any) {}
	}
	table := make([]points.Perplexity, len(rows))
	for i, r := range rows {
		p, err := Of(ctx, text, r.New)
		if err != nil {
			return nil, err
		}
		if math.IsInf(p, 0) || math.IsNaN(p) {
			return nil, fmt.Errorf("perplexity: %s: found %v, expected a finite number: a word has no probability", r.Method, p)
		}
		note("%s: perplexity %.2f", r.Method, p)
		table[i] = points.Perplexity{Method: r.Method, Params: r.Params, Rank: r.Rank, Perplexity: p}
	}
	note("times of the log-probability of a word")
	return table, takeTimes(ctx, text, rows, o, table)
}

// chunk is the number of words that a goroutine takes at a time. The sum of
// their logarithms does not depend on who takes them.
const chunk = 256

// Of returns the perplexity of the text by the probabilities of newProber, on all cores. It returns
// ctx's error if ctx ends.
func Of(ctx context.Context, text *Text, newProber func() LogProber) (float64, error) {
	if err := text.check(); err != nil {
		return 0, err
	}
	n := len(text.Next)
	probers := make([]LogProber, parallel.Threads(0, n))
	sums := make([]float64, (n+chunk-1)/chunk)
	err := parallel.Each(ctx, len(probers), n, chunk, nil, func(worker, lo, hi int) error {
		if probers[worker] == nil {
			probers[worker] = newProber()
		}
		for i := lo; i < hi; i++ {
			sums[lo/chunk] += probers[worker].LogProb(text.context(i), text.Next[i])
		}
		return nil
	})
	total := 0.0
	for _, s := range sums {
		total += s
	}
	return math.Exp(-total / float64(n)), err
}

// takeTimes fills in the times of the table.
func takeTimes(ctx context.Context, text *Text, rows []Row, o Options, table []points.Perplexity) error {
	turns := make([]*measure.Turn, len(rows))
	for i, r := range rows {
		p := r.New()
		turns[i] = &measure.Turn{Query: func(j int) int { p.LogProb(text.context(j), text.Next[j]); return 1 }}
	}
	if n := measure.InTurns(ctx, turns[0], turns[1:], len(text.Next), o.Rounds, o.Block, o.Seed, func(int) {}); n < o.Rounds {
		return fmt.Errorf("perplexity: times: %d of %d rounds are complete: %w", n, o.Rounds, context.Cause(ctx))
	}
	for i := range table {
		table[i].Timing = turns[i].Timing()
	}
	return nil
}
