package methods

import (
	"context"
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/learning-to-screen/l2s/benchmarks/internal/layers"
	"github.com/learning-to-screen/l2s/benchmarks/internal/openblas"
	"github.com/learning-to-screen/l2s/internal/synthetic"
	"github.com/learning-to-screen/l2s/softmax"
	"github.com/learning-to-screen/l2s/train"
)

const specK = 5

// input returns what a method is built from, and contexts that are not among
// those to learn from.
func input(t testing.TB, d *synthetic.Data, learn int) (*Input, [][]float32) {
	t.Helper()
	rows := d.Contexts[:learn*d.Layer.Dim()]
	labels, err := train.Labels(context.Background(), d.Layer, rows, specK, train.LabelOptions{})
	if err != nil {
		t.Fatal(err)
	}
	in := &Input{Layer: d.Layer, Contexts: rows, Labels: labels, K: specK, Seed: 1}
	var test [][]float32
	for i := learn; i < d.Len(); i++ {
		test = append(test, d.Context(i))
	}
	return in, test
}

// small is a layer of 600 labels, small enough for searches through all.
func small(t testing.TB) (*Input, [][]float32) {
	return input(t, synthetic.Structured(600, 24, 12, 1100, 1), 1000)
}

func build(t testing.TB, m Method, in *Input) Index {
	t.Helper()
	x, err := m.Build(context.Background(), in)
	if err != nil {
		t.Fatalf("%s %s: %v", m.Name(), m.Params(), err)
	}
	return x
}

// exhaustive are the methods whose last setting looks at every label.
func exhaustive() []Method {
	return []Method{
		Certified{},
		Frequency{Sizes: []int{5, 50, 600}},
		GreedyMIPS{Budgets: []int{1, 50, 600}},
		PCAMIPS{Depth: 0, Distances: []int{0}},
		PCAMIPS{Depth: 4, Distances: []int{0, 1, 4}},
		LSHMIPS{Tables: 3, Bits: 4, Probes: []int{1, 3, 16}},
		LSHMIPS{Tables: 1, Bits: 8, Probes: []int{256}},
	}
}

// all are the methods of this file's tests, with small parameters.
func all() []Method {
	list := append(exhaustive(), Dense{},
		L2S{Clusters: 12, Budget: 40, Budgets: []float64{20, 40}},
		L2S{Clusters: 12, Budget: 40, KMeansOnly: true},
		L2S{Clusters: 16, Groups: 4, Budget: 40})
	if openblas.Sgemv != nil {
		list = append(list, OpenBLAS{})
	}
	return list
}

func title(m Method) string { return strings.TrimSpace(m.Name() + " " + m.Params()) }

func TestASettingThatLooksAtEveryLabelGivesTheExactAnswer(t *testing.T) {
	in, contexts := small(t)
	q := softmax.NewQuery(in.Layer.Dim())
	for _, m := range exhaustive() {
		t.Run(title(m), func(t *testing.T) {
			settings := build(t, m, in).Settings()
			s := settings[len(settings)-1].Searcher()
			for i, h := range contexts {
				want, got := make([]softmax.Prediction, specK), make([]softmax.Prediction, specK)
				set(q, h)
				in.Layer.TopK(want, q)
				if n := s.TopK(got, h); n != specK || !slices.Equal(got, want) {
					t.Fatalf("context %d: got %d: %v, want %v", i, n, got, want)
				}
			}
		})
	}
}

// The sets of a screen hold what contexts of training wanted: with budget for
// all of it, a context of training gets the exact answer.
func TestAScreenWithoutABudgetAnswersContextsOfTrainingExactly(t *testing.T) {
	in, _ := small(t)
	for _, m := range []Method{L2S{Clusters: 12, Budget: 600}, L2S{Clusters: 12, Budget: 600, KMeansOnly: true}} {
		t.Run(title(m), func(t *testing.T) {
			x := build(t, m, in)
			if p := precision(t, x.Settings()[0], in.Layer, rows(in.Contexts, in.Layer.Dim())[:200]); p != 1 {
				t.Errorf("P@5 %v, want 1", p)
			}
		})
	}
}

func rows(x []float32, d int) (list [][]float32) {
	for at := 0; at < len(x); at += d {
		list = append(list, x[at:at+d])
	}
	return list
}

// precision returns P@5 of a setting.
func precision(t testing.TB, s Setting, l *softmax.Layer, contexts [][]float32) float64 {
	t.Helper()
	sr, q := s.Searcher(), softmax.NewQuery(l.Dim())
	want, got := make([]softmax.Prediction, specK), make([]softmax.Prediction, specK)
	hits := 0
	for _, h := range contexts {
		set(q, h)
		l.TopK(want, q)
		n := sr.TopK(got, h)
		for _, p := range got[:n] {
			if slices.ContainsFunc(want, func(w softmax.Prediction) bool { return w.ID == p.ID }) {
				hits++
			}
		}
	}
	return float64(hits) / float64(specK*len(contexts))
}

