package l2s_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
	"github.com/learning-to-screen/l2s/internal/tests/synthetic"
	"github.com/learning-to-screen/l2s/preview"
)

const (
	testLabels, testDim = 3000, 32
	testContexts        = 300 // that nothing was made from
)

// way is one way to search the same layer.
type way struct {
	name  string
	index *l2s.Index
}

// fixture is a layer with an index of each kind, and contexts.
type fixture struct {
	layer    *l2s.Layer
	weights  []float32
	bias     []float32
	ways     []way
	contexts []float32
}

func (f *fixture) context(i int) []float32 { return f.contexts[i*testDim:][:testDim:testDim] }

var fixtureOnce = sync.OnceValue(func() *fixture {
	data := synthetic.Structured(testLabels, testDim, 30, 3000+testContexts, 1)
	f := &fixture{weights: make([]float32, testLabels*testDim), bias: data.Exact.Bias(), contexts: data.Contexts[3000*testDim:]}
	for i := range testLabels {
		data.Exact.Weights().Widen(f.weights[i*testDim:][:testDim], i)
	}
	var err error
	if f.layer, err = l2s.New(l2s.Float32(f.weights, testDim), f.bias); err != nil {
		panic(err)
	}
	states := 3000
	if testing.Short() {
		states = 1000
	}
	made, err := preview.Make(context.Background(), data.Layer, l2s.Float32(data.Contexts[:states*testDim], data.Layer.Dim()), preview.Options{})
	if err != nil {
		panic(err)
	}
	screen, err := data.Screen(200)
	if err != nil {
		panic(err)
	}
	c := (*engine.Index)(screen).Screen().Config()
	for i := range c.Lists { // shares, by the order of the logits: a ladder of budgets
		ids := c.Lists[i].IDs
		h := c.Clusters[i*testDim:][:testDim]
		logit := func(id uint32) (x float64) {
			for j, v := range h {
				x += 10 * float64(v) * float64(f.weights[int(id)*testDim+j])
			}
			return x + float64(f.bias[id])
		}
		slices.SortFunc(ids, func(a, b uint32) int {
			if x, y := logit(a), logit(b); x != y {
				return map[bool]int{true: -1, false: 1}[x > y]
			}
			return int(a) - int(b)
		})
		c.Lists[i].Shares = nil
		for j := range ids {
			c.Lists[i].Shares = append(c.Lists[i].Shares, uint16(60000-j))
		}
	}
	c.Ladder = []screening.Rung{{Budget: 20, Share: 60000 - 19}, {Budget: 100, Share: 60000 - 99}, {Budget: 200, Share: 60000 - 199}}
	c.Budget, c.K, c.HeldOut = 100, 5, 100
	for i := range c.Ladder {
		c.Ladder[i].Precision1.High, c.Ladder[i].PrecisionK.High = 1, 1
	}
	ladder, err := screening.NewModel(c)
	if err != nil {
		panic(err)
	}
	f.ways = []way{
		{"exact", nil},
		{"preview", made},
		{"screen", (*l2s.Index)(engine.OfScreen(ladder))},
	}
	return f
})

