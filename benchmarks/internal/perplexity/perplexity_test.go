package perplexity_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s/benchmarks/internal/methods"
	"github.com/learning-to-screen/l2s/benchmarks/internal/perplexity"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
	"github.com/learning-to-screen/l2s/train"
)

const labels, dim, words = 400, 16, 400

// made is a text of random contexts whose next words are drawn from the layer.
func made(t testing.TB) *perplexity.Text {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	fill := func(n int, scale float64) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(scale * r.NormFloat64())
		}
		return x
	}
	l, err := softmax.NewLayer(fill(labels*dim, 1), fill(labels, 1), dim)
	if err != nil {
		t.Fatal(err)
	}
	text := &perplexity.Text{Name: "made", Layer: l, Contexts: fill(words*dim, 1)}
	for i := range words {
		u, logp := math.Log(r.Float64()), plain(text, i)
		sum, id := math.Inf(-1), uint32(0)
		for s, p := range logp {
			sum = math.Log(math.Exp(sum) + math.Exp(p))
			if id = uint32(s); sum >= u {
				break
			}
		}
		text.Next = append(text.Next, id)
	}
	return text
}

// plain are the log-probabilities in context i, in plain loops.
func plain(text *perplexity.Text, i int) []float64 {
	l := text.Layer
	d := l.Dim()
	h, x, sum := text.Contexts[i*d:(i+1)*d], make([]float64, l.Labels()), 0.0
	for s := range x {
		x[s] = float64(l.Bias()[s])
		for j, v := range h {
			x[s] += float64(l.Weights()[s*d+j]) * float64(v)
		}
		sum += math.Exp(x[s])
	}
	for s := range x {
		x[s] -= math.Log(sum)
	}
	return x
}

func plainPerplexity(text *perplexity.Text) float64 {
	sum := 0.0
	for i, id := range text.Next {
		sum -= plain(text, i)[id]
	}
	return math.Exp(sum / float64(len(text.Next)))
}