func TestFloat32ScansGiveTheExactLabelsButForNearTies(t *testing.T) {
	in, contexts := small(t)
	list := []Method{Dense{}}
	if openblas.Sgemv != nil {
		list = append(list, OpenBLAS{})
	}
	for _, m := range list {
		if p := precision(t, build(t, m, in).Settings()[0], in.Layer, contexts); p < 0.99 {
			t.Errorf("%s: P@5 %v, want at least 0.99", m.Name(), p)
		}
	}
}

func TestAnswersAreOrderedDistinctAndOfTheLayer(t *testing.T) {
	in, contexts := small(t)
	q := softmax.NewQuery(in.Layer.Dim())
	for _, m := range all() {
		for _, s := range build(t, m, in).Settings() {
			t.Run(title(m)+" "+s.Params(), func(t *testing.T) {
				sr := s.Searcher()
				for i, h := range contexts[:30] {
					got := make([]softmax.Prediction, specK)
					n := sr.TopK(got, h)
					if n > specK {
						t.Fatalf("context %d: %d labels, want at most %d", i, n, specK)
					}
					set(q, h)
					for j, p := range got[:n] {
						if j > 0 && (p.Logit > got[j-1].Logit || p.Logit == got[j-1].Logit && p.ID <= got[j-1].ID) {
							t.Errorf("context %d: %v is behind %v", i, p, got[j-1])
						}
						var want [1]softmax.Prediction
						in.Layer.TopKOf(want[:], q, []uint32{p.ID})
						if diff := p.Logit - want[0].Logit; diff > 1e-4 || diff < -1e-4 {
							t.Errorf("context %d: logit of %d is %v, want %v", i, p.ID, p.Logit, want[0].Logit)
						}
					}
				}
			})
		}
	}
}

func TestPrecisionGrowsWithTheSettings(t *testing.T) {
	in, contexts := small(t)
	for _, m := range all() {
		last := 0.0
		for _, s := range build(t, m, in).Settings() {
			p := precision(t, s, in.Layer, contexts)
			if p < last {
				t.Errorf("%s %s: P@5 %v, want at least that of the setting before, %v", title(m), s.Params(), p, last)
			}
			last = p
		}
	}
}

func TestEqualSeedsGiveEqualAnswers(t *testing.T) {
	in, contexts := small(t)
	for _, m := range all() {
		t.Run(title(m), func(t *testing.T) {
			a, b := build(t, m, in), build(t, m, in)
			if a.Bytes() != b.Bytes() {
				t.Errorf("bytes: %d and %d", a.Bytes(), b.Bytes())
			}
			for i, s := range a.Settings() {
				first, second := s.Searcher(), b.Settings()[i].Searcher()
				for _, h := range contexts[:30] {
					x, y := make([]softmax.Prediction, specK), make([]softmax.Prediction, specK)
					n := first.TopK(x, h)
					if m := second.TopK(y, h); n != m || !slices.Equal(x[:n], y[:m]) {
						t.Fatalf("%s: %v and %v", s.Params(), x[:n], y[:m])
					}
				}
			}
		})
	}
}

func TestAQueryAllocatesNothing(t *testing.T) {
	in, contexts := small(t)
	for _, m := range all() {
		for _, s := range build(t, m, in).Settings() {
			sr, dst, i := s.Searcher(), make([]softmax.Prediction, specK), 0
			query := func() {
				sr.TopK(dst, contexts[i%len(contexts)])
				i++
			}
			for range contexts {
				query()
			}
			if n := testing.AllocsPerRun(200, query); n != 0 {
				t.Errorf("%s %s: %v allocations a query", title(m), s.Params(), n)
			}
		}
	}
}

func TestBuildStopsWhenItsContextEnds(t *testing.T) {
	in, _ := small(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, m := range []Method{
		GreedyMIPS{Budgets: []int{1}}, PCAMIPS{Depth: 3, Distances: []int{0}}, LSHMIPS{Tables: 3, Bits: 4, Probes: []int{1}},
		L2S{Clusters: 12, Budget: 40}, Frequency{Sizes: []int{5}},
	} {
		if _, err := m.Build(ctx, in); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error %v, want %v", title(m), err, context.Canceled)
		}
	}
}