func newSearcher(t interface{ Fatal(...any) }, l *l2s.Layer, x *l2s.Index, o l2s.Options) *l2s.Searcher {
	s, err := l2s.NewSearcher(l, x, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// each runs a test for each way to search.
func each(t *testing.T, f func(t *testing.T, f *fixture, x *l2s.Index)) {
	for _, w := range fixtureOnce().ways {
		t.Run(w.name, func(t *testing.T) { f(t, fixtureOnce(), w.index) })
	}
}

// drawSet draws a set of labels, some of which are among the best.
func drawSet(t *rapid.T, name string, best []l2s.Prediction) *bitset.Set {
	s := bitset.New(testLabels)
	for range rapid.IntRange(0, 40).Draw(t, name) {
		if rapid.Bool().Draw(t, "one of the best") {
			s.Add(best[rapid.IntRange(0, len(best)-1).Draw(t, "place")].ID)
		} else {
			s.Add(uint32(rapid.IntRange(0, testLabels-1).Draw(t, "label")))
		}
	}
	return s
}

// drawRequest draws a request for labels of a context whose best ones are given.
func drawRequest(t *rapid.T, best []l2s.Prediction) (k int, r l2s.Request) {
	k = rapid.SampledFrom([]int{1, 1, 2, 5, 40, 600}).Draw(t, "k")
	if r.LogSum = rapid.Bool().Draw(t, "log-sum"); r.LogSum {
		k = rapid.SampledFrom([]int{0, k}).Draw(t, "k with a sum")
		r.ExactSum = rapid.IntRange(0, 9).Draw(t, "exact sum") == 0
		r.Temperature = rapid.SampledFrom([]float64{0, 0, 1, 0.7, 5, 1e-3}).Draw(t, "temperature")
	}
	r.Budget = rapid.SampledFrom([]float64{0, 0, 1, 50, 150, 1e6}).Draw(t, "budget")
	r.Within = rapid.SampledFrom([]float64{0, 0, 0, 0.5, 10}).Draw(t, "within")
	switch rapid.IntRange(0, 5).Draw(t, "edits") {
	case 0:
		r.Banned = drawSet(t, "banned", best)
	case 1:
		r.Allowed = drawSet(t, "allowed", best)
	case 2:
		at := map[uint32]float32{}
		for range rapid.IntRange(1, 5).Draw(t, "biases") {
			at[uint32(rapid.IntRange(0, testLabels-1).Draw(t, "biased"))] = float32(rapid.IntRange(-20, 20).Draw(t, "bias"))
		}
		for id, add := range at {
			r.Biases = append(r.Biases, l2s.Bias{ID: id, Add: add})
		}
		slices.SortFunc(r.Biases, func(a, b l2s.Bias) int { return int(a.ID) - int(b.ID) })
	case 3:
		among := []uint32{5, 17, best[0].ID ^ 1, 999}
		slices.Sort(among)
		r.Among = l2s.Only(slices.Compact(among)) // distinct labels
	}
	if rapid.IntRange(0, 2).Draw(t, "other labels") == 0 {
		r.Also = slices.Collect(drawSet(t, "also", best).All())
		r.Also = append(r.Also, r.Also...) // a label may be there twice
	}
	r.Exact = rapid.IntRange(0, 9).Draw(t, "exact") == 0
	return k, r
}

// added is the bias of a label in a request.
func added(r l2s.Request, id uint32) float64 {
	for _, b := range r.Biases {
		if b.ID == id {
			return float64(b.Add)
		}
	}
	return 0
}

// One law for all ways to search: logits are the definition's, in order; an exact request has the
// answer of the search without an index; a ban of some labels equals the permission of all others; a
// batch has the answers of its contexts, and a pool those of a searcher, bit for bit.
func TestTheLawsOfAnswers(t *testing.T) {
	each(t, func(t *testing.T, f *fixture, x *l2s.Index) {
		s, plain := newSearcher(t, f.layer, x, l2s.Options{}), newSearcher(t, f.layer, nil, l2s.Options{})
		pool, err := l2s.NewPool(f.layer, x, l2s.Options{})
		if err != nil {
			t.Fatal(err)
		}
		best := make([]l2s.Prediction, 50)
		rapid.Check(t, func(t *rapid.T) {
			at := rapid.IntRange(0, testContexts-4).Draw(t, "context")
			h := f.context(at)
			if _, err := plain.TopK(best, h); err != nil {
				t.Fatal(err)
			}
			k, r := drawRequest(t, best)
			ask := func(s l2s.Asker, r l2s.Request) ([]l2s.Prediction, l2s.Answer) {
				dst := make([]l2s.Prediction, k)
				a, err := s.Search(dst, h, r)
				if err != nil {
					t.Fatalf("%+v: %v", r, err)
				}
				return dst[:a.Count], a
			}
			got, a := ask(s, r)

			ids, logits := make([]uint32, a.Count), make([]float64, a.Count)
			for i, p := range got {
				ids[i] = p.ID
			}
			if err := s.Logits(logits, h, l2s.Only(ids)); err != nil {
				t.Fatal(err)
			}
			for i, p := range got {
				if want := logits[i] + added(r, p.ID); p.Logit != want {
					t.Fatalf("label %d: found the logit %v, expected %v", p.ID, p.Logit, want)
				}
				if i > 0 && (p.Logit > got[i-1].Logit || p.Logit == got[i-1].Logit && p.ID <= got[i-1].ID) {
					t.Fatalf("found %v after %v", p, got[i-1])
				}
				if r.Allowed != nil && !r.Allowed.Has(p.ID) || r.Banned != nil && r.Banned.Has(p.ID) {
					t.Fatalf("found label %d, which may not be answered", p.ID)
				}
			}

			by, b := ask(pool, r)
			if !slices.Equal(by, got) || b != a {
				t.Fatalf("a pool: found %v, %+v, expected %v, %+v", by, b, got, a)
			}

			const n = 3
			dst, answers := make([]l2s.Prediction, n*k), make([]l2s.Answer, n)
			if err := s.SearchBatch(dst, answers, f.contexts[at*testDim:][:n*testDim], r); err != nil {
				t.Fatal(err)
			}
			if answers[0] != a || !slices.Equal(dst[:a.Count], got) {
				t.Fatalf("a batch: found %v, %+v, expected %v, %+v", dst[:answers[0].Count], answers[0], got, a)
			}

			exactly := r
			exactly.Exact = true
			want, c := ask(plain, r)
			if by, b := ask(s, exactly); !b.Exact || b.Count != c.Count || !slices.Equal(by, want) || r.ExactSum && b.LogSum != c.LogSum {
				t.Fatalf("exactly: found %v, %+v, expected %v, %+v", by, b, want, c)
			}
			if a.Exact && !slices.Equal(got, want) {
				t.Fatalf("an answer that is called exact: found %v, expected %v", got, want)
			}

			if r.Banned != nil {
				rest := r
				rest.Banned, rest.Allowed = nil, bitset.New(testLabels)
				rest.Allowed.Fill()
				rest.Allowed.Difference(r.Banned)
				if by, b := ask(s, rest); b != a || !slices.Equal(by, got) {
					t.Fatalf("the others allowed: found %v, %+v, expected %v, %+v", by, b, got, a)
				}
			}
		})
	})
}

// No label that a request names besides is missed: with the k best of a context in a list, in any order,
// the answer is exact, where without it a screen misses labels. Previews miss none here, and score the
// list too.
func TestLabelsThatARequestNamesAreNotMissed(t *testing.T) {
	const k = 5
	each(t, func(t *testing.T, f *fixture, x *l2s.Index) {
		s, plain := newSearcher(t, f.layer, x, l2s.Options{}), newSearcher(t, f.layer, nil, l2s.Options{})
		r, missed, scored, contexts := rand.New(rand.NewPCG(7, 7)), 0, [2]uint64{}, 200
		if testing.Short() {
			contexts = 60
		}
		for i := range contexts {
			h := slices.Clone(f.context(i))
			for j := range h {
				h[j] = h[j]/2 + float32(.3*r.NormFloat64())
			}
			var got, want [k]l2s.Prediction
			for _, q := range []l2s.Request{{}, {LogSum: true}, {Within: 3}, {Banned: bitset.New(testLabels)}} {
				a, err := plain.Search(want[:], h, q)
				if err != nil {
					t.Fatal(err)
				}
				q.Budget = 20
				for with := range scored {
					before := s.Stats().Scored
					b, err := s.Search(got[:], h, q)
					right := err == nil && b.Count == a.Count && slices.Equal(got[:a.Count], want[:a.Count])
					if scored[with] += s.Stats().Scored - before; with == 0 && !right {
						missed++
					} else if with == 1 && (!right || q.LogSum && b.LogSum < got[0].Logit-1e-4) {
						t.Fatalf("%+v: found %v, %+v, %v, expected %v", q, got, b, err, want[:a.Count])
					}
					for i := range want[:a.Count] {
						q.Also = append(q.Also, want[a.Count-1-i].ID, uint32(r.IntN(testLabels)), want[i].ID)
					}
				}
			}
		}
		kind := ""
		if x != nil {
			kind = x.Kind()
		}
		if kind == "screen" && missed == 0 || kind != "" && scored[1] <= scored[0]+2*uint64(contexts) {
			t.Errorf("found %d answers that miss a label without the list, and %d labels scored, expected some misses by a screen, and more than %d labels", missed, scored[1], scored[0]+2*uint64(contexts))
		}
	})
}

// A larger budget keeps what a smaller one found: of an index with nested candidates the k best of
// more labels have each label of the k best of fewer, unless k others are better.
func TestALargerBudgetFindsNoLess(t *testing.T) {
	each(t, func(t *testing.T, f *fixture, x *l2s.Index) {
		if x == nil {
			t.Skip("the exact search has no budget")
		}
		s := newSearcher(t, f.layer, x, l2s.Options{})
		steps, _ := x.Steps()
		const k = 5
		lost, all := 0, 0
		for i := range testContexts {
			var before []l2s.Prediction
			for _, step := range steps {
				dst := make([]l2s.Prediction, k)
				if _, err := s.Search(dst, f.context(i), l2s.Request{Budget: step.Budget}); err != nil {
					t.Fatal(err)
				}
				for j := range before {
					all++
					if dst[j].Logit < before[j].Logit {
						lost++
					}
				}
				before = dst
			}
		}
		t.Logf("%d of %d labels were lost", lost, all)
		if lost > 0 {
			t.Errorf("found %d of %d labels of a smaller budget lost, expected none", lost, all)
		}
	})
}

// The counts of a searcher are of the queries that succeeded, whichever way they were asked.
func TestStatsCountQueriesThatSucceed(t *testing.T) {
	each(t, func(t *testing.T, f *fixture, x *l2s.Index) {
		s := newSearcher(t, f.layer, x, l2s.Options{})
		dst, answers := make([]l2s.Prediction, 5*10), make([]l2s.Answer, 10)
		for range 2 {
			if _, err := s.TopK(dst[:5], f.context(0)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.SearchBatch(dst, answers, f.contexts[:10*testDim], l2s.Request{}); err != nil {
			t.Fatal(err)
		}
		before := s.Stats()
		if before.Queries != 12 || before.Exact > 12 || x == nil && before.Exact != 12 || before.Fallback > before.Exact {
			t.Errorf("found %+v, expected 12 queries", before)
		}
		if x != nil && (before.Looked == 0 || before.Scored < 12*5 || before.Scored > 12*testLabels/2) {
			t.Errorf("found %+v, expected looks, and scored labels", before)
		}
		if x == nil && (before.Looked != 0 || before.Scored != 0) {
			t.Errorf("found %+v, expected exact answers alone", before)
		}
		for _, r := range []l2s.Request{{Exact: true}, {Among: l2s.Only([]uint32{1, 2, 3, 4, 5, 6})}} {
			if _, err := s.Search(dst[:5], f.context(1), r); err != nil {
				t.Fatal(err)
			}
			if err := s.SearchBatch(dst, answers, f.contexts[:10*testDim], r); err != nil {
				t.Fatal(err)
			}
		}
		after := s.Stats()
		if want := (l2s.Stats{Queries: before.Queries + 22, Looked: before.Looked, Scored: before.Scored, Exact: before.Exact + 22, Fallback: before.Fallback, Far: before.Far}); after != want {
			t.Errorf("found %+v after exact requests, expected %+v", after, want)
		}
		h := slices.Clone(f.context(0))
		h[3] = float32(math.NaN())
		for name, err := range map[string]error{
			"a NaN":          second(s.TopK(dst[:5], h)),
			"a short vector": second(s.TopK(dst[:5], h[1:])),
			"a batch":        s.SearchBatch(dst, answers, slices.Concat(f.contexts[:9*testDim], h), l2s.Request{}),
		} {
			if !errors.Is(err, l2s.ErrContext) {
				t.Errorf("%s: found the error %v, expected ErrContext", name, err)
			}
		}
		for name, err := range map[string]error{
			"no room":           second(s.TopK(nil, f.context(0))),
			"too many":          second(s.TopK(make([]l2s.Prediction, testLabels+1), f.context(0))),
			"a negative budget": second(s.Search(dst[:5], f.context(0), l2s.Request{Budget: -1})),
			"uneven room":       s.SearchBatch(dst[:49], answers, f.contexts[:10*testDim], l2s.Request{}),
			"an id too large":   second(s.Search(dst[:1], f.context(0), l2s.Request{Among: l2s.Only([]uint32{testLabels})})),
		} {
			if !errors.Is(err, l2s.ErrRequest) {
				t.Errorf("%s: found the error %v, expected ErrRequest", name, err)
			}
		}
		if err := second(s.LogProb(f.context(0), 1, -1)); !errors.Is(err, l2s.ErrRequest) && (x == nil || x.HasTail()) {
			t.Errorf("a negative temperature: found the error %v, expected ErrRequest", err)
		}
		if got := s.Stats(); got != after {
			t.Errorf("found %+v after wrong queries, expected %+v", got, after)
		}
	})
}

func second[T any](_ T, err error) error { return err }

func TestLogProbsAreOverAllLabels(t *testing.T) {
	f := fixtureOnce()
	plain := newSearcher(t, f.layer, nil, l2s.Options{})
	by := newSearcher(t, f.layer, f.ways[1].index, l2s.Options{})
	top, contexts := make([]l2s.Prediction, 3), 50
	if testing.Short() {
		contexts = 10
	}
	for i := range contexts {
		h := f.context(i)
		if _, err := plain.TopK(top, h); err != nil {
			t.Fatal(err)
		}
		for _, T := range []float64{1, 0.8, 3} {
			for _, id := range []uint32{top[0].ID, top[2].ID, 17} {
				want, err := plain.LogProb(h, id, T)
				if err != nil {
					t.Fatal(err)
				}
				got, err := by.LogProb(h, id, T)
				if err != nil || math.Abs(got-want) > 0.2 || got > 0 {
					t.Errorf("context %d, label %d, temperature %v: found %v (%v), expected about %v", i, id, T, got, err, want)
				}
				sum, err := plain.LogSum(h, T, 0.9)
				logit := []float64{0}
				if err := plain.Logits(logit, h, l2s.Only([]uint32{id})); err != nil {
					t.Fatal(err)
				}
				if err != nil || sum.Low != sum.Log || sum.High != sum.Log || logit[0]/T-sum.Log != want {
					t.Errorf("context %d, temperature %v: found the sum %+v (%v), expected %v", i, T, sum, err, logit[0]/T-want)
				}
			}
		}
	}
	if _, err := newSearcher(t, f.layer, f.ways[2].index, l2s.Options{}).LogProb(f.context(0), 1, 1); !errors.Is(err, l2s.ErrNoTail) {
		t.Errorf("a screen without a tail: found the error %v, expected ErrNoTail", err)
	}
	if _, err := l2s.NewSearcher(f.layer, f.ways[2].index, l2s.Options{OverTail: true}); !errors.Is(err, l2s.ErrNoTail) {
		t.Errorf("OverTail: found the error %v, expected ErrNoTail", err)
	}
	if stats := by.Stats(); stats != (l2s.Stats{}) {
		t.Errorf("found %+v, expected no query", stats)
	}
}

// Queries allocate nothing, whichever way they go, of a searcher, of a pool, and over a file.
func TestQueriesDoNotAllocate(t *testing.T) {
	each(t, func(t *testing.T, f *fixture, x *l2s.Index) {
		path := filepath.Join(t.TempDir(), "W.npy")
		writeNPY(t, path, f.weights, testDim)
		file := openLayer(t, path, "none")
		defer file.Close()
		var zero *l2s.Index
		for _, l := range []struct {
			name  string
			layer *l2s.Layer
			index *l2s.Index
		}{{"of the program", f.layer, x}, {"in a file", file, zero}} {
			s := newSearcher(t, l.layer, l.index, l2s.Options{})
			pool, err := l2s.NewPool(l.layer, l.index, l2s.Options{})
			if err != nil {
				t.Fatal(err)
			}
			top, batch, answers, logits := make([]l2s.Prediction, 5), make([]l2s.Prediction, 50), make([]l2s.Answer, 10), make([]float64, 2)
			banned, err := bitset.FromIDs(testLabels, []uint32{1, 2, 3})
			if err != nil {
				t.Fatal(err)
			}
			few, biases := l2s.Only([]uint32{3, 4}), []l2s.Bias{{ID: 4, Add: 1}}
			const asked = 40 // contexts, again and again
			i := 0
			next := func() []float32 { i = (i + 1) % asked; return f.context(i) }
			for name, ask := range map[string]func() error{
				"TopK":             func() error { return second(s.TopK(top, next())) },
				"Search":           func() error { return second(s.Search(top, next(), l2s.Request{LogSum: true})) },
				"edits":            func() error { return second(s.Search(top, next(), l2s.Request{Banned: banned, Biases: biases})) },
				"SearchBatch":      func() error { return s.SearchBatch(batch, answers, f.contexts[:10*testDim], l2s.Request{}) },
				"Logits":           func() error { return s.Logits(logits, next(), few) },
				"LogProb":          func() error { _, err := s.LogProb(next(), 3, 1); return ignore(err, l2s.ErrNoTail) },
				"Pool.TopK":        func() error { return second(pool.TopK(top, next())) },
				"Pool.Search":      func() error { return second(pool.Search(top, next(), l2s.Request{LogSum: true})) },
				"Pool.SearchBatch": func() error { return pool.SearchBatch(batch, answers, f.contexts[:10*testDim], l2s.Request{}) },
				"Pool.Do":          func() error { return pool.Do(func(s *l2s.Searcher) error { return second(s.TopK(top, next())) }) },
			} {
				for range asked { // scratch grows
					err = ask()
				}
				if n := simdtest.AllocsPerRun(asked, func() { err = ask() }); n != 0 || err != nil {
					t.Errorf("%s, %s: found %v allocations a call (%v), expected none", l.name, name, n, err)
				}
			}
		}
	})
}

func ignore(err, kind error) error {
	if errors.Is(err, kind) {
		return nil
	}
	return err
}

// Goroutines ask while a pool goes from one way to another: each answer is one of the ways'.
func TestAPoolGoesFromOneWayToAnotherUnderLoad(t *testing.T) {
	f := fixtureOnce()
	const k, n = 5, 40
	want := map[*l2s.Index][]l2s.Prediction{}
	for _, w := range f.ways {
		dst, answers := make([]l2s.Prediction, n*k), make([]l2s.Answer, n)
		if err := newSearcher(t, f.layer, w.index, l2s.Options{}).SearchBatch(dst, answers, f.contexts[:n*testDim], l2s.Request{}); err != nil {
			t.Fatal(err)
		}
		want[w.index] = dst
	}
	pool, err := l2s.NewPool(f.layer, nil, l2s.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	var queries atomic.Uint64
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			dst := make([]l2s.Prediction, k)
			for i := g; !stop.Load(); i++ {
				err := pool.Do(func(s *l2s.Searcher) error {
					at := i % n
					queries.Add(1)
					if _, err := s.TopK(dst, f.context(at)); err != nil {
						return err
					}
					if !slices.Equal(dst, want[s.Index()][at*k:][:k]) {
						t.Errorf("context %d: found %v, expected the answer of the index that was lent", at, dst)
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 30 {
		drained, err := pool.Swap(f.layer, f.ways[i%len(f.ways)].index)
		if err != nil {
			t.Error(err)
			break
		}
		<-drained
	}
	stop.Store(true)
	wg.Wait()
	if got := pool.Stats().Queries; got != queries.Load() {
		t.Errorf("found %d queries, expected %d", got, queries.Load())
	}
}

// An index of another layer is refused, by whichever constructor, and so is what no constructor made.
func TestWrongLayersAndIndexesAreRefused(t *testing.T) {
	f := fixtureOnce()
	other := slices.Clone(f.weights)
	other[7]++
	layer, err := l2s.New(l2s.Float32(other, testDim), f.bias)
	if err != nil {
		t.Fatal(err)
	}
	noBias, err := l2s.New(l2s.Float32(f.weights, testDim), nil)
	if err != nil {
		t.Fatal(err)
	}
	small, err := l2s.New(l2s.Float32(f.weights[:100*testDim], testDim), nil)
	if err != nil {
		t.Fatal(err)
	}
	refuses := func(name string, l *l2s.Layer, x *l2s.Index, kind error) {
		t.Helper()
		pool, err := l2s.NewPool(f.layer, nil, l2s.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for at, err := range []error{second(l2s.NewSearcher(l, x, l2s.Options{})), second(l2s.NewPool(l, x, l2s.Options{})), second(pool.Swap(l, x))} {
			if err == nil || kind != nil && !errors.Is(err, kind) {
				t.Errorf("%s, call %d: found the error %v, expected %v", name, at, err, kind)
			}
		}
	}
	for _, w := range f.ways[1:] {
		refuses("another weight", layer, w.index, l2s.ErrLayer)
		refuses("no bias", noBias, w.index, l2s.ErrLayer)
		refuses("another shape", small, w.index, l2s.ErrLayer)
	}
	refuses("no layer", nil, nil, nil)
	refuses("an empty layer", new(l2s.Layer), nil, nil)
	refuses("an empty index", f.layer, new(l2s.Index), nil)
	if _, err := l2s.NewSearcher(f.layer, nil, l2s.Options{Budget: math.NaN()}); !errors.Is(err, l2s.ErrRequest) {
		t.Errorf("the budget NaN: found the error %v, expected ErrRequest", err)
	}
}

// Options.Budget is the budget of requests that name none.
func TestTheBudgetOfASearcher(t *testing.T) {
	each(t, func(t *testing.T, f *fixture, x *l2s.Index) {
		if x == nil {
			return
		}
		steps, normal := x.Steps()
		for i, step := range steps {
			own, plain := newSearcher(t, f.layer, x, l2s.Options{Budget: step.Budget}), newSearcher(t, f.layer, x, l2s.Options{})
			for at := range 20 {
				for _, r := range []l2s.Request{{}, {LogSum: true}, {Budget: steps[0].Budget}} {
					named := r
					if named.Budget == 0 {
						named.Budget = step.Budget
					}
					got, want := make([]l2s.Prediction, 5), make([]l2s.Prediction, 5)
					a, err := own.Search(got, f.context(at), r)
					b, err2 := plain.Search(want, f.context(at), named)
					if err != nil || err2 != nil || a != b || !slices.Equal(got, want) {
						t.Fatalf("step %d: found %v, %+v (%v), expected %v, %+v (%v)", i, got, a, err, want, b, err2)
					}
				}
			}
		}
		if normal < 0 || normal >= len(steps) {
			t.Errorf("found the normal step %d of %d", normal, len(steps))
		}
	})
}

// A line tells what an index is.
func TestAnIndexIsALine(t *testing.T) {
	f := fixtureOnce()
	for _, w := range f.ways {
		if w.index == nil {
			continue
		}
		steps, normal := w.index.Steps()
		k, heldOut := w.index.Measured()
		want := fmt.Sprintf("%s of %d labels x %d, %.1f scored", w.index.Kind(), testLabels, testDim, steps[normal].MeanScored)
		if heldOut > 0 {
			want += fmt.Sprintf(", P@1 %.4f, P@%d %.4f", steps[normal].Precision1.Value, k, steps[normal].PrecisionK.Value)
		}
		if own := steps[normal].Own; own.High > 0 {
			want += fmt.Sprintf(", finds %.4f (%.4f to %.4f) of own states", own.Value, own.Low, own.High)
		}
		if got := w.index.String(); got != want {
			t.Errorf("found %q, expected %q", got, want)
		}
	}
	for want, x := range map[string]*l2s.Index{"the exact search": nil, "an empty index": new(l2s.Index)} {
		if got := fmt.Sprint(x); got != want {
			t.Errorf("found %q, expected %q", got, want)
		}
	}
}
