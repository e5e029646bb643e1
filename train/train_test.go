package train

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/stage"
	"github.com/learning-to-screen/l2s/internal/search/dense"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
	"github.com/learning-to-screen/l2s/train/internal/corpus"
	"github.com/learning-to-screen/l2s/train/internal/learn"
)

// naiveCell returns the cell of h by plain loops over the parts of the screen. Cuts are the cosines
// and leads of contexts: the smallest difference decides.
func naiveCell(m *screening.Model, h []float32) int {
	v, dim := m.Config().Clusters, len(h)
	first, best := -1, math.Inf(-1)
	for t := range m.Clusters() {
		if x := kernels.RefDot(v[t*dim:(t+1)*dim], h); first < 0 || x > best {
			first, best = t, x
		}
	}
	shell := 0
	own := v[first*dim : (first+1)*dim]
	lengths := math.Sqrt(kernels.RefDot(own, own) * kernels.RefDot(h, h))
	for _, cut := range m.Config().Shells {
		if lengths > 0 && kernels.RefDot(own, h)/lengths < cut-1e-9 {
			shell += m.Clusters()
		}
	}
	return shell + first
}

// precisionOf measures P@k of a screen on contexts: the share of the exact top-k among the
// candidates within a budget, with plain loops.
func precisionOf(t testing.TB, m *screening.Model, s synthetic, k int, budget float64) (found, candidates float64) {
	t.Helper()
	labels, err := labelsOver(t.Context(), s.layer, s.contexts, k, RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range s.n {
		list, err := m.Candidates(naiveCell(m, s.contexts[i*s.dim:(i+1)*s.dim]), budget)
		if err != nil {
			t.Fatal(err)
		}
		candidates += float64(len(list))
		for _, y := range labels[i*k : (i+1)*k] {
			if slices.Contains(list, y) {
				found++
			}
		}
	}
	return found / float64(s.n*k), candidates / float64(s.n)
}

func encoded(t testing.TB, m *screening.Model) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := m.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Every budget of the ladder is kept on the contexts of training, and the ladder's figures of
// held-out contexts are near the figures of other contexts.
func TestLadderForetellsOtherContexts(t *testing.T) {
	simdtest.Long(t)
	seen, other := clustersOf(t, 4000, 7), clustersOf(t, 4000, 8)
	for _, c := range []struct {
		name   string
		change func(o *Options)
	}{
		{"k-means alone", func(o *Options) { o.Iterations = 0 }},
		{"learned", func(o *Options) {}},
		{"shells", func(o *Options) { o.Shells = []float64{0.5, 0.1} }},
		{"shells, ids always", func(o *Options) {
			o.Clusters, o.Shells, o.Always = 12, []float64{0.4}, []uint32{199, 3, 3}
		}},
		{"counts", func(o *Options) { o.Geometry, o.Clusters = 0, 40 }},
		{"decided", func(o *Options) { o.Clusters = 0 }},
		{"other contexts to measure on", func(o *Options) { o.Validation = clustersOf(t, 1000, 9).contexts }},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := testOptions()
			o.Clusters, o.Budget, o.HeldOut = 12, 20, 1000
			c.change(&o)
			m, r, err := runOver(t.Context(), seen.layer, seen.contexts, o)
			if err != nil {
				t.Fatal(err)
			}
			if k, n := basisOf(m); k != o.K || n != 1000 || r.HeldOut != 1000 || m.Budget() != 20 || r.Options.Budget != 20 {
				t.Errorf("found figures of k %d on %d contexts, budget %v", k, n, m.Budget())
			}
			for _, x := range m.Ladder() {
				_, mean := precisionOf(t, m, seen, o.K, x.Budget)
				if mean > x.Budget+1e-9 {
					t.Errorf("budget %v: found %v candidates on the contexts of training", x.Budget, mean)
				}
				p, _ := precisionOf(t, m, other, o.K, x.Budget)
				if off := math.Abs(x.PrecisionK.Value - p); off > 2*(x.PrecisionK.High-x.PrecisionK.Low)+0.02 {
					t.Errorf("budget %v: the ladder has P@5 %+v, other contexts %v", x.Budget, x.PrecisionK, p)
				}
			}
			var stored Record
			if err := json.Unmarshal(m.Record(), &stored); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(&stored, r) {
				t.Errorf("the screen holds %+v, want %+v", stored, *r)
			}
			if m.Config().Fingerprint != seen.layer.Fingerprint() {
				t.Error("the screen does not carry the fingerprint of the layer")
			}
			c := m.Config()
			if always := c.Lists[0].IDs[:c.Always]; !slices.Equal(always, o.always()) {
				t.Errorf("found %v always, want %v", always, o.always())
			}
		})
	}
}