func TestWrongParametersAreRefused(t *testing.T) {
	in, _ := small(t)
	unlabelled := *in
	unlabelled.Labels = nil
	if _, err := (Frequency{Sizes: []int{5}}).Build(context.Background(), &unlabelled); err == nil {
		t.Error("a frequency head without labels: no error")
	}
	for _, m := range []Method{
		Frequency{Sizes: []int{0}}, Frequency{Sizes: []int{601}},
		GreedyMIPS{Budgets: []int{0}},
		PCAMIPS{Depth: -1}, PCAMIPS{Depth: 10}, PCAMIPS{Depth: 3, Distances: []int{4}}, PCAMIPS{Depth: 3, Distances: []int{-1}},
		LSHMIPS{Tables: 0, Bits: 4}, LSHMIPS{Tables: 1, Bits: 0}, LSHMIPS{Tables: 1, Bits: 21},
		LSHMIPS{Tables: 1, Bits: 4, Probes: []int{17}}, LSHMIPS{Tables: 1, Bits: 4, Probes: []int{0}},
		L2S{Clusters: 0, Budget: 40}, L2S{Clusters: 13, Groups: 4, Budget: 40},
	} {
		if _, err := m.Build(context.Background(), in); err == nil {
			t.Errorf("%#v: no error", m)
		}
	}
}

// The candidates of Greedy-MIPS are the labels with the largest max_j h_j w_sj.
func TestGreedyMIPSTakesTheLargestProducts(t *testing.T) {
	in, contexts := small(t)
	l, d := in.Layer, in.Layer.Dim()
	const budget = 40
	s := build(t, GreedyMIPS{Budgets: []int{budget}}, in).Settings()[0].Searcher().(*greedySearcher)
	for i, h := range contexts[:20] {
		best := make([]float32, l.Labels())
		for id := range best {
			best[id] = l.Bias()[id]
			for j, v := range h {
				best[id] = max(best[id], v*l.Weights()[id*d+j])
			}
		}
		s.TopK(make([]softmax.Prediction, specK), h)
		if len(s.ids) != budget {
			t.Fatalf("context %d: %d candidates, want %d", i, len(s.ids), budget)
		}
		least := best[s.ids[budget-1]]
		for id, v := range best {
			if in := s.seen[id] == s.stamp; v > least && !in || v < least && in {
				t.Errorf("context %d: label %d of %v: candidate %v, where the last has %v", i, id, v, in, least)
			}
		}
	}
}

// Buckets are looked up in the order of the cost of the signs that change.
func TestLSHMIPSProbesInTheOrderOfCost(t *testing.T) {
	const bits = 5
	s := &lshSearcher{probes: 1 << bits, order: make([]signBit, bits), heap: make([]probe, 0, 1<<bits+1)}
	products := []float32{0.5, -2, 0.25, 1, -0.125}
	in, _ := small(t)
	s.candidates = newCandidates(in.Layer)
	// Bucket b holds label b alone, so that the candidates are the order.
	x := &lshIndex{layer: in.Layer, tables: 1, bits: bits}
	for b := range uint32(1 << bits) {
		x.ids, x.firsts = append(x.ids, b), append(x.firsts, b)
	}
	x.firsts = append(x.firsts, 1<<bits)
	s.index = x
	s.begin(make([]float32, in.Layer.Dim()))
	const hash = 0b01101
	s.bucket(0, hash)
	s.more(0, hash, products)
	cost := func(b uint32) (sum float32) {
		for i, v := range products {
			if (b^hash)>>i&1 == 1 {
				sum += v * v
			}
		}
		return sum
	}
	if len(s.ids) != 1<<bits {
		t.Fatalf("%d buckets, want each of %d once", len(s.ids), 1<<bits)
	}
	if !slices.IsSortedFunc(s.ids, func(a, b uint32) int { return int(1e6 * (cost(a) - cost(b))) }) {
		t.Errorf("order %05b", s.ids)
	}
}

// On the reduction the nearest point is the label with the largest logit.
func TestTheReductionTurnsInnerProductsIntoDistances(t *testing.T) {
	in, contexts := small(t)
	r := newReduction(in.Layer)
	q := softmax.NewQuery(in.Layer.Dim())
	for i, h := range contexts[:20] {
		c := float64(r.scale(h))
		nearest, least := 0, 0.0
		for s := range in.Layer.Labels() {
			p := r.points[s*r.dim : (s+1)*r.dim]
			dist := 0.0
			for j, v := range p {
				x := 0.0
				switch {
				case j < len(h):
					x = c * float64(h[j])
				case j == len(h):
					x = c
				}
				dist += (float64(v) - x) * (float64(v) - x)
			}
			if s == 0 || dist < least {
				nearest, least = s, dist
			}
		}
		set(q, h)
		if want := in.Layer.Argmax(q); uint32(nearest) != want {
			t.Errorf("context %d: the nearest point is %d, the largest logit that of %d", i, nearest, want)
		}
	}
}

