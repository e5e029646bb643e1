package methods

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/benchmarks/internal/layers"
	"github.com/learning-to-screen/l2s/benchmarks/internal/lstm"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/files/vocab"
	"github.com/learning-to-screen/l2s/internal/ground/parallel"
	"github.com/learning-to-screen/l2s/internal/search/dense"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/tests/synthetic"
)

// specimen is a method with small parameters, and the little in which the laws
// of this file differ for it.
type specimen struct {
	Method
	every   func(Index) Setting // looks at every label; nil: no setting surely does
	own     func(Index) int64   // the memory outside the codes of the layer; nil: not tested here
	rough   bool                // logits come from a scan in float32, without an index
	few     bool                // finds fewer than k, sometimes
	instant bool                // Build has no work that an interrupt could stop
}

// specimens are the methods for the laws of this file, all methods of the package, for the layer of
// small. The particulars of one of them are in its own tests.
func specimens() []specimen {
	const labels, dim = 600, 24
	graph := func(x Index) int64 { return x.(*graphIndex).graph.bytes() }
	list := []specimen{
		{Method: Dense{}, every: lastOf, rough: true, instant: true},
		{Method: Certified{}, every: lastOf, instant: true,
			own: func(Index) int64 { return labels * int64(kernels.Int4Stride(dim)) }},
		{Method: Frequency{Sizes: []int{5, 50, labels}}, every: lastOf},
		{Method: GreedyMIPS{Budgets: []int{1, 50, labels}}, every: lastOf, few: true,
			own: func(Index) int64 { return 8 * labels * (dim + 1) }},
		{Method: PCAMIPS{Depth: 0, Distances: []int{0}}, every: lastOf},
		{Method: PCAMIPS{Depth: 4, Distances: []int{0, 1, 4}}, every: lastOf},
		{Method: LSHMIPS{Tables: 3, Bits: 4, Probes: []int{1, 3, 16}}, every: lastOf, few: true,
			own: func(x Index) int64 { return 4 * int64(3*4*(dim+1)+3*labels+len(x.(*lshIndex).firsts)) }},
		{Method: LSHMIPS{Tables: 1, Bits: 8, Probes: []int{256}}, every: lastOf},
		{Method: L2S{}},
		{Method: L2S{Gumbel, 12, 40}},
		{Method: L2S{Expected, 12, 40}},
		{Method: L2S{KMeans, 12, 40}, own: func(x Index) int64 {
			s, n := lastOf(x).(Screened), 12*(4*dim+kernels.Int8Stride(dim))
			for cell := range s.Model.Clusters() {
				ids, _ := s.Model.Candidates(cell, s.Budget)
				n += 4 * len(ids)
			}
			return int64(n)
		}},
		{Method: FGD{}, own: graph},
		{Method: FGD{M: 4, EfConstruction: 20}, own: graph},
		{Method: IPNSW{}, own: graph},
		{Method: IPNSW{M: 4, EfConstruction: 20}, own: graph},
	}
	for _, width := range []int{1, 8, dim, 1000} {
		every := func(x Index) Setting { return settings("N=%d", []int{labels}, x.(*svdIndex).searcher)[0] }
		list = append(list, specimen{Method: SVDSoftmax{width}, every: every})
	}
	for _, width := range []int{1, 8, dim, 1000} {
		m := specimen{Method: WeightedSVD{width, []float64{0, 0.3, 1, 1e12}}, every: lastOf}
		if width >= dim { // no column is left out, but the codes of z are not z
			m.every = nil
		}
		list = append(list, m)
	}
	for _, cutoffs := range [][]int{nil, {100}, {2, 300}, {7, 50, 300}, {3, 50, 200, 400}, {200, labels}, {250, 700, 800}} {
		every := func(x Index) Setting { return settings("z=%g", []float64{math.Inf(1)}, x.(*adaptiveIndex).searcher)[0] }
		list = append(list, specimen{Method: AdaptiveSoftmax{cutoffs}, every: every, instant: cutoffs == nil})
	}
	if Sgemv != nil {
		list = append(list, specimen{Method: OpenBLAS{}, every: lastOf, rough: true, instant: true})
	}
	return list
}

// indices are the specimens, built by the first law: queries change none.
var indices = map[string]Index{}