// The options of a record make the same screen again, though the run decided them.
func TestOptionsOfARecordMakeTheSameScreen(t *testing.T) {
	s := clustersOf(t, 3000, 3)
	o := testOptions()
	o.Clusters, o.Budget, o.HeldOut = 0, 0, 500
	m, r, err := runOver(t.Context(), s.layer, s.contexts, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Decisions) != 2 || r.Options.Clusters == 0 || len(r.Options.Shells) == 0 || r.Options.Budget == 0 {
		t.Fatalf("found %+v, expected decisions", r)
	}
	again, other, err := runOver(t.Context(), s.layer, s.contexts, r.Options)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(again.Config().Clusters, m.Config().Clusters) || !slices.Equal(again.Ladder(), m.Ladder()) || again.Budget() != m.Budget() {
		t.Error("found another screen")
	}
	for cell := range m.Cells() {
		if a, b := m.List(cell), again.List(cell); !slices.Equal(a.IDs, b.IDs) || !slices.Equal(a.Shares, b.Shares) {
			t.Fatalf("cell %d: found another list", cell)
		}
	}
	if !reflect.DeepEqual(other.Options, r.Options) {
		t.Errorf("found options %+v, want %+v", other.Options, r.Options)
	}
}

// The budget is the smallest of the ladder that reaches the target; if none does the run reports
// it.
func TestBudgetReachesTheTarget(t *testing.T) {
	s := clustersOf(t, 4000, 5)
	for _, c := range []struct {
		target  float64
		reached bool
	}{{0.9, true}, {0.97, true}, {0.9999999, false}} {
		o := testOptions()
		o.Budget, o.HeldOut, o.Target, o.Iterations = 0, 1000, c.target, 0
		if !c.reached {
			o.Geometry = 0 // so that no list has labels that training has not met
		}
		m, r, err := runOver(t.Context(), s.layer, s.contexts, o)
		if err != nil {
			t.Fatal(err)
		}
		warned := slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.Contains(w, "no budget reaches the target") })
		if warned == c.reached {
			t.Errorf("target %v: found the warnings %q", c.target, r.Warnings)
		}
		for _, x := range m.Ladder() {
			if reaches := x.PrecisionK.Value >= c.target; c.reached && (x.Budget < m.Budget() && reaches || x.Budget == m.Budget() && !reaches) {
				t.Errorf("target %v: found budget %v, though %v has P@5 %v", c.target, m.Budget(), x.Budget, x.PrecisionK.Value)
			}
		}
	}
}