// With no data but what l2s embeds. The least precisions are close below those
// measured.
func TestRecallOnContextsOfTheEmbeddedModel(t *testing.T) {
	d, err := embedded()
	if err != nil {
		t.Fatal(err)
	}
	in, contexts := input(t, d, 2000)
	for _, c := range []struct {
		method Method
		least  float64
	}{
		{Frequency{Sizes: []int{500}}, 0.99},
		{GreedyMIPS{Budgets: []int{400}}, 0.95},
		{PCAMIPS{Depth: 4, Distances: []int{1}}, 0.95},
		// At most half of the labels, 16*2/2^6, as a rule far fewer.
		{LSHMIPS{Tables: 16, Bits: 6, Probes: []int{2}}, 0.62},
	} {
		if p := precision(t, build(t, c.method, in).Settings()[0], in.Layer, contexts); p < c.least {
			t.Errorf("%s: P@5 %.4f, want at least %v", title(c.method), p, c.least)
		}
	}
}

// ptb is PTB-Small, 20,000 contexts to learn from and 500 others.
var ptb = sync.OnceValues(func() (*synthetic.Data, error) {
	const dir = "../../../../shared/data/ptb-small"
	if _, err := os.Stat(dir); err != nil {
		return nil, nil
	}
	return layers.LanguageModel(dir, "ptb.valid.txt", 20500)
})

func TestRecallOnContextsOfALanguageModel(t *testing.T) {
	d, err := ptb()
	if err != nil {
		t.Fatal(err)
	}
	if d == nil {
		t.Skip("../shared/data/ptb-small is not there")
	}
	in, contexts := input(t, d, 20000)
	for _, c := range []struct {
		method Method
		least  float64 // P@5 of the last setting
	}{
		{Dense{}, 0.999},
		{Certified{}, 1},
		{L2S{Clusters: 50, Budget: 300}, 0.955},
		{L2S{Clusters: 50, Budget: 300, KMeansOnly: true}, 0.95},
		{Frequency{Sizes: []int{1000}}, 0.955},
		{GreedyMIPS{Budgets: []int{2000}}, 0.985},
		{PCAMIPS{Depth: 6, Distances: []int{2}}, 0.78},
		// At most 16*4/2^8 of the labels, a quarter, and twice that precision:
		// a random selection it is not.
		{LSHMIPS{Tables: 16, Bits: 8, Probes: []int{4}}, 0.475},
	} {
		t.Run(title(c.method), func(t *testing.T) {
			settings := build(t, c.method, in).Settings()
			p := precision(t, settings[len(settings)-1], in.Layer, contexts)
			t.Logf("P@5 %.4f", p)
			if p < c.least {
				t.Errorf("P@5 %.4f, want at least %v", p, c.least)
			}
		})
	}
}

// What graphs find they also normalise: the answer is that of TopK, and the sum
// is over the list of candidates, with ef = L over all labels that a path leads
// to.
func TestGraphsNormaliseInsideWhatTheyFind(t *testing.T) {
	in, contexts := small(t)
	l := in.Layer
	for _, m := range []Method{FGD{}, IPNSW{}} {
		settings := build(t, m, in).Settings()
		var searchers []Normaliser
		for _, s := range settings {
			searchers = append(searchers, s.Searcher().(Normaliser))
		}
		q, exact := softmax.NewQuery(l.Dim()), make([]float64, 1)
		want, got := make([]softmax.Prediction, specK), make([]softmax.Prediction, specK)
		for _, h := range contexts[:50] {
			set(q, h)
			l.TopKLogSumExp(want, exact, specK, []*softmax.Query{q}, nil)
			last := math.Inf(-1)
			for i, s := range settings {
				n := searchers[i].TopK(want, h)
				found, lse := searchers[i].TopKLogSumExp(got, h)
				if found != n || !slices.Equal(got[:n], want[:n]) {
					t.Fatalf("%s %s: found %v, want %v", title(m), s.Params(), got[:found], want[:n])
				}
				if lse < got[0].Logit || lse > exact[0]+2e-2 {
					t.Fatalf("%s %s: sum %v, want between that of the best label, %v, and that of all, %v", title(m), s.Params(), lse, got[0].Logit, exact[0])
				}
				last = lse
			}
			if _, full := m.(FGD); full && last < exact[0]-2e-2 {
				t.Fatalf("%s: sum %v over a list of most labels, want about %v", title(m), last, exact[0])
			}
		}
	}
}