// eachIndex checks a law on every method, built for the layer of small.
func eachIndex(t *testing.T, law func(t *testing.T, m specimen, x Index, in *Input, contexts [][]float32)) {
	in, contexts := small(t)
	for _, m := range specimens() {
		t.Run(title(m), func(t *testing.T) {
			if indices[title(m)] == nil {
				indices[title(m)] = build(t, m, in)
			}
			law(t, m, indices[title(m)], in, contexts)
		})
	}
}

// eachSetting checks a law on every setting of every method.
func eachSetting(t *testing.T, law func(t *testing.T, m specimen, s Setting, in *Input, contexts [][]float32)) {
	eachIndex(t, func(t *testing.T, m specimen, x Index, in *Input, contexts [][]float32) {
		for _, s := range x.Settings() {
			t.Run(s.Params(), func(t *testing.T) { law(t, m, s, in, contexts) })
		}
	})
}

// checkExact compares the answers of a setting with the exact ones: the best labels for all
// contexts, and the order of all labels for some.
func checkExact(t *testing.T, s Setting, l *exact.Layer, contexts [][]float32) {
	t.Helper()
	sr, full := s.Searcher(), newExactSearch(l)
	for i, h := range contexts {
		k := specK
		if i < 10 {
			k = l.Labels()
		}
		got, want := make([]exact.Prediction, k), make([]exact.Prediction, k)
		full.topK(want, h, exact.Labels{})
		if n := sr.TopK(got, h); !slices.Equal(got[:n], want) {
			t.Fatalf("context %d: got %v, want %v", i, got[:n], want)
		}
	}
}

func TestASettingThatLooksAtEveryLabelGivesTheExactAnswer(t *testing.T) {
	eachIndex(t, func(t *testing.T, m specimen, x Index, in *Input, contexts [][]float32) {
		switch {
		case m.every == nil: // the graphs, the screens: their own tests know their best precision
		case !m.rough:
			checkExact(t, m.every(x), in.Layer, contexts)
		default: // near ties may go either way
			if p := precision(m.every(x), in.Layer, contexts); p < 0.998 {
				t.Errorf("P@5 %v, want at least 0.998", p)
			}
		}
	})
}

func TestOfEqualLogitsThatOfTheLowerLabelComesFirst(t *testing.T) {
	d := synthetic.Structured(300, 24, 12, 200, 1)
	l, err := exact.NewLayer(kernels.Float32Rows(slices.Repeat(dense.Weights(d.Exact), 2), 24), slices.Repeat(d.Exact.Bias(), 2))
	if err != nil {
		t.Fatal(err)
	}
	in, contexts := input(t, &synthetic.Data{Layer: (*l2s.Layer)(engine.Over(l)), Exact: l, Contexts: d.Contexts}, 150)
	for _, m := range specimens() {
		if m.every != nil && !m.rough {
			t.Run(title(m), func(t *testing.T) { checkExact(t, m.every(build(t, m, in)), l, contexts) })
		}
	}
}

func TestAnswersAreOrderedDistinctAndOfTheLayer(t *testing.T) {
	eachSetting(t, func(t *testing.T, m specimen, s Setting, in *Input, contexts [][]float32) {
		sr, tolerance := s.Searcher(), 0.0
		if m.rough {
			tolerance = 1e-4
		}
		for i, h := range contexts {
			got := answerOf(sr, h)
			if len(got) < specK && !m.few {
				t.Fatalf("context %d: %d labels, want %d", i, len(got), specK)
			}
			for j, p := range got {
				if j > 0 && (p.Logit > got[j-1].Logit || p.Logit == got[j-1].Logit && p.ID <= got[j-1].ID) {
					t.Errorf("context %d: %v comes after %v", i, p, got[j-1])
				}
				want := exactOf(in.Layer, h, []uint32{p.ID})[0]
				if math.Abs(p.Logit-want.Logit) > tolerance {
					t.Errorf("context %d: logit of %d is %v, want %v", i, p.ID, p.Logit, want.Logit)
				}
			}
		}
		if _, screened := s.(Screened); !screened { // package screen refuses k = 0
			if n := sr.TopK(nil, contexts[0]); n != 0 {
				t.Errorf("%d labels, expected none for k = 0", n)
			}
		}
	})
}

func TestPrecisionGrowsWithTheSettings(t *testing.T) {
	eachIndex(t, func(t *testing.T, _ specimen, x Index, in *Input, contexts [][]float32) {
		last := 0.0
		for _, s := range x.Settings() {
			p := precision(s, in.Layer, contexts)
			if p < last {
				t.Errorf("%s: P@5 %v, want at least the P@5 of the setting before, %v", s.Params(), p, last)
			}
			last = p
		}
	})
}