// A screen that misses its target by far is an error, with the figures of other contexts; a run
// that accepts it continues from the checkpoint.
func TestATargetThatIsMissedByFar(t *testing.T) {
	simdtest.Long(t)
	const n, labels, dim = 1200, 6000, 32
	s := newSynthetic(t, 6, n, dim, labels, 10, 0.3)
	random := rand.New(rand.NewPCG(6, 7))
	for i := range s.contexts { // which have nothing in common
		s.contexts[i] = float32(random.NormFloat64())
	}
	for _, target := range []float64{0, 0.9} {
		o := DefaultOptions()
		o.Target, o.Iterations, o.Geometry, o.Clusters = target, 1, 0, 10
		o.Checkpoint = filepath.Join(t.TempDir(), "state")
		_, _, err := runOver(t.Context(), s.layer, s.contexts, o)
		if !errors.Is(err, ErrTarget) || !strings.Contains(err.Error(), "more contexts help") {
			t.Fatalf("target %v: found the error %v, expected ErrTarget", target, err)
		}
		stages := map[string]bool{}
		o.AnyPrecision, o.Progress = true, func(p Progress) { stages[p.Stage] = true }
		m, r, err := runOver(t.Context(), s.layer, s.contexts, o)
		if err != nil {
			t.Fatal(err)
		}
		if stages[stage.KMeans] || stages[stage.Learn] {
			t.Errorf("target %v: found the stages %v, expected the ones after the checkpoint", target, stages)
		}
		if !slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.Contains(w, "no budget reaches the target") }) {
			t.Errorf("target %v: found the warnings %q", target, r.Warnings)
		}
		// On other contexts of this kind the largest budget misses it too.
		whole := exact.NewSearcher(s.layer)
		x, err := l2s.NewSearcher(public(s.layer), index(m), l2s.Options{Budget: m.Ladder()[len(m.Ladder())-1].Budget})
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		const tries = 300
		for range tries {
			h := make([]float32, dim)
			for i := range h {
				h[i] = float32(random.NormFloat64())
			}
			var a [1]l2s.Prediction
			var b [1]exact.Prediction
			if _, err := x.TopK(a[:], h); err != nil {
				t.Fatal(err)
			}
			if _, err := whole.TopK(b[:], h); err != nil {
				t.Fatal(err)
			}
			if a[0].ID == b[0].ID {
				found++
			}
		}
		if p := float64(found) / tries; p > 0.9-far {
			t.Errorf("target %v: found P@1 %v on other contexts, expected a screen that misses it", target, p)
		}
		// Who names a budget has no target.
		o.AnyPrecision, o.Budget, o.Checkpoint = false, 50, ""
		if _, _, err := runOver(t.Context(), s.layer, s.contexts, o); err != nil {
			t.Errorf("target %v: found the error %v with a budget", target, err)
		}
	}
}

// Nothing is measured on held-out contexts that are equal to one to learn from; the geometry, with
// which contexts in use are compared, includes them. Repeats among held-out contexts are measured.
func TestRepeatsAreNotMeasuredOn(t *testing.T) {
	s := newSynthetic(t, 3, 900, 6, 40, 5, 0.3)
	const held = 200
	o := testOptions()
	o.HeldOut, o.Budget = held, 0
	pool, ids := corpus.Split(900, held)
	contexts := slices.Clone(s.contexts)
	row := func(i uint32) []float32 { return contexts[i*6:][:6] }
	copy(row(ids[3]), row(pool[0]))
	copy(row(ids[9]), row(pool[len(pool)-1]))
	copy(row(ids[17]), row(ids[16]))
	_, r, err := runOver(t.Context(), s.layer, contexts, o)
	if err != nil {
		t.Fatal(err)
	}
	if r.HeldOut != held-2 || r.LeftOut != 2 {
		t.Errorf("found %d contexts measured, %d left out, expected %d and 2", r.HeldOut, r.LeftOut, held-2)
	}
	for _, share := range r.Geometry.Cosine.Shares {
		if n := share * held; math.Abs(n-math.Round(n)) > 1e-9 {
			t.Errorf("found a bin of the geometry with %v of %d contexts", n, held)
		}
	}
	for _, i := range ids {
		copy(row(i), row(pool[0]))
	}
	if _, r, err := runOver(t.Context(), s.layer, contexts, o); err != nil || r.HeldOut != 0 || r.LeftOut != held || len(r.Warnings) != 1 || r.Geometry != nil {
		t.Errorf("found %d contexts measured, %d left out, warnings %q and error %v, expected 0, %d and a warning", r.HeldOut, r.LeftOut, r.Warnings, err, held)
	}
}