func of(t testing.TB, text *perplexity.Text, p func() perplexity.LogProber) float64 {
	t.Helper()
	x, err := perplexity.Of(context.Background(), text, p)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func tailOf(t testing.TB, l *softmax.Layer, rank int) *softmax.Tail {
	t.Helper()
	tail, err := softmax.LowRank(l, rank)
	if err != nil {
		t.Fatal(err)
	}
	return tail
}

// best is a method that finds the exact best labels.
type best struct{ layer *softmax.Layer }

func (best) Params() string { return "" }
func (b best) Searcher() methods.Searcher {
	return bestSearcher{b.layer, softmax.NewQuery(b.layer.Dim())}
}

type bestSearcher struct {
	layer *softmax.Layer
	query *softmax.Query
}

func (b bestSearcher) TopK(dst []softmax.Prediction, h []float32) int {
	if err := b.query.Set(h); err != nil {
		panic(err)
	}
	return b.layer.TopK(dst, b.query)
}

func kmeans(t testing.TB, l *softmax.Layer, contexts []float32, clusters int, budget float64, rank int) *screen.Model {
	t.Helper()
	o := train.DefaultOptions()
	o.Clusters, o.Budget, o.KMeansOnly, o.TailRank = clusters, budget, true, rank
	m, _, err := train.Run(context.Background(), l, contexts, o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func screened(t testing.TB, l *softmax.Layer, m *screen.Model) func() perplexity.LogProber {
	return func() perplexity.LogProber {
		p, err := perplexity.NewScreened(l, m)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
}

// With a budget that covers everything, by labels or by rank, each method is the
// exact softmax.
func TestEveryMethodIsExactWhereItsBudgetCoversEverything(t *testing.T) {
	text := made(t)
	l := text.Layer
	want := plainPerplexity(text)
	full, low := tailOf(t, l, dim), tailOf(t, l, 2)
	for name, p := range map[string]func() perplexity.LogProber{
		"exact":            func() perplexity.LogProber { return perplexity.NewExact(l) },
		"found, all":       func() perplexity.LogProber { return perplexity.NewFound(l, low, best{l}, labels) },
		"found, full rank": func() perplexity.LogProber { return perplexity.NewFound(l, full, best{l}, 1) },
		"SVD, all":         func() perplexity.LogProber { return perplexity.NewSVD(l, low, 10*labels) },
		"SVD, full rank":   func() perplexity.LogProber { return perplexity.NewSVD(l, full, 1) },
		"L2S, full rank":   screened(t, l, kmeans(t, l, text.Contexts, 4, 5, dim)),
	} {
		if got := of(t, text, p); math.Abs(got/want-1) > 1e-4 {
			t.Errorf("%s: perplexity %v, want %v", name, got, want)
		}
	}
}

// Labels drawn from the layer's own softmax: no other distribution predicts them
// better on the average, and the fewer exact logits the worse.
func TestFewerExactLogitsPredictWorse(t *testing.T) {
	text := made(t)
	l, tail := text.Layer, tailOf(t, text.Layer, 2)
	exact := of(t, text, func() perplexity.LogProber { return perplexity.NewExact(l) })
	for name, p := range map[string]func(n int) perplexity.LogProber{
		"found": func(n int) perplexity.LogProber { return perplexity.NewFound(l, tail, best{l}, n) },
		"SVD":   func(n int) perplexity.LogProber { return perplexity.NewSVD(l, tail, n) },
	} {
		many := of(t, text, func() perplexity.LogProber { return p(100) })
		few := of(t, text, func() perplexity.LogProber { return p(4) })
		if !(exact < many && many < few) {
			t.Errorf("%s: exact %v, 100 labels %v, 4 labels %v: expected to ascend", name, exact, many, few)
		}
	}
}

func TestMeasure(t *testing.T) {
	text := made(t)
	l, tail := text.Layer, tailOf(t, text.Layer, 4)
	rows := []perplexity.Row{
		{Method: "exact", New: func() perplexity.LogProber { return perplexity.NewExact(l) }},
		{Method: "SVD-softmax", Params: "N=30", Rank: 4, New: func() perplexity.LogProber { return perplexity.NewSVD(l, tail, 30) }},
	}
	o := perplexity.Options{Rounds: 3, Block: time.Millisecond, Seed: 1}
	table, err := perplexity.Measure(context.Background(), text, rows, o)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range table {
		if r := rows[i]; p.Method != r.Method || p.Params != r.Params || p.Rank != r.Rank || p.Perplexity != of(t, text, r.New) {
			t.Errorf("row %d: %+v", i, p)
		}
		if !(p.Micros > 0 && 0 < p.SpeedupQ1 && p.SpeedupQ1 <= p.Speedup && p.Speedup <= p.SpeedupQ3) {
			t.Errorf("row %d: %+v: times not in order", i, p)
		}
	}
	if table[0].Speedup != 1 {
		t.Errorf("speedup of the first row %v, want 1", table[0].Speedup)
	}
	// A screen without a tail makes words impossible.
	none := append(rows, perplexity.Row{Method: "no tail", New: screened(t, l, kmeans(t, l, text.Contexts, 4, 5, 0))})
	if _, err := perplexity.Measure(context.Background(), text, none, o); err == nil || !strings.Contains(err.Error(), "no tail: found +Inf") {
		t.Errorf("without a tail: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := perplexity.Measure(ctx, text, rows, o); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	short := *text
	short.Contexts = short.Contexts[1:]
	if _, err := perplexity.Measure(context.Background(), &short, rows, o); err == nil {
		t.Error("contexts and words that do not fit: no error")
	}
}

func TestProbersDoNotAllocate(t *testing.T) {
	text := made(t)
	l, tail := text.Layer, tailOf(t, text.Layer, 4)
	for name, p := range map[string]perplexity.LogProber{
		"exact": perplexity.NewExact(l),
		"found": perplexity.NewFound(l, tail, best{l}, 20),
		"SVD":   perplexity.NewSVD(l, tail, 20),
		"L2S":   screened(t, l, kmeans(t, l, text.Contexts, 4, 20, 4))(),
	} {
		p.LogProb(text.Contexts[:dim], 0)
		if n := testing.AllocsPerRun(20, func() { p.LogProb(text.Contexts[dim:2*dim], 3) }); n != 0 {
			t.Errorf("%s: %v allocations a call", name, n)
		}
	}
}

// The first words of the test text of the Penn Treebank, where it is at hand,
// against plain float64 loops.
func TestPennTreebank(t *testing.T) {
	dir := filepath.Join("..", "..", "..", "..", "shared", "data", "ptb-small")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("%v: the optional test data is not there", err)
	}
	text, err := perplexity.Load(dir, "ptb.test.txt", 151)
	if err != nil {
		t.Fatal(err)
	}
	if len(text.Next) != 150 {
		t.Fatalf("%d words to predict, want 150", len(text.Next))
	}
	got := of(t, text, func() perplexity.LogProber { return perplexity.NewExact(text.Layer) })
	if want := plainPerplexity(text); math.Abs(got/want-1) > 1e-5 {
		t.Errorf("perplexity %v, want %v", got, want)
	}
	// 113.3 on the whole text; these words are not far from it.
	if got < 80 || got > 200 {
		t.Errorf("perplexity %v of the first words", got)
	}
}