// An answer does not depend on earlier answers, either.
func TestEqualSeedsGiveEqualAnswers(t *testing.T) {
	eachIndex(t, func(t *testing.T, m specimen, x Index, in *Input, contexts [][]float32) {
		y := build(t, m, in)
		if x.Bytes() != y.Bytes() {
			t.Errorf("bytes: %d and %d", x.Bytes(), y.Bytes())
		}
		for i, s := range x.Settings() {
			one, other := s.Searcher(), y.Settings()[i].Searcher()
			answerOf(other, contexts[len(contexts)-1])
			for _, h := range contexts[:30] {
				if a, b := answerOf(one, h), answerOf(other, h); !slices.Equal(a, b) {
					t.Fatalf("%s: %v and %v", s.Params(), a, b)
				}
			}
		}
	})
}

func TestAQueryAllocatesNothing(t *testing.T) {
	eachSetting(t, func(t *testing.T, _ specimen, s Setting, _ *Input, contexts [][]float32) {
		sr, dst, i := s.Searcher(), make([]exact.Prediction, specK), 0
		query := func() {
			sr.TopK(dst, contexts[i%len(contexts)])
			i++
		}
		for range contexts {
			query()
		}
		if n := testing.AllocsPerRun(200, query); n != 0 {
			t.Errorf("%v allocations a query", n)
		}
	})
}

func TestBuildStopsWhenItsContextEnds(t *testing.T) {
	in, _ := small(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, m := range specimens() {
		if m.instant {
			continue
		}
		if _, err := m.Build(ctx, in); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error %v, want %v", title(m), err, context.Canceled)
		}
	}
}

func TestWrongParametersAreRefused(t *testing.T) {
	in, _ := small(t)
	unlabelled, without := *in, *in
	unlabelled.Labels, without.Contexts = nil, nil
	for _, c := range []struct {
		in      *Input
		methods []Method
	}{
		{&unlabelled, []Method{Frequency{Sizes: []int{5}}}},
		{&without, []Method{AdaptiveSoftmax{[]int{5}}, WeightedSVD{4, []float64{1}}}},
		{in, []Method{
			Frequency{Sizes: []int{0}}, Frequency{Sizes: []int{601}},
			GreedyMIPS{Budgets: []int{0}},
			PCAMIPS{Depth: -1}, PCAMIPS{Depth: 10}, PCAMIPS{Depth: 3, Distances: []int{4}}, PCAMIPS{Depth: 3, Distances: []int{-1}},
			LSHMIPS{Tables: 0, Bits: 4}, LSHMIPS{Tables: 1, Bits: 0}, LSHMIPS{Tables: 1, Bits: 21},
			LSHMIPS{Tables: 1, Bits: 4, Probes: []int{17}}, LSHMIPS{Tables: 1, Bits: 4, Probes: []int{0}},
			L2S{Form: KMeans, Budget: 40}, L2S{Form: Gumbel, Clusters: -1, Budget: 40}, L2S{Form: Expected, Clusters: 12, Budget: 1},
			FGD{M: 1}, FGD{M: -1}, FGD{M: 1 << 20}, FGD{EfConstruction: -1},
			IPNSW{M: 1}, IPNSW{EfConstruction: -1},
			SVDSoftmax{}, SVDSoftmax{-1},
			WeightedSVD{0, []float64{1}}, WeightedSVD{4, []float64{-1}}, WeightedSVD{4, []float64{1, 1}}, WeightedSVD{4, []float64{math.NaN()}}, WeightedSVD{4, nil},
			AdaptiveSoftmax{[]int{0}}, AdaptiveSoftmax{[]int{5, 5}}, AdaptiveSoftmax{[]int{9, 5}},
		}},
	} {
		for _, m := range c.methods {
			if _, err := m.Build(context.Background(), c.in); err == nil {
				t.Errorf("%#v: no error", m)
			}
		}
	}
}

// Methods that share the codes of the layer are charged for them like those with
// codes of their own, once.
func TestEveryMethodIsChargedForTheCodesThatItReads(t *testing.T) {
	eachIndex(t, func(t *testing.T, m specimen, x Index, in *Input, _ [][]float32) {
		codes := int64(in.Layer.Labels()) * int64(kernels.Int8Stride(in.Layer.Dim()))
		switch got := x.Bytes(); {
		case m.rough && got != 0:
			t.Errorf("%d bytes, where nothing but W and b is read", got)
		case m.own != nil && got != codes+m.own(x):
			t.Errorf("%d bytes, want %d", got, codes+m.own(x))
		case !m.rough && got < codes:
			t.Errorf("%d bytes, where the codes have %d", got, codes)
		}
	})
}