// Contexts of validation that are equal to one of training are left out and counted.
func TestValidationWithoutContextsOfTraining(t *testing.T) {
	s := newSynthetic(t, 3, 900, 6, 40, 5, 0.3)
	others := newSynthetic(t, 4, 200, 6, 40, 5, 0.3)
	o := testOptions()
	o.Validation = slices.Concat(s.contexts[60:120], others.contexts, s.contexts[:6])
	m, r, err := runOver(t.Context(), s.layer, s.contexts, o)
	if err != nil {
		t.Fatal(err)
	}
	if _, n := basisOf(m); n != 200 || r.HeldOut != 200 || r.LeftOut != 11 {
		t.Errorf("found %d contexts measured, %d left out, expected 200 and 11", n, r.LeftOut)
	}
	o.Validation = o.Validation[:7]
	if _, _, err := runOver(t.Context(), s.layer, s.contexts, o); err == nil || !strings.Contains(err.Error(), "validation: contexts: found 7 values") {
		t.Errorf("found error %v", err)
	}
}

// newDistracting returns data whose contexts have two parts, around different directions: the
// logits depend on the first part only, and the second is longer. k-means sees the second part
// first.
func newDistracting(t testing.TB, seed uint64, n int) synthetic {
	const half, labels = 8, 300
	first := newSynthetic(t, seed, n, half, labels, 12, 0.3)
	second := newSynthetic(t, seed+1, n, half, labels, 12, 0.3)
	weights := make([]float32, labels*2*half)
	for s := range labels {
		copy(weights[s*2*half:], dense.Weights(first.layer)[s*half:(s+1)*half])
	}
	layer, err := exact.NewLayer(kernels.Float32Rows(weights, 2*half), first.layer.Bias())
	if err != nil {
		t.Fatal(err)
	}
	contexts := make([]float32, n*2*half)
	for i := range n {
		h := contexts[i*2*half : (i+1)*2*half]
		copy(h, first.contexts[i*half:(i+1)*half])
		for j, x := range second.contexts[i*half : (i+1)*half] {
			h[half+j] = 1.5 * x
		}
	}
	return synthetic{layer, contexts, n, 2 * half}
}

// Learning must do better than the k-means it starts from, on contexts that
// neither has seen, with either estimator.
func TestLearningImprovesOnKMeans(t *testing.T) {
	simdtest.Long(t)
	const seen, unseen = 6000, 2000
	train := newDistracting(t, 12, seen+unseen)
	test := train
	train.n, test.n = seen, unseen
	train.contexts, test.contexts = train.contexts[:seen*train.dim], train.contexts[seen*train.dim:]
	opt := testOptions()
	opt.Clusters, opt.Budget, opt.Learning.Budget, opt.HeldOut, opt.Geometry = 16, 30, 30, 600, 0
	checkLearning(t, train, test, opt)
}

func checkLearning(t *testing.T, train, test synthetic, opt Options) {
	opt.Iterations = 0
	model, record, err := runOver(t.Context(), train.layer, train.contexts, opt)
	if err != nil {
		t.Fatal(err)
	}
	if record.Learning != nil {
		t.Errorf("k-means only, but there are alternations: %+v", record)
	}
	base, _ := precisionOf(t, model, test, opt.K, opt.Budget)
	opt.Iterations, opt.Learning.EpochFraction, opt.Learning.BatchSize = 5, 1, 64
	for _, c := range []struct {
		estimator  string
		multiplier float64
	}{{learn.GumbelST, 1.25}, {learn.GumbelST, 0}, {learn.Expected, 1.25}} {
		opt.Learning.Estimator, opt.Learning.Multiplier = c.estimator, c.multiplier
		model, record, err := runOver(t.Context(), train.layer, train.contexts, opt)
		if err != nil {
			t.Fatal(err)
		}
		learned, mean := precisionOf(t, model, test, opt.K, opt.Budget)
		t.Logf("%+v: P@5 %.4f against %.4f by k-means, L-bar %.1f, best alternation %d", c, learned, base, mean, record.Learning.Best)
		if learned < base+0.1 {
			t.Errorf("%+v: P@5 %.4f, k-means alone %.4f", c, learned, base)
		}
	}
}

