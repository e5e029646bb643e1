package engine_test

import (
	"errors"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/tests/screentest"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

func draws(t *rapid.T) screentest.Draw {
	return func(label string, low, high int) int { return rapid.IntRange(low, high).Draw(t, label) }
}

func poolOf(in *screentest.Instance, t screentest.Failer, o ...engine.Options) *engine.Pool {
	t.Helper()
	p, err := engine.NewPool(engine.Over(in.Layer), engine.OfScreen(in.Model), append(o, engine.Options{})[0])
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// pooled is a pool as l2s.Pool is: a searcher of it answers.
type pooled struct{ *engine.Pool }

func (p pooled) TopK(dst []exact.Prediction, h []float32) (int, error) {
	a, err := p.Search(dst, h, &exact.Request{})
	return a.Count, err
}

func (p pooled) Search(dst []exact.Prediction, h []float32, req *exact.Request) (a exact.Answer, err error) {
	err = p.Do(func(s *engine.Searcher) (err error) { a, err = s.Search(dst, h, req); return err })
	return a, err
}

func (p pooled) SearchBatch(dst []exact.Prediction, answers []exact.Answer, contexts []float32, req *exact.Request) error {
	return p.Do(func(s *engine.Searcher) error { return s.SearchBatch(dst, answers, contexts, req) })
}

func (p pooled) LogProb(h []float32, id uint32, temperature float64) (x float64, err error) {
	err = p.Do(func(s *engine.Searcher) (err error) { x, err = s.LogProb(h, id, temperature); return err })
	return x, err
}

func swap(t screentest.Failer, p *engine.Pool, in *screentest.Instance) <-chan struct{} {
	t.Helper()
	drained, err := p.Swap(engine.Over(in.Layer), engine.OfScreen(in.Model))
	if err != nil {
		t.Fatal(err)
	}
	return drained
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// asker has the common methods of a Pool and a Searcher.
type asker interface {
	TopK(dst []exact.Prediction, h []float32) (int, error)
	Search(dst []exact.Prediction, h []float32, req *exact.Request) (exact.Answer, error)
	SearchBatch(dst []exact.Prediction, answers []exact.Answer, contexts []float32, req *exact.Request) error
	LogProb(h []float32, id uint32, temperature float64) (float64, error)
	Stats() engine.Stats
}

// ask asks one question by its number, and returns all that is answered.
func ask(a asker, question int, in *screentest.Instance, at, k int, req *exact.Request) []any {
	h := in.Context(at)
	switch question {
	case 0:
		dst := make([]exact.Prediction, k)
		n, err := a.TopK(dst, h)
		return []any{dst, n, err}
	case 1:
		dst := make([]exact.Prediction, k)
		answer, err := a.Search(dst, h, req)
		return []any{dst, answer, err}
	case 2:
		dst, answers := make([]exact.Prediction, k*in.N), make([]exact.Answer, in.N)
		err := a.SearchBatch(dst, answers, in.Contexts, req)
		return []any{dst, answers, err}
	case 3:
		x, err := a.LogProb(h, uint32(k-1), 1)
		return []any{x, err}
	case 4:
		x, err := a.LogProb(h, uint32(k-1), 0.5)
		return []any{x, err}
	}
	_, err := a.TopK(nil, h[:len(h)-1])
	return []any{err}
}

// checkPool: for queries and swaps in any order, an answer of a pool equals the answer of a
// searcher of the generation that it came from, bit for bit, and so does an error. Its counts are
// the sums of the counts of all these searchers.
func checkPool(t *rapid.T) {
	var ins []*screentest.Instance
	for range rapid.IntRange(1, 3).Draw(t, "instances") {
		ins = append(ins, screentest.DrawShape(draws(t)).Instance(t))
	}
	var o engine.Options
	if rapid.Bool().Draw(t, "small budget") {
		o.Budget = 1
	}
	var searchers []*engine.Searcher
	for _, in := range ins {
		s, err := engine.NewSearcher(engine.Over(in.Layer), engine.OfScreen(in.Model), o)
		if err != nil {
			t.Fatal(err)
		}
		searchers = append(searchers, s)
	}
	pool, current, number := poolOf(ins[0], t, o), 0, uint64(1)
	query := func(a asker, generation int) {
		in := ins[generation]
		question, at := rapid.IntRange(0, 5).Draw(t, "question"), rapid.IntRange(0, in.N-1).Draw(t, "context")
		k, req := rapid.IntRange(1, in.Config.Labels).Draw(t, "k"), &exact.Request{LogSum: rapid.Bool().Draw(t, "log-sum"), Budget: screentest.DrawBudget(draws(t), in)}
		got, want := ask(a, question, in, at, k, req), ask(searchers[generation], question, in, at, k, req)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("generation %d, question %d: got %v, want %v", number, question, got, want)
		}
	}
	change := func() <-chan struct{} {
		current = rapid.IntRange(0, len(ins)-1).Draw(t, "next")
		number++
		return swap(t, pool, ins[current])
	}
	for range rapid.IntRange(1, 12).Draw(t, "steps") {
		switch rapid.SampledFrom([]string{"query", "query", "swap", "swap within Do"}).Draw(t, "step") {
		case "query":
			query(pooled{pool}, current)
		case "swap":
			if !isClosed(change()) {
				t.Fatal("no query is under way, and the old generation is in use")
			}
		case "swap within Do":
			var drained <-chan struct{}
			before := current
			failure := errors.New("an error of the caller")
			if err := pool.Do(func(s *engine.Searcher) error {
				query(s, before)
				drained = change()
				query(s, before)
				query(pooled{pool}, current)
				if s.Index().Screen() != ins[before].Model {
					t.Fatal("Do lends a searcher of another model")
				}
				if isClosed(drained) {
					t.Fatal("a query is under way, and its generation counts as drained")
				}
				return failure
			}); err != failure {
				t.Fatalf("Do returned %v", err)
			}
			if !isClosed(drained) {
				t.Fatal("the last query has ended, and its generation is in use")
			}
		}
	}
	var want engine.Stats
	for _, s := range searchers {
		want = sum(want, s.Stats())
	}
	if got := pool.Stats(); got != want {
		t.Fatalf("found %+v, expected %+v", got, want)
	}
}

func sum(a, b engine.Stats) engine.Stats {
	return engine.Stats{
		Queries: a.Queries + b.Queries, Looked: a.Looked + b.Looked, Scored: a.Scored + b.Scored,
		Exact: a.Exact + b.Exact, Fallback: a.Fallback + b.Fallback, Far: a.Far + b.Far,
	}
}

func TestAnAnswerIsThatOfItsGeneration(t *testing.T) { rapid.Check(t, checkPool) }

// Goroutines ask while the pool is swapped. The weights of a generation are overwritten as soon as
// it is drained, as if its file had been closed: an answer that read them later would be wrong, and
// the race detector would report it.
func TestAPoolIsSwappedUnderLoad(t *testing.T) {
	const kinds, k, goroutines = 4, 5, 8
	swaps := 60
	if testing.Short() {
		swaps = 15
	}
	type kind struct {
		config  screening.Config
		weights []float32
		bias    []float32
		want    []exact.Prediction
		answers []exact.Answer
	}
	const n = 40 // contexts, which all kinds share
	var all [kinds]kind
	in := screentest.Ordinary(t)
	contexts := in.Contexts[:n*in.Config.Dim]
	for i := range all {
		other := screentest.Shape{Labels: 300, Dim: 24, Clusters: 9, Contexts: 1, Keep: 20, Seed: uint64(i)}.Instance(t)
		x := &all[i]
		x.config, x.weights, x.bias = other.Config, other.Weights(), other.Layer.Bias()
		x.want, x.answers = make([]exact.Prediction, n*k), make([]exact.Answer, n)
		s := other.Searcher(t)
		for c := range n {
			var err error
			if x.answers[c], err = s.Search(x.want[c*k:(c+1)*k], contexts[c*in.Config.Dim:][:in.Config.Dim], exact.Request{LogSum: true}); err != nil {
				t.Fatal(err)
			}
		}
	}
	var owners sync.Map // *screening.Model: *kind
	open := func(i int) (*screening.Model, *exact.Layer, []float32) {
		x := &all[i%kinds]
		weights := slices.Clone(x.weights)
		layer, err := exact.NewLayer(kernels.Float32Rows(weights, x.config.Dim), x.bias)
		if err != nil {
			t.Fatal(err)
		}
		model, err := screening.NewModel(x.config)
		if err != nil {
			t.Fatal(err)
		}
		owners.Store(model, x)
		return model, layer, weights
	}
	model, layer, weights := open(0)
	pool, err := engine.NewPool(engine.Over(layer), engine.OfScreen(model), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var (
		stop    atomic.Bool
		queries atomic.Uint64
		wg      sync.WaitGroup
	)
	for g := range goroutines {
		wg.Go(func() {
			dst, answers := make([]exact.Prediction, n*k), make([]exact.Answer, n)
			for round := g; !stop.Load(); round++ {
				if err := pool.Do(func(s *engine.Searcher) error {
					owner, _ := owners.Load(s.Index().Screen())
					x := owner.(*kind)
					if round%3 == 0 {
						queries.Add(n)
						if err := s.SearchBatch(dst, answers, contexts, &exact.Request{LogSum: true}); err != nil {
							return err
						}
						if !slices.Equal(dst, x.want) || !slices.Equal(answers, x.answers) {
							t.Error("a batch has answers of another generation")
						}
						return nil
					}
					queries.Add(1)
					at := round % n
					a, err := s.Search(dst[:k], contexts[at*24:(at+1)*24], &exact.Request{LogSum: true})
					if a != x.answers[at] || !slices.Equal(dst[:k], x.want[at*k:(at+1)*k]) {
						t.Error("an answer is of another generation")
					}
					return err
				}); err != nil {
					t.Error(err)
				}
				queries.Add(1)
				if _, err := (pooled{pool}).TopK(dst[:k], contexts[:24]); err != nil {
					t.Error(err)
				}
				last := pool.Stats()
				if now := pool.Stats(); now.Queries < last.Queries || now.Scored < last.Scored {
					t.Errorf("counts fall: %+v after %+v", now, last)
				}
			}
		})
	}
	for i := range swaps {
		model, layer, next := open(i + 1)
		drained, err := pool.Swap(engine.Over(layer), engine.OfScreen(model))
		if err != nil {
			t.Error(err)
		}
		<-drained
		for j := range weights {
			weights[j] = float32(math.NaN())
		}
		weights = next
	}
	stop.Store(true)
	wg.Wait()
	if got, want := pool.Stats().Queries, queries.Load(); got != want {
		t.Errorf("found %d queries in all generations, expected %d", got, want)
	}
}

// Several goroutines may swap: one generation follows the other, and all but the last
// are drained.
func TestSwapsMayMeet(t *testing.T) {
	in := screentest.Ordinary(t)
	pool := poolOf(in, t)
	const swappers, each = 4, 10
	var channels sync.Map
	var wg sync.WaitGroup
	for range swappers {
		wg.Go(func() {
			for range each {
				drained, err := pool.Swap(engine.Over(in.Layer), engine.OfScreen(in.Model))
				if err != nil {
					t.Error(err)
				}
				if _, twice := channels.LoadOrStore(drained, true); twice {
					t.Error("two swaps ended the same generation")
				}
				<-drained
			}
		})
	}
	wg.Wait()
}

func TestARefusedSwapChangesNothing(t *testing.T) {
	in, other := screentest.Ordinary(t), screentest.Shape{Labels: 300, Dim: 24, Clusters: 9, Contexts: 1, Keep: 20, Seed: 2}.Instance(t)
	want := screentest.TopK(t, in.Searcher(t), 5, in.Context(0))
	for _, c := range []struct {
		name  string
		model *screening.Model
		layer *exact.Layer
		is    error  // nil for any
		text  string // of the error
	}{
		{"another layer", in.Model, other.Layer, exact.ErrLayer, "l2s: screen: fingerprint: found "},
		{"another model", other.Model, in.Layer, exact.ErrLayer, "l2s: screen: fingerprint: found "},
		{"no model", nil, in.Layer, nil, "l2s: index: found an empty one"},
		{"no layer", in.Model, nil, nil, "l2s: layer: found none"},
		{"a zero model", new(screening.Model), in.Layer, nil, "l2s: index: found an empty one"},
		{"a zero layer", in.Model, nil, nil, "l2s: layer: found none"},
		{"neither", nil, nil, nil, "l2s: layer: found none"},
	} {
		refused := func(t *testing.T, err error) {
			t.Helper()
			if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.HasPrefix(err.Error(), c.text) {
				t.Fatalf("found error %v, expected %v, %q", err, c.is, c.text)
			}
		}
		t.Run(c.name, func(t *testing.T) {
			p, err := engine.NewPool(engine.Over(c.layer), engine.OfScreen(c.model), engine.Options{})
			if refused(t, err); p != nil {
				t.Error("NewPool: found a pool and an error")
			}
			for _, before := range []string{"an idle searcher", "no searcher"} {
				t.Run(before, func(t *testing.T) {
					pool := poolOf(in, t)
					if before == "no searcher" { // after an error it is not used again
						pool.Do(func(*engine.Searcher) error { return errors.New("a fault") })
					}
					drained, err := pool.Swap(engine.Over(c.layer), engine.OfScreen(c.model))
					if refused(t, err); drained != nil {
						t.Error("found a channel and an error")
					}
					got := make([]exact.Prediction, 5)
					if _, err := (pooled{pool}).TopK(got, in.Context(0)); err != nil || !slices.Equal(got, want) {
						t.Errorf("after it: %v, %v, want %v", got, err, want)
					}
				})
			}
		})
	}
	if p, err := engine.NewPool(engine.Over(in.Layer), engine.OfScreen(in.Model), engine.Options{OverTail: true}); err == nil || p != nil {
		t.Error("NewPool: found no error for OverTail without a tail")
	}
}

// A query that panics, or fails as a read of a mapped file may, ends too: its generation drains,
// and its counts are kept. Its searcher may be in any state.
func TestASearcherIsUsedAgainUnlessItsQueryBroke(t *testing.T) {
	in := screentest.Ordinary(t)
	for _, c := range []struct {
		name  string
		f     func(s *engine.Searcher) error
		again bool
	}{
		{"no error", func(s *engine.Searcher) error { return nil }, true},
		{"a bad context", func(s *engine.Searcher) error { _, err := s.TopK(make([]exact.Prediction, 1), nil); return err }, true},
		{"a bad request", func(s *engine.Searcher) error {
			_, err := s.Search(nil, in.Context(0), &exact.Request{})
			return err
		}, true},
		{"another error", func(s *engine.Searcher) error { return errors.New("a fault") }, false},
		{"a panic", func(s *engine.Searcher) error { panic("a fault") }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			pool := poolOf(in, t)
			var first *engine.Searcher
			func() {
				defer func() {
					if got, want := recover() != nil, c.name == "a panic"; got != want {
						t.Errorf("a panic came: %v, want %v", got, want)
					}
				}()
				pool.Do(func(s *engine.Searcher) error {
					if _, err := s.TopK(make([]exact.Prediction, 5), in.Context(0)); err != nil {
						t.Error(err)
					}
					first = s
					return c.f(s)
				})
			}()
			if err := pool.Do(func(s *engine.Searcher) error {
				if again := s == first; again != c.again {
					t.Errorf("the searcher is used again: %v, want %v", again, c.again)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if !isClosed(swap(t, pool, in)) {
				t.Error("the old generation is in use")
			}
			if got := pool.Stats().Queries; got != 1 {
				t.Errorf("found %d queries, expected 1", got)
			}
		})
	}
}

func TestQueriesOfAPoolDoNotAllocate(t *testing.T) {
	in := screentest.Shelled(t)
	batch, answers := make([]exact.Prediction, 100*5), make([]exact.Answer, 100)
	i := 0
	next := func() []float32 { i = (i + 1) % in.N; return in.Context(i) }
	p := poolOf(in, t)
	for _, c := range []struct {
		name string
		f    func() error
	}{
		{"TopK", func() error { var dst [5]exact.Prediction; _, err := pooled{p}.TopK(dst[:], next()); return err }},
		{"Search", func() error {
			var dst [5]exact.Prediction
			_, err := pooled{p}.Search(dst[:], next(), &exact.Request{LogSum: true})
			return err
		}},
		{"SearchBatch", func() error {
			return pooled{p}.SearchBatch(batch, answers, in.Contexts[:100*in.Config.Dim], &exact.Request{})
		}},
		{"LogProb", func() error {
			_, err := pooled{p}.LogProb(next(), 7, 1)
			return err
		}},
		{"Do", func() error { return p.Do(func(s *engine.Searcher) error { next(); return nil }) }},
		{"Stats", func() error { p.Stats(); return nil }},
	} {
		warm := in.N // calls, in which scratch grows to the largest set
		if c.name == "SearchBatch" {
			warm = 1 // all calls are for the same contexts
		}
		var err error
		for range warm {
			err = c.f()
		}
		if n := simdtest.AllocsPerRun(50, func() { err = c.f() }); n != 0 || err != nil {
			t.Errorf("%s: %v allocations a call, %v", c.name, n, err)
		}
	}
}

// A swap makes the searchers, so that the first query after it need not.
func TestAQueryAfterASwapDoesNotAllocate(t *testing.T) {
	if simdtest.Race {
		t.Skip("memory that is announced to the race detector escapes to the heap")
	}
	in := screentest.Ordinary(t)
	p := poolOf(in, t)
	const runs = 20
	p.Do(func(*engine.Searcher) error { return p.Do(func(*engine.Searcher) error { return nil }) }) // two at once
	var least uint64 = math.MaxUint64
	for range runs { // other goroutines, of the runtime, may disturb some
		swap(t, p, in)
		var before, after runtime.MemStats
		var dst [2]exact.Prediction
		runtime.ReadMemStats(&before)
		p.Do(func(*engine.Searcher) error { _, err := pooled{p}.TopK(dst[:], in.Context(0)); return err })
		runtime.ReadMemStats(&after)
		least = min(least, after.Mallocs-before.Mallocs)
	}
	if least != 0 {
		t.Errorf("found %d allocations, expected none", least)
	}
}