// recallCase is a method on a real model, with precisions slightly below the measured ones.
type recallCase struct {
	method  Method
	setting string  // "": the last
	least   float64 // P@5 of it
	most    float64 // P@5 of the last
}

// checkRecall learns from the first contexts of d and measures on the others.
func checkRecall(t *testing.T, d *synthetic.Data, learn int, cases []recallCase) {
	in, contexts := input(t, d, learn)
	for _, c := range cases {
		t.Run(title(c.method), func(t *testing.T) {
			settings := build(t, c.method, in).Settings()
			i := len(settings) - 1
			if c.setting != "" {
				i = slices.IndexFunc(settings, func(s Setting) bool { return s.Params() == c.setting })
			}
			if i < 0 {
				t.Fatalf("no setting %s", c.setting)
			}
			p := precision(settings[i], in.Layer, contexts)
			cheap, most := p, p
			if len(settings) > 1 {
				cheap = precision(settings[0], in.Layer, contexts)
				most = precision(settings[len(settings)-1], in.Layer, contexts)
			}
			t.Logf("P@5 %.4f, from %.4f to %.4f", p, cheap, most)
			if p < c.least || most < c.most {
				t.Errorf("P@5 %.4f, want at least %v; of the last setting %.4f, want at least %v", p, c.least, most, c.most)
			}
			if cheap > p || p > most {
				t.Errorf("P@5 of the first setting %.4f, of %s %.4f, of the last %.4f", cheap, c.setting, p, most)
			}
		})
	}
}

// firstLabels restricts data to the first labels of a layer: enough of a model to be one, few
// enough to be quick.
func firstLabels(t *testing.T, l *exact.Layer, contexts []float32) *synthetic.Data {
	t.Helper()
	const labels = 2000
	l, err := exact.NewLayer(kernels.Float32Rows(dense.Weights(l)[:labels*l.Dim()], l.Dim()), l.Bias()[:labels])
	if err != nil {
		t.Fatal(err)
	}
	return &synthetic.Data{Layer: (*l2s.Layer)(engine.Over(l)), Exact: l, Contexts: contexts}
}

// textsOf returns the first contexts of texts that the model of make demo writes. Over texts of 100
// words P@5 of Greedy-MIPS has a standard deviation of .02, so that a few texts tell little.
func textsOf(t *testing.T, m *lstm.Model, v *vocab.Vocab, texts, words int) []float32 {
	t.Helper()
	size := words * m.Dim()
	rows := make([]float32, texts*size)
	err := parallel.Each(context.Background(), 0, texts, 1, nil, func(_, from, to int) error {
		for i := from; i < to; i++ {
			contexts, err := layers.Written(context.Background(), m, v, words, uint64(i+1), func(int) {})
			if err != nil {
				return err
			}
			copy(rows[i*size:], contexts)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// The model of make demo needs no data from outside the repository: it generates its contexts.
func TestRecallOnTheDemoModel(t *testing.T) {
	m, v, err := layers.LoadLM("../../lm/model")
	if err != nil {
		t.Fatal(err)
	}
	layer, err := layers.Decoder(m)
	if err != nil {
		t.Fatal(err)
	}
	checkRecall(t, firstLabels(t, layer, textsOf(t, m, v, 80, 100)), 2000, []recallCase{
		{method: Frequency{Sizes: []int{500}}, least: 0.992},
		{method: GreedyMIPS{Budgets: []int{400}}, least: 0.95},
		{method: PCAMIPS{Depth: 4, Distances: []int{1}}, least: 0.962},
		// At most half of the labels, 16*2/2^6, as a rule far fewer.
		{method: LSHMIPS{Tables: 16, Bits: 6, Probes: []int{2}}, least: 0.605},
		{FGD{}, "ef=64", 0.988, 0.999},
		{IPNSW{}, "ef=64", 0.985, 0.996},
		{SVDSoftmax{48}, "N=64", 0.999, 0.999},
		{WeightedSVD{48, []float64{0.1, 0.2, 0.4}}, "f=0.2", 0.999, 0.999},
		{AdaptiveSoftmax{[]int{500, 1000}}, "z=2", 0.995, 0.996},
	})
}