// The same seed gives the same screen file, byte for byte, at each SIMD level
// and for any number of threads.
func TestEqualRunsGiveEqualBytes(t *testing.T) {
	s := newSynthetic(t, 13, 700, 19, 150, 12, 0.5)
	threads := []int{1, 3, 2}
	if testing.Short() {
		threads = threads[:2]
	}
	for _, c := range []struct {
		name      string
		estimator string
		change    func(o *Options)
	}{
		{"Gumbel-ST", learn.GumbelST, func(*Options) {}},
		{"expected", learn.Expected, func(o *Options) {}},
		{"decided, with a tail", learn.Expected, func(o *Options) {
			tail := DefaultTailOptions()
			o.Clusters, o.Budget, o.HeldOut, o.Tail = 0, 0, 250, &tail
		}},
		{"ids always", learn.GumbelST, func(o *Options) { o.Always = []uint32{149, 3} }},
		{"shells", learn.Expected, func(o *Options) { o.Shells = []float64{0.4, 0.1} }},
	} {
		opt := testOptions()
		opt.Learning.Estimator, opt.Clusters = c.estimator, 13
		c.change(&opt)
		var want []byte
		simdtest.EachLevel(t, func(t *testing.T) {
			for _, n := range threads {
				opt.Threads = n
				model, _, err := runOver(t.Context(), s.layer, s.contexts, opt)
				if err != nil {
					t.Fatal(err)
				}
				got := encoded(t, model)
				if want == nil {
					want = got
				}
				if !bytes.Equal(got, want) {
					t.Errorf("%s, %d threads: the screen differs", c.name, n)
				}
			}
		})
		opt.Seed++
		model, _, err := runOver(t.Context(), s.layer, s.contexts, opt)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(encoded(t, model), want) {
			t.Errorf("%s: another seed gives the same screen", c.name)
		}
	}
}

