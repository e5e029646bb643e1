package perplexity_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/benchmarks/internal/methods"
	"github.com/learning-to-screen/l2s/benchmarks/internal/perplexity"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/dense"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/logsum"
	"github.com/learning-to-screen/l2s/internal/search/screening"
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
	l, err := exact.NewLayer(kernels.Float32Rows(fill(labels*dim, 1), dim), fill(labels, 1))
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
			x[s] += float64(dense.Weights(l)[s*d+j]) * float64(v)
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

func tailOf(t testing.TB, l *exact.Layer, rank int) *perplexity.LowRank {
	t.Helper()
	tail, err := perplexity.NewLowRank(context.Background(), l, rank)
	if err != nil {
		t.Fatal(err)
	}
	return tail
}

// best is a method that finds the exact best labels.
type best struct{ layer *exact.Layer }

func (best) Params() string { return "" }
func (b best) Searcher() methods.Searcher {
	return bestSearcher{exact.NewSearcher(b.layer)}
}

type bestSearcher struct{ by *exact.Searcher }

func (b bestSearcher) TopK(dst []exact.Prediction, h []float32) int {
	n, err := b.by.TopK(dst, h)
	if err != nil {
		panic(err)
	}
	return n
}

// adaptive is the row of adaptive softmax with a head of that size, or with the
// whole layer as the head where it is 0.
func adaptive(t testing.TB, text *perplexity.Text, head, setting int, tail *perplexity.LowRank) perplexity.Row {
	t.Helper()
	m := methods.AdaptiveSoftmax{}
	if head > 0 {
		m.Cutoffs = []int{head, 2 * head}
	}
	x, err := m.Build(context.Background(), &methods.Input{Layer: text.Layer, Contexts: text.Contexts, K: 5, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	settings := x.Settings()
	return perplexity.Opened(m.Name(), m.Params(), text.Layer, tail, settings[min(setting, len(settings)-1)], 5)
}

// trained is a screen by k-means.
func trained(t testing.TB, text *perplexity.Text, budget float64) *screening.Model {
	t.Helper()
	o := train.DefaultOptions()
	o.Clusters, o.Iterations, o.Budget = 4, 0, budget
	m, _, err := train.Run(context.Background(), (*l2s.Layer)(engine.Over(text.Layer)), l2s.Float32(text.Contexts, text.Layer.Dim()), o)
	if err != nil {
		t.Fatal(err)
	}
	return (*engine.Index)(m).Screen()
}

// screened is the row of a screen by k-means with a tail of that rank.
func screened(t testing.TB, text *perplexity.Text, budget float64, rank int) perplexity.Row {
	t.Helper()
	r, err := perplexity.Screened("L2S", "B=5", text.Layer, tailOf(t, text.Layer, rank), trained(t, text, budget))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// With a budget that covers everything, by labels or by rank, each method is the
// exact softmax.
func TestEveryMethodIsExactWhereItsBudgetCoversEverything(t *testing.T) {
	text := made(t)
	l := text.Layer
	want := plainPerplexity(text)
	full, low := tailOf(t, l, dim), tailOf(t, l, 2)
	for name, p := range map[string]func() perplexity.LogProber{
		"exact":            perplexity.Exact(l).New,
		"found, all":       perplexity.Found("best", "", l, low, best{l}, labels).New,
		"found, full rank": perplexity.Found("best", "", l, full, best{l}, 1).New,
		"opened, all":      adaptive(t, text, 0, 0, low).New,
		"opened, rank":     adaptive(t, text, 10, 0, full).New,
		"SVD, all":         perplexity.SVD(l, low, 10*labels).New,
		"SVD, full rank":   perplexity.SVD(l, full, 1).New,
		"L2S, full rank":   screened(t, text, 5, dim).New,
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
	exact := of(t, text, perplexity.Exact(l).New)
	for name, p := range map[string]func(n int) perplexity.LogProber{
		"found": func(n int) perplexity.LogProber { return perplexity.Found("best", "", l, tail, best{l}, n).New() },
		"SVD":   func(n int) perplexity.LogProber { return perplexity.SVD(l, tail, n).New() },
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
	rows := []perplexity.Row{perplexity.Exact(l), perplexity.SVD(l, tail, 30), perplexity.Found("FGD", "M=8", l, tail, best{l}, 30), screened(t, text, 5, 4)}
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
	var names []string
	for _, p := range table {
		names = append(names, fmt.Sprintf("%s %s %d", p.Method, p.Params, p.Rank))
	}
	if want := []string{"Exact  0", "SVD-softmax w=4 N=30 4", "FGD M=8 top-30 4", "L2S B=5 4"}; !slices.Equal(names, want) {
		t.Errorf("rows %q, want %q", names, want)
	}
	if table[0].Speedup != 1 {
		t.Errorf("speedup of the first row %v, want 1", table[0].Speedup)
	}
	// Without a tail words are impossible.
	none := append(rows, perplexity.Found("best", "", l, nil, best{l}, 4))
	if _, err := perplexity.Measure(context.Background(), text, none, o); err == nil || !strings.Contains(err.Error(), "best: found +Inf") {
		t.Errorf("without a tail: %v", err)
	}
	if _, err := perplexity.Screened("L2S", "", l, nil, trained(t, text, 5)); !errors.Is(err, logsum.ErrNoTail) {
		t.Errorf("a screen without any tail: %v", err)
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
		"exact":  perplexity.Exact(l).New(),
		"found":  perplexity.Found("best", "M=1", l, tail, best{l}, 20).New(),
		"opened": adaptive(t, text, 20, 5, tail).New(),
		"SVD":    perplexity.SVD(l, tail, 20).New(),
		"L2S":    screened(t, text, 20, 4).New(),
	} {
		p.LogProb(text.Contexts[:dim], 0)
		if n := testing.AllocsPerRun(20, func() { p.LogProb(text.Contexts[dim:2*dim], 3) }); n != 0 {
			t.Errorf("%s: %v allocations a call", name, n)
		}
	}
}

// The parameters in a row are the parameters of its run: a graph that looks for n labels has a list
// of at least n candidates.
func TestTheParametersOfARowAreThoseThatRan(t *testing.T) {
	text := made(t)
	x, err := methods.FGD{}.Build(context.Background(), &methods.Input{Layer: text.Layer, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	tail := tailOf(t, text.Layer, 2)
	for _, s := range x.Settings() {
		var ef int
		if _, err := fmt.Sscanf(s.Params(), "ef=%d", &ef); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("M=16 ef=%d top-100", max(ef, 100))
		if got := perplexity.Found("FGD", "M=16", text.Layer, tail, s, 100).Params; got != want {
			t.Errorf("%s: parameters %q, want %q", s.Params(), got, want)
		}
	}
	if got, want := adaptive(t, text, 20, 3, tail).Params, "cutoffs=20,40 z=-1 opened for top-5"; got != want {
		t.Errorf("parameters %q, want %q", got, want)
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
	got := of(t, text, perplexity.Exact(text.Layer).New)
	if want := plainPerplexity(text); math.Abs(got/want-1) > 1e-5 {
		t.Errorf("perplexity %v, want %v", got, want)
	}
	// 113.3 on the whole text; these words are not far from it.
	if got < 80 || got > 200 {
		t.Errorf("perplexity %v of the first words", got)
	}
}