func TestRunLeavesTheContextsAlone(t *testing.T) {
	s := newSynthetic(t, 14, 500, 6, 50, 5, 0.5)
	before := slices.Clone(s.contexts)
	if _, _, err := runOver(t.Context(), s.layer, s.contexts, testOptions()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(before, s.contexts) {
		t.Error("the contexts were written to")
	}
}

func TestRunOnDegenerateData(t *testing.T) {
	base := newSynthetic(t, 15, 400, 6, 50, 5, 0.5)
	with := func(change func(s *synthetic, o *Options)) (synthetic, Options) {
		s, o := base, testOptions()
		s.contexts = slices.Clone(base.contexts)
		change(&s, &o)
		return s, o
	}
	weights, bias := slices.Clone(dense.Weights(base.layer)), slices.Clone(base.layer.Bias())
	clear(weights[7*6 : 8*6])
	bias[7] = -1e6
	without7, err := exact.NewLayer(kernels.Float32Rows(weights, 6), bias) // no context has label 7
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name   string
		change func(s *synthetic, o *Options)
		exact  bool // every label of training must be in its set
	}{
		{"duplicates", func(s *synthetic, o *Options) { copy(s.contexts[200*6:], s.contexts[:200*6]) }, false},
		{"all contexts equal", func(s *synthetic, o *Options) {
			for i := range s.n {
				copy(s.contexts[i*6:], s.contexts[:6])
			}
		}, true},
		{"all contexts zero", func(s *synthetic, o *Options) { clear(s.contexts) }, true},
		{"some contexts zero", func(s *synthetic, o *Options) { clear(s.contexts[:100*6]) }, false},
		{"a label that never occurs", func(s *synthetic, o *Options) {
			s.layer = without7
			o.Budget, o.Learning.Lambda = 50, 0 // room for all that occur
		}, true},
		{"a label that never occurs, always", func(s *synthetic, o *Options) {
			s.layer = without7
			o.Always = []uint32{7}
		}, false},
		{"fewer directions than clusters", func(s *synthetic, o *Options) {
			for i := 3; i < s.n; i++ {
				copy(s.contexts[i*6:(i+1)*6], s.contexts[i%3*6:])
			}
		}, true},
		{"one cluster", func(s *synthetic, o *Options) { o.Clusters = 1 }, false},
		{"a cluster per context", func(s *synthetic, o *Options) { s.n, o.Clusters, o.HeldOut, s.contexts = 10, 10, 0, s.contexts[:60] }, false},
		{"one context", func(s *synthetic, o *Options) { s.n, o.Clusters, o.HeldOut, s.contexts = 1, 1, 0, s.contexts[:6] }, true},
		{"budget of all labels", func(s *synthetic, o *Options) { o.Budget, o.Learning.Lambda = 50, 0 }, true},
		{"budget of k", func(s *synthetic, o *Options) { o.Budget = 5 }, false},
		{"k of all labels", func(s *synthetic, o *Options) { o.K, o.Budget = 50, 50 }, true},
		{"k of 1", func(s *synthetic, o *Options) { o.K = 1 }, false},
		{"batch above the contexts", func(s *synthetic, o *Options) { o.Learning.BatchSize = 10000 }, false},
		{"nothing held out", func(s *synthetic, o *Options) { o.HeldOut = 0 }, false},
		{"half held out", func(s *synthetic, o *Options) { o.HeldOut = 200 }, false},
		{"several epochs", func(s *synthetic, o *Options) { o.Learning.EpochFraction = 2.5 }, false},
		{"decided, nothing held out", func(s *synthetic, o *Options) { o.HeldOut, o.Clusters, o.Budget = 0, 0, 0 }, false},
		{"decided", func(s *synthetic, o *Options) { o.Clusters, o.Budget, o.HeldOut = 0, 0, 200 }, false},
		{"decided on zeros", func(s *synthetic, o *Options) { o.Clusters, o.Budget, o.HeldOut = 0, 0, 200; clear(s.contexts) }, true},
		{"validation by contexts of training", func(s *synthetic, o *Options) { o.Validation = s.contexts }, false},
		{"no iterations", func(s *synthetic, o *Options) { o.Iterations = 0 }, false},
		{"gamma and lambda of 0", func(s *synthetic, o *Options) { o.Learning.Gamma, o.Learning.Lambda = 0, 0 }, false},
		{"always all", func(s *synthetic, o *Options) { o.Always, o.Budget = ascending(50), 50 }, true},
		{"shells of one cluster", func(s *synthetic, o *Options) { o.Clusters, o.Shells = 1, []float64{0.5} }, false},
		{"shells of zeros", func(s *synthetic, o *Options) { o.Shells = []float64{0.5}; clear(s.contexts) }, true},
		{"shells of less than a context", func(s *synthetic, o *Options) { o.Shells = []float64{0.3, 1e-9} }, false},
		{"a cluster per context in shells", func(s *synthetic, o *Options) {
			s.n, o.Clusters, o.HeldOut, s.contexts, o.Shells = 10, 10, 0, s.contexts[:60], []float64{0.4}
		}, false},
		{"tiny contexts", func(s *synthetic, o *Options) {
			for i := range s.contexts {
				s.contexts[i] *= 1e-30
			}
		}, false},
		{"subnormal contexts", func(s *synthetic, o *Options) {
			for i := range s.contexts {
				s.contexts[i] *= 1e-42
			}
		}, false},
		{"huge contexts", func(s *synthetic, o *Options) {
			for i := range s.contexts {
				s.contexts[i] *= 1e30
			}
		}, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s, opt := with(c.change)
			model, record, err := runOver(t.Context(), s.layer, s.contexts, opt)
			if err != nil {
				t.Fatal(err)
			}
			budget := model.Budget()
			pk, mean := precisionOf(t, model, s, opt.K, budget)
			if mean > budget+1e-9 || record.Options.Budget != budget {
				t.Errorf("L-bar %v; the record has %v, the budget is %v", mean, record.Options.Budget, budget)
			}
			if c.exact && pk != 1 {
				t.Errorf("P@k %v on the contexts of training, want 1", pk)
			}
		})
	}
}

func TestRunRefuses(t *testing.T) {
	s := newSynthetic(t, 16, 100, 6, 50, 5, 0.5)
	nan, inf := math.NaN(), math.Inf(1)
	cases := []struct {
		want   string
		change func(o *Options)
	}{
		{"clusters: found -1", func(o *Options) { o.Clusters = -1 }},
		{"clusters: found 101, expected 1 to the number of contexts, 100, or 0", func(o *Options) { o.Clusters = 101 }},
		{"shells[0]: found 1, expected descending shares above 0 and below 1", func(o *Options) { o.Shells = []float64{1} }},
		{"shells[0]: found NaN", func(o *Options) { o.Shells = []float64{nan} }},
		{"shells: found 17 shares, expected at most 16", func(o *Options) { o.Shells = slices.Repeat([]float64{0.5}, 17) }},
		{"shells[1]: found 0.5", func(o *Options) { o.Shells = []float64{0.5, 0.5} }},
		{"shells: found 1 with geometry 0", func(o *Options) { o.Shells, o.Geometry = []float64{0.5}, 0 }},
		{"k: found 0", func(o *Options) { o.K = 0 }},
		{"k: found 51", func(o *Options) { o.K = 51 }},
		{"budget: found 4.5, expected at least k = 5", func(o *Options) { o.Budget = 4.5 }},
		{"budget: found 51, expected at most 50, the number of labels", func(o *Options) { o.Budget = 51 }},
		{"budget: found NaN", func(o *Options) { o.Budget = nan }},
		{"budget: found +Inf", func(o *Options) { o.Budget = inf }},
		{"target: found 1", func(o *Options) { o.Target = 1 }},
		{"target: found NaN", func(o *Options) { o.Target = nan }},
		{"geometry: found -1", func(o *Options) { o.Geometry = -1 }},
		{"learning: budget: found -1", func(o *Options) { o.Learning.Budget = -1 }},
		{"learning: lambda: found -1", func(o *Options) { o.Learning.Lambda = -1 }},
		{"learning: lambda: found NaN", func(o *Options) { o.Learning.Lambda = nan }},
		{"learning: gamma: found -1", func(o *Options) { o.Learning.Gamma = -1 }},
		{"learning: gamma: found +Inf", func(o *Options) { o.Learning.Gamma = inf }},
		{"learning: multiplier: found -0.5", func(o *Options) { o.Learning.Multiplier = -0.5 }},
		{"iterations: found -1", func(o *Options) { o.Iterations = -1 }},
		{`learning: estimator: found best, expected one of ["gumbel-st" "expected"]`, func(o *Options) { o.Learning.Estimator = "best" }},
		{"k-means iterations: found 0", func(o *Options) { o.KMeansIterations = 0 }},
		{"held out: found 51, expected at most 50, half of the contexts, or -1", func(o *Options) { o.HeldOut = 51 }},
		{"held out: found -2", func(o *Options) { o.HeldOut = -2 }},
		{"learning: epoch fraction: found 0", func(o *Options) { o.Learning.EpochFraction = 0 }},
		{"learning: batch size: found 0", func(o *Options) { o.Learning.BatchSize = 0 }},
		{"learning: rate: found 0", func(o *Options) { o.Learning.Rate = 0 }},
		{"learning: confidence: found 1", func(o *Options) { o.Learning.Confidence = 1 }},
		{"checkpoint: missing/folder/x: cannot be written", func(o *Options) { o.Checkpoint = "missing/folder/x" }},
		{"threads: found -2", func(o *Options) { o.Threads = -2 }},
		{"always[1]: found id 50, expected below 50", func(o *Options) { o.Always = []uint32{1, 50} }},
		{"budget: found 12, expected at least 13", func(o *Options) { o.Always = ascending(13) }},
	}
	for _, c := range cases {
		t.Run(c.want, func(t *testing.T) {
			opt := testOptions()
			opt.HeldOut = 10
			c.change(&opt)
			model, record, err := runOver(t.Context(), s.layer, s.contexts, opt)
			if err == nil || model != nil || record != nil {
				t.Fatalf("found error %v, want one", err)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %q does not contain %q", err, c.want)
			}
		})
	}
	if _, _, err := runOver(t.Context(), s.layer, []float32(nil), testOptions()); err == nil {
		t.Error("no contexts: no error")
	}
	if _, _, err := runOver(t.Context(), s.layer, s.contexts[:7], testOptions()); err == nil {
		t.Error("part of a row: no error")
	}
	few := testOptions()
	few.HeldOut = 10
	bad := slices.Clone(s.contexts)
	bad[6*42+1] = float32(inf)
	if _, _, err := runOver(t.Context(), s.layer, bad, few); err == nil || !strings.Contains(err.Error(), "context 42") {
		t.Errorf("infinite context: found error %v", err)
	}
}

func TestRunThatOverflowsNamesTheLearningRate(t *testing.T) {
	s := newSynthetic(t, 16, 100, 6, 50, 5, 0.5)
	opt := testOptions()
	opt.HeldOut, opt.Learning.Rate = 10, 1e308
	if _, _, err := runOver(t.Context(), s.layer, s.contexts, opt); err == nil || !strings.Contains(err.Error(), "learning rate") {
		t.Errorf("found error %v", err)
	}
}

// A run cancelled in any stage soon returns the context's error, and nothing else.
func TestRunStopsWhenCancelled(t *testing.T) {
	s := newSynthetic(t, 17, 3000, 8, 100, 8, 0.5)
	for _, stage := range []string{stage.Labels, stage.KMeans, stage.Learn, stage.Assign} {
		t.Run(stage, func(t *testing.T) {
			opt := testOptions()
			opt.Iterations, opt.Threads = 100000, 4 // never finishes; each thread may report once more
			ctx, cancel := context.WithCancelCause(t.Context())
			after := 0
			opt.Progress = func(p Progress) {
				if ctx.Err() != nil {
					after++
				} else if p.Stage == stage && p.Done > 0 {
					cancel(nil)
				}
			}
			model, record, err := runOver(ctx, s.layer, s.contexts, opt)
			if !errors.Is(err, context.Canceled) || model != nil || record != nil {
				t.Fatalf("found error %v, want context.Canceled", err)
			}
			if after > 20 {
				t.Errorf("%d reports after the cancellation", after)
			}
		})
	}
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	if _, _, err := runOver(ctx, s.layer, s.contexts, testOptions()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("past deadline: found error %v", err)
	}
}

func TestRunReportsProgress(t *testing.T) {
	s := newSynthetic(t, 18, 1000, 8, 100, 8, 0.5)
	opt := testOptions()
	type key struct {
		stage     string
		iteration int
	}
	finished, parts := map[key]bool{}, map[string]bool{}
	messages := 0
	var last Progress
	opt.Progress = func(p Progress) {
		if p.Done > p.Total {
			t.Errorf("found %+v", p)
		}
		if p.Stage == last.Stage && p.Part == last.Part && p.Iteration == last.Iteration && p.Done < last.Done {
			t.Errorf("found %+v after %+v", p, last)
		}
		if p.Done == p.Total {
			finished[key{p.Stage, p.Iteration}] = true
			parts[p.Stage+": "+p.Part+": "+p.Unit] = true
		}
		if p.Message != "" {
			messages++
		}
		last = p
	}
	_, record, err := runOver(t.Context(), s.layer, s.contexts, opt)
	if err != nil {
		t.Fatal(err)
	}
	want := []key{{stage.Labels, 0}, {stage.Assign, 0}, {stage.Measure, 0}, {stage.Lists, 0}}
	for i := range record.KMeans {
		want = append(want, key{stage.KMeans, i + 1})
	}
	for i := range opt.Iterations {
		want = append(want, key{stage.Learn, i + 1}, key{stage.Assign, i + 1})
	}
	for _, k := range want {
		if !finished[k] {
			t.Errorf("%v was not reported to its end", k)
		}
	}
	// Each part of the long stages has its own end, and names its unit.
	for _, part := range []string{"means: contexts", "labels near the means: clusters", "variances: labels", "shares: clusters"} {
		for _, stage := range []string{stage.Measure + ": ", stage.Lists + ": "} {
			if !parts[stage+part] {
				t.Errorf("%s%s was not reported to its end", stage, part)
			}
		}
	}
	if least := len(record.KMeans) + opt.Iterations + 1; messages < least {
		t.Errorf("found %d messages, want at least %d", messages, least)
	}
}
