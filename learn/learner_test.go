package learn

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/ground/stage"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
	"github.com/learning-to-screen/l2s/internal/tests/synthetic"
	"github.com/learning-to-screen/l2s/train"
)

const testDim = 24

var testData = sync.OnceValue(func() *synthetic.Data { return synthetic.Structured(1500, testDim, 20, 12000, 1) })

// testOptions are for small layers, and a target that they reach.
func testOptions(events chan<- Event) Options {
	o := train.DefaultOptions()
	o.Clusters, o.Iterations, o.Tail, o.Target = 20, 0, nil, 0.98
	return Options{Bytes: 8 << 20, CPU: 1, Audit: 1, Least: 3000, Train: &o, Event: func(e Event) { events <- e }}
}

// exactly is a searcher without an index.
func exactly(t testing.TB, l *l2s.Layer) *l2s.Searcher {
	s, err := l2s.NewSearcher(l, nil, l2s.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func budgetOf(x *l2s.Index) float64 {
	steps, normal := x.Steps()
	return steps[normal].Budget
}

func largestBudget(x *l2s.Index) float64 {
	steps, _ := x.Steps()
	return steps[len(steps)-1].Budget
}

func newTest(t *testing.T, layer *l2s.Layer, o Options) *Learner {
	t.Helper()
	l, err := New(layer, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// ask asks about contexts, each changed, until an event of the kind comes.
func ask(t *testing.T, l *Learner, events <-chan Event, kind string, change func(h []float32)) (e Event, queries int) {
	t.Helper()
	data := testData()
	top, h := make([]l2s.Prediction, 3), make([]float32, testDim)
	for ; ; queries++ {
		copy(h, data.Context(queries%data.Len()))
		for i := range h {
			h[i] *= 1 + 1e-3*rand.Float32() // so that no context comes twice
		}
		change(h)
		if _, err := l.TopK(top, h); err != nil {
			t.Fatal(err)
		}
		if queries%64 == 0 {
			runtime.Gosched()
			// The goroutine of the audit tells of an alarm: no query comes before it has its turn.
			for kind == unlearnt && l.Screened() && len(l.Audit().Report().Alarms) > 0 {
				time.Sleep(time.Millisecond)
			}
		}
		select {
		case e := <-events:
			if e.Text == "" {
				t.Errorf("found the event %+v without a text", e)
			}
			if e.Kind == kind {
				return e, queries
			}
		default:
		}
	}
}

func same([]float32) {}

// A learner answers exactly, then by a screen, exactly again when contexts change, and by a screen
// of the new ones.
func TestALearnerLearnsAndUnlearns(t *testing.T) {
	events := make(chan Event, 1000)
	o := testOptions(events)
	o.Keep = filepath.Join(t.TempDir(), "m.l2s")
	kept := filepath.Join(t.TempDir(), "kept.l2s")
	if os.Symlink(kept, o.Keep) != nil { // on systems without links
		kept = o.Keep
	}
	l := newTest(t, testData().Layer, o)
	if l.Screened() {
		t.Fatal("found a screen at the beginning")
	}
	if e, _ := ask(t, l, events, trains, same); e.Contexts < 3000 || !strings.HasPrefix(e.Text, stage.KMeans+", after ") {
		t.Errorf("found %+v, expected the first stage after the labels, which came with the answers", e)
	}
	e, _ := ask(t, l, events, answering, same)
	if e.Contexts < 3000 || e.PrecisionK < 0.98 || !l.Screened() {
		t.Fatalf("found %+v, expected a screen of the target", e)
	}
	a, err := l.pool.Search(make([]l2s.Prediction, 3), testData().Context(0), l2s.Request{})
	if err != nil || a.Exact {
		t.Errorf("found %+v, %v, expected an answer of the screen", a, err)
	}
	order := rand.New(rand.NewPCG(1, 1)).Perm(testDim)
	permuted := func(h []float32) {
		was := slices.Clone(h)
		for i, j := range order {
			h[i] = was[j]
		}
	}
	if ask(t, l, events, unlearnt, permuted); l.Screened() { // how many queries pass before depends on the scheduler
		t.Error("found a screen after its alarm")
	}
	if exists(kept) {
		t.Error("found the file of a screen that was given up")
	}
	if e, _ := ask(t, l, events, answering, permuted); !l.Screened() {
		t.Errorf("found no screen after %+v", e)
	}
}

// Each stage of a training is reported once, also stages that take turns.
func TestStagesAreToldOnce(t *testing.T) {
	var stages []string
	done := make(chan Event, 1000)
	o := testOptions(done)
	o.Train.Iterations = 3
	tell, ended := o.Event, false
	o.Event = func(e Event) {
		if e.Kind == trains && !ended { // the next training may begin before Close
			stage, _, _ := strings.Cut(e.Text, ", after ")
			stages = append(stages, stage)
		}
		ended = ended || e.Kind == answering
		tell(e)
	}
	l := newTest(t, testData().Layer, o)
	ask(t, l, done, answering, same)
	l.Close()
	want := []string{stage.KMeans, stage.Assign, stage.Learn, stage.Assign, stage.Measure, stage.Lists}
	for each := range slices.Chunk(stages, len(want)) {
		if !slices.Equal(each, want) {
			t.Errorf("found the stages %q, expected %q of each training", stages, want)
		}
	}
	if len(stages) == 0 {
		t.Errorf("found no stage, expected %q", want)
	}
}

// question is a request for the k best labels.
type question struct {
	k int
	l2s.Request
}

// Without a screen all answers come from the exact layer.
func TestAnswersAreExactAtFirst(t *testing.T) {
	data := testData()
	l := newTest(t, data.Layer, testOptions(make(chan Event, 1000)))
	by := exactly(t, data.Layer)
	for i, req := range []question{{k: 1}, {3, l2s.Request{LogSum: true}}, {k: 5}, {9, l2s.Request{Temperature: 0.5, LogSum: true}}, {2, l2s.Request{Among: l2s.Only([]uint32{3, 17, 40})}}, {2, l2s.Request{Biases: []l2s.Bias{{ID: 7, Add: 3}}}}, {k: 1500}} {
		got, want := make([]l2s.Prediction, req.k), make([]l2s.Prediction, req.k)
		a, err := l.pool.Search(got, data.Context(i), req.Request)
		b, failed := by.Search(want, data.Context(i), req.Request)
		if a != b || err != nil || failed != nil || !slices.Equal(got, want) {
			t.Errorf("%+v: found %+v %v %v, expected %+v %v", req, a, got, err, b, want)
		}
	}
	for k := 1; k < 9; k++ {
		got, want := make([]l2s.Prediction, k), make([]l2s.Prediction, k)
		n, err := l.TopK(got, data.Context(k))
		if _, failed := by.TopK(want, data.Context(k)); n != k || err != nil || failed != nil || !slices.Equal(got, want) {
			t.Errorf("k %d: found %v, %v, expected %v", k, got, err, want)
		}
	}
	for _, k := range []int{0, 1501} {
		if _, err := l.TopK(make([]l2s.Prediction, k), nil); !errors.Is(err, l2s.ErrContext) && !errors.Is(err, l2s.ErrRequest) {
			t.Errorf("k %d, no context: found %v, expected a refusal", k, err)
		}
	}
	if n, err := l.TopK(nil, data.Context(0)); n != 0 || !errors.Is(err, l2s.ErrRequest) {
		t.Errorf("no labels: found %d, %v, expected a refusal", n, err)
	}
	if n := l.Kept(); n != 8 {
		t.Errorf("found %d contexts kept, expected the contexts of 8 answers", n)
	}
	for i, known := range l.contexts.since(0).Known {
		if !known {
			t.Errorf("context %d: found no labels", i)
		}
	}
}

// A kept screen is opened at the next start, if it belongs to the layer.
// Any request has the answer of the exact layer at first, and labels that an answer does not have are not learned.
func TestRequestsAreAnsweredAsTheLayerDoes(t *testing.T) {
	data := testData()
	o := testOptions(make(chan Event, 1000))
	o.Least, o.Bytes = 12000, 64<<20
	l := newTest(t, data.Layer, o)
	exact := exactly(t, data.Layer)
	requests := []question{{1, l2s.Request{Within: 0.5}}, {4, l2s.Request{Within: 0.5}}, {5, l2s.Request{Within: 0.5}}, {8, l2s.Request{Within: 1e-6}}, {k: 3}, {4, l2s.Request{LogSum: true}}, {8, l2s.Request{LogSum: true}}}
	for i := range 700 {
		req, h := requests[i%len(requests)], data.Context(i)
		got, want := make([]l2s.Prediction, req.k), make([]l2s.Prediction, req.k)
		a, err := l.Search(got, h, req.Request)
		if err != nil {
			t.Fatal(err)
		}
		b, err := exact.Search(want, h, req.Request)
		if err != nil {
			t.Fatal(err)
		}
		if a.Count != b.Count || a.LogSum != b.LogSum || !slices.Equal(got[:a.Count], want[:b.Count]) {
			t.Fatalf("%+v: found %v and the log-sum %v, expected %v and %v", req, got[:a.Count], a.LogSum, want[:b.Count], b.LogSum)
		}
	}
	s := l.contexts.since(0)
	k, best := o.Train.K, make([]l2s.Prediction, o.Train.K)
	known := 0
	for i, is := range s.Known {
		if !is {
			continue
		}
		known++
		if _, err := exact.TopK(best, widen(s.Contexts[i*testDim:(i+1)*testDim])); err != nil {
			t.Fatal(err)
		}
		ids := s.Labels[i*k : (i+1)*k]
		found := 0
		for _, p := range best {
			if slices.Contains(ids, p.ID) {
				found++
			}
		}
		if sorted := slices.Sorted(slices.Values(ids)); found < k-1 || len(slices.Compact(sorted)) != k { // float16 may change one
			t.Fatalf("context %d: found the labels %v learned, expected %v", i, ids, best)
		}
	}
	if known == 0 || known == len(s.Known) {
		t.Errorf("found labels of %d of %d contexts, expected some", known, len(s.Known))
	}
}

func TestAScreenIsKept(t *testing.T) {
	events := make(chan Event, 1000)
	o := testOptions(events)
	o.Keep = filepath.Join(t.TempDir(), "m.l2s")
	l := newTest(t, testData().Layer, o)
	learnt, _ := ask(t, l, events, answering, same)
	l.Close()
	for len(events) > 0 { // it may have begun another training, and ended it
		if e := <-events; e.Kind == answering {
			learnt = e
		}
	}
	o.Least /= 2
	opened := newTest(t, testData().Layer, o)
	if e := <-events; e.Kind != tried || !strings.Contains(e.Text, o.Keep) || e.Contexts != learnt.Contexts || opened.Screened() {
		t.Errorf("found the event %+v, expected a trial of the screen that was opened, of %d contexts", e, learnt.Contexts)
	}
	if e, queries := ask(t, opened, events, answering, same); e.Budget == 0 || e.Contexts != learnt.Contexts || queries < o.Least/2-1 {
		t.Errorf("found the event %+v after %d queries, expected one of the screen that was opened, after %d", e, queries, o.Least/2)
	} else if next := opened.state.Load().trainAt; next != uint64(learnt.Contexts) {
		t.Errorf("found a training after %d contexts, expected the number that the screen was learned from", next)
	}
	opened.Close()
	for len(events) > 0 {
		<-events
	}
	other := newTest(t, synthetic.Structured(1500, testDim, 20, 10, 2).Layer, o)
	if e := <-events; e.Kind != failed || other.Screened() {
		t.Errorf("another layer: found %+v, expected that the screen is refused", e)
	}
	if err := os.WriteFile(o.Keep, []byte("weights"), 0o644); err != nil {
		t.Fatal(err)
	}
	if l, err := New(testData().Layer, o); err == nil || !strings.Contains(err.Error(), o.Keep) {
		l.Close()
		t.Errorf("another file: found the error %v, expected one that names it: a screen would take its place", err)
	}
}

// A screen that was kept answers only if it reaches today's target on new contexts: a screen whose
// file claims too much does not answer, and a screen that was learned for a lower target answers
// with a larger budget.
func TestAKeptScreenIsTried(t *testing.T) {
	data := testData()
	r := rand.New(rand.NewPCG(1, 2))
	sure := screening.Estimate{Value: 1, Low: 1, High: 1}
	c := screening.Config{Dim: testDim, Labels: data.Layer.Labels(), Clusters: make([]float32, 8*testDim), Lists: make([]screening.List, 8), K: 5, HeldOut: 4000,
		Ladder: []screening.Rung{{Budget: 50, Precision1: sure, PrecisionK: sure}}}
	for i := range c.Clusters {
		c.Clusters[i] = float32(r.NormFloat64())
	}
	for i := range c.Lists {
		for _, id := range r.Perm(c.Labels)[:50] {
			c.Lists[i].IDs = append(c.Lists[i].IDs, uint32(id))
		}
		slices.Sort(c.Lists[i].IDs)
	}
	poor, err := synthetic.Screen(c)
	if err != nil {
		t.Fatal(err)
	}
	low := train.DefaultOptions()
	low.Clusters, low.Iterations, low.Tail, low.Budget = 20, 0, nil, 12
	lower, _, err := train.Run(t.Context(), data.Layer, l2s.Float32(data.Contexts[:3000*testDim], data.Layer.Dim()), low)
	if err != nil {
		t.Fatal(err)
	}
	for name, kept := range map[string]*l2s.Index{"poor": poor, "of a lower target": lower} {
		t.Run(name, func(t *testing.T) {
			events := make(chan Event, 1000)
			o := testOptions(events)
			o.Train.Target, o.Keep = 0.995, filepath.Join(t.TempDir(), "m.l2s")
			if err := kept.Save(o.Keep); err != nil {
				t.Fatal(err)
			}
			l := newTest(t, data.Layer, o)
			exact := exactly(t, data.Layer)
			want, top := make([]l2s.Prediction, 3), make([]l2s.Prediction, 3)
			for i, ended := 0, false; !ended; i++ {
				exactly := !l.Screened()
				h := data.Context(i % data.Len())
				if _, err := l.TopK(top, h); err != nil {
					t.Fatal(err)
				}
				if _, err := exact.TopK(want, h); err != nil || exactly && !l.Screened() && !slices.Equal(top, want) {
					t.Fatalf("query %d: found %v, expected %v", i, top, want)
				}
				time.Sleep(10 * time.Microsecond)
				select {
				case e := <-events:
					ended = e.Kind == declined || e.Kind == answering
					if answers := name != "poor"; ended && (e.Kind == answering) != answers || answers && ended && (e.PrecisionK < 0.995 || e.Budget <= budgetOf(kept)) {
						t.Fatalf("found %+v, expected that the screen is declined, or answers with a budget above %v that reaches the target", e, budgetOf(kept))
					}
				default:
				}
			}
		})
	}
}

// A context that no reservoir holds is in no training and no trial: the exact layer answers it,
// also if a screen answers other contexts.
func TestContextsThatAreNotKeptAreAnsweredExactly(t *testing.T) {
	events := make(chan Event, 1000)
	l := newTest(t, testData().Layer, testOptions(events))
	ask(t, l, events, answering, same)
	exact := exactly(t, testData().Layer)
	for i := range 50 {
		for _, scale := range []float32{0, 1e-38, 1e-7, 1e-6, 1e6, 1e18, 1e36} {
			h := slices.Clone(testData().Context(i))
			for j := range h {
				h[j] *= scale
			}
			if l.contexts.mu.TryLock() {
				if narrow(make([]uint16, len(h)), h) && scale >= 1e-5 {
					t.Fatalf("found a context times %v that is kept: it tests nothing", scale)
				}
				l.contexts.mu.Unlock()
			}
			got, want := make([]l2s.Prediction, 5), make([]l2s.Prediction, 5)
			a, err := l.Search(got, h, l2s.Request{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := exact.TopK(want, h); err != nil || l.Screened() && !a.Exact || !slices.Equal(got, want) {
				t.Fatalf("context %d times %v: found %v, exactly: %v, expected %v from the layer", i, scale, got, a.Exact, want)
			}
		}
	}
	zeros := func(h []float32) {
		if rand.IntN(2) == 0 {
			clear(h)
		}
	}
	top, h := make([]l2s.Prediction, 3), make([]float32, testDim)
	for i := range 30000 {
		copy(h, testData().Context(i%testData().Len()))
		zeros(h)
		if _, err := l.TopK(top, h); err != nil {
			t.Fatal(err)
		}
		if i%64 == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	for len(events) > 0 {
		if e := <-events; e.Kind == unlearnt {
			t.Errorf("found %+v, expected no alarm: the contexts that are not kept are answered exactly", e)
		}
	}
}

// learned is a screen of the test's contexts, made once, which misses some labels.
var learned = sync.OnceValues(func() (*l2s.Index, error) {
	o := testOptions(nil).Train
	o.K = 5
	m, _, err := train.Run(context.Background(), testData().Layer, l2s.Float32(testData().Contexts[:6000*testDim], testDim), *o)
	return m, err
})

// A trial counts queries, not contexts alone: a context that comes again and again, and that the
// screen misses, keeps the screen from answering, although it is only one context, and a context of
// training.
func TestARepeatedContextThatAScreenMisses(t *testing.T) {
	model, err := learned()
	if err != nil {
		t.Fatal(err)
	}
	data := testData()
	by, err := l2s.NewSearcher(data.Layer, model, l2s.Options{})
	if err != nil {
		t.Fatal(err)
	}
	exact, missed := exactly(t, data.Layer), []float32(nil)
	top, best := make([]l2s.Prediction, 5), make([]l2s.Prediction, 5)
	for i := 0; i < data.Len() && missed == nil; i++ {
		h := data.Context(i)
		a, err := by.Search(top, h, l2s.Request{Budget: largestBudget(model)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := exact.TopK(best, h); err != nil {
			t.Fatal(err)
		}
		if !a.Exact && !slices.Equal(top, best) {
			missed = h
		}
	}
	if missed == nil {
		t.Fatal("found no context that the screen misses")
	}
	events := make(chan Event, 1000)
	o := testOptions(events)
	l, err := newLearner(data.Layer, o)
	if err != nil {
		t.Fatal(err)
	}
	l.run = func(context.Context, sample, train.Options) (*l2s.Index, error) { return model, nil }
	if err := l.begin(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	often := false
	repeat := func(h []float32) {
		if often = !often; often {
			copy(h, missed)
		}
	}
	for range 2 {
		e, _ := ask(t, l, events, declined, func(h []float32) {
			repeat(h)
			if l.Screened() {
				t.Fatal("found a screen that answers half of the queries wrong")
			}
		})
		if !strings.Contains(e.Text, "queries") || !(e.PrecisionK < 0.92) {
			t.Errorf("found %+v, expected a precision that counts the repeated context", e)
		}
	}
	if e, _ := ask(t, l, events, answering, same); e.PrecisionK < 0.98 {
		t.Errorf("found %+v, expected the screen on other queries", e)
	}
}

// Each alarm doubles the number of contexts that the next screen waits for, and a file that
// somebody has removed is no failure.
func TestUnlearningDoublesTheWait(t *testing.T) {
	model, err := learned()
	if err != nil {
		t.Fatal(err)
	}
	events := make(chan Event, 1000)
	o := testOptions(events)
	o.Keep, o.Least = filepath.Join(t.TempDir(), "m.l2s"), 1000
	o.Event = func(e Event) {
		if e.Kind == failed {
			t.Errorf("found %+v, expected no failure", e)
		}
		events <- e
	}
	l, err := newLearner(testData().Layer, o)
	if err != nil {
		t.Fatal(err)
	}
	l.run = func(context.Context, sample, train.Options) (*l2s.Index, error) { return model, nil }
	if err := l.begin(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	order := rand.New(rand.NewPCG(1, 1)).Perm(testDim)
	permuted := func(h []float32) {
		was := slices.Clone(h)
		for i, j := range order {
			h[i] = was[j]
		}
	}
	ended := uint64(0)
	for alarm := range uint64(3) {
		ask(t, l, events, answering, same)
		if kept := l.Kept(); alarm > 0 && kept < ended+1000<<(alarm-1) {
			t.Errorf("alarm %d: found a screen after %d contexts, expected at least %d", alarm, kept-ended, 1000<<(alarm-1))
		}
		if err := os.Remove(o.Keep); err != nil {
			t.Fatal(err)
		}
		e, _ := ask(t, l, events, unlearnt, permuted)
		if ended = uint64(e.Contexts); l.state.Load().alarmWait != 2000<<alarm {
			t.Errorf("alarm %d: found a wait of %d contexts next, expected %d", alarm, l.state.Load().alarmWait, 2000<<alarm)
		}
	}
}

// A request that the exact layer answers is not refused once a screen answers.
func TestSmallBudgets(t *testing.T) {
	events := make(chan Event, 1000)
	l := newTest(t, testData().Layer, testOptions(events))
	for _, screened := range []bool{false, true} {
		if screened {
			ask(t, l, events, answering, same)
		}
		for _, budget := range []float64{1e-300, 1, 5} {
			a, err := l.Search(make([]l2s.Prediction, 1), testData().Context(0), l2s.Request{Budget: budget})
			if err != nil || a.Count != 1 {
				t.Errorf("a screen answers: %v, a budget of %v: found %+v, %v", screened, budget, a, err)
			}
		}
	}
}

// A training that fails, or whose screen is not good enough, is followed by another one with more
// contexts, and the memory stops growing, over any number of queries: here answering and training
// are faked.
func TestALongTime(t *testing.T) {
	data := testData()
	model, err := data.Screen(50)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	trainings, kinds := 0, map[string]int{}
	count := func(kind string) int { mu.Lock(); defer mu.Unlock(); return kinds[kind] }
	o := testOptions(nil)
	o.Event = func(e Event) { mu.Lock(); kinds[e.Kind]++; mu.Unlock() }
	o.Bytes, o.Least, o.HalfLife = 4<<20, 1000, 50000
	used := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := used()
	l, err := newLearner(data.Layer, o)
	if err != nil {
		t.Fatal(err)
	}
	l.run = func(_ context.Context, s sample, _ train.Options) (*l2s.Index, error) {
		if len(s.Known) > 3000 {
			t.Errorf("found %d contexts in a sample", len(s.Known))
		}
		if trainings++; trainings%2 == 0 {
			return nil, errors.New("no luck")
		}
		return model, nil // nothing was measured: declined
	}
	if err := l.begin(); err != nil {
		t.Fatal(err)
	}
	queries := 1000000
	switch {
	case *long:
		queries = 100000000
	case testing.Short():
		queries = 200000
	}
	h, best := make([]float32, testDim), make([]l2s.Prediction, 5)
	for i := 0; i < queries || count(began) < 3 || count(failed) == 0; i++ { // also on a busy machine
		if h[0] = rand.Float32(); i%2 == 0 {
			h[0] = 0.5 // one context again and again
		}
		l.add(h, best, true)
	}
	l.Close()
	const contexts, searchers = 1 << 19, 1 << 20 // and other memory outside the contexts
	if held := used() - before; held > contexts+searchers {
		t.Errorf("found %d bytes held after %d queries, expected at most %d of the contexts and little more", held, queries, contexts)
	}
	runtime.KeepAlive(l)
	if count(declined) == 0 || count(answering) > 0 {
		t.Errorf("found the events %v", kinds)
	}
}

// Queries allocate nothing, by the exact layer and by a screen.
func TestLearningAllocatesNothing(t *testing.T) {
	events := make(chan Event, 1000)
	l := newTest(t, testData().Layer, testOptions(events))
	i, top := 0, make([]l2s.Prediction, 3)
	query := func() {
		i++
		if _, err := l.TopK(top, testData().Context(i)); err != nil {
			t.Fatal(err)
		}
	}
	query()
	if n := simdtest.AllocsPerRun(1000, query); n != 0 {
		t.Errorf("the exact layer: found %v allocations", n)
	}
}

// After contexts are forgotten learning begins again with others.
func TestForgottenContexts(t *testing.T) {
	events := make(chan Event, 1000)
	o := testOptions(events)
	l := newTest(t, testData().Layer, o)
	top := make([]l2s.Prediction, 5)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // contexts are gone before the training begins
	for i := range 2 * o.Least {
		if _, err := l.TopK(top, testData().Context(i)); err != nil {
			t.Fatal(err)
		}
		if l.Kept() >= l.state.Load().trainAt {
			l.Forget()
			time.Sleep(20 * time.Millisecond)
		}
	}
	if e, _ := ask(t, l, events, answering, same); !l.Screened() {
		t.Errorf("found no screen after %+v", e)
	}
}

// A training waits for the number of contexts of the first one, and a trial is not decided by the
// few remaining contexts.
func TestForgottenContextsDoNotCount(t *testing.T) {
	events := make(chan Event, 1000)
	o := testOptions(events)
	l := newTest(t, testData().Layer, o)
	top := make([]l2s.Prediction, 5)
	for i := range o.Least - 20 {
		if _, err := l.TopK(top, testData().Context(i)); err != nil {
			t.Fatal(err)
		}
	}
	l.Forget()
	if e, _ := ask(t, l, events, began, same); e.Contexts < o.Least-2*runLength {
		t.Errorf("found %+v, expected nearly %d contexts", e, o.Least)
	}
	for e := range events { // without queries, so that the trial must wait for contexts
		if e.Kind == tried {
			break
		}
	}
	forgets := func([]float32) {
		if l.Kept()%64 == 0 {
			l.Forget()
		}
	}
	if e, _ := ask(t, l, events, declined, forgets); !strings.Contains(e.Text, "forgotten") || e.Budget != 0 {
		t.Errorf("found %+v, expected that the contexts were forgotten", e)
	}
	if e, _ := ask(t, l, events, answering, same); !l.Screened() {
		t.Errorf("found no screen after %+v", e)
	}
}

// A screen of contexts that were forgotten while it was trained does not answer, nor is it kept.
func TestForgottenContextsTrainNothing(t *testing.T) {
	events := make(chan Event, 1000)
	o := testOptions(events)
	o.Keep = filepath.Join(t.TempDir(), "m.l2s")
	var l *Learner
	forget := sync.OnceFunc(func() { l.Forget() })
	o.Event = func(e Event) {
		if events <- e; e.Kind == trains {
			forget()
		}
	}
	l = newTest(t, testData().Layer, o)
	if e, _ := ask(t, l, events, declined, same); !strings.Contains(e.Text, "forgotten") || l.Screened() || exists(o.Keep) {
		t.Errorf("found %+v, expected that the contexts were forgotten", e)
	}
	if e, _ := ask(t, l, events, answering, same); !l.Screened() || e.Contexts < o.Least-2*runLength {
		t.Errorf("found no screen of %d contexts after %+v", o.Least, e)
	}
}

// Events come one after the other, although an alarm comes on its own goroutine.
func TestEventsComeOneByOne(t *testing.T) {
	told, wait := 0, sync.WaitGroup{}
	l := newTest(t, testData().Layer, Options{Event: func(Event) { told++ }}) // under the race detector
	for range 4 {
		wait.Go(func() {
			for range 1000 {
				l.tell(Event{Kind: failed})
			}
		})
	}
	if wait.Wait(); told != 4000 {
		t.Errorf("found %d events, expected 4000", told)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	if _, err := New(nil, Options{}); err == nil {
		t.Error("no layer: found no error")
	}
	trained := func(change func(*train.Options)) *train.Options {
		o := train.DefaultOptions()
		change(&o)
		return &o
	}
	for _, o := range []Options{
		{CPU: 2}, {Audit: -1}, {Least: -1}, {Least: 7}, {Least: math.MaxInt}, {Least: math.MaxInt / 8}, {Bytes: 10}, {Bytes: math.MaxInt64}, {HalfLife: -1}, {HalfLife: math.NaN()}, {HalfLife: math.Inf(1)}, {HalfLife: 1e13}, {CPU: 1e-10}, {CPU: 5e-324}, {CPU: -1}, {CPU: math.NaN()}, {Keep: t.TempDir()},
		{Keep: filepath.Join(t.TempDir(), "no folder", "m.l2s")}, {Bytes: 1 << 20},
		{Train: trained(func(o *train.Options) { o.K = 0 })}, {Train: trained(func(o *train.Options) { o.K = 1501 })},
		{Train: trained(func(o *train.Options) { o.Clusters = -1 })},
		{Train: trained(func(o *train.Options) { o.HeldOut = 0 })}, {Train: trained(func(o *train.Options) { o.Checkpoint = "state" })},
		{Train: trained(func(o *train.Options) { o.Validation = make([]float32, testDim) })}, {Train: trained(func(o *train.Options) { o.Labels = make([]uint32, o.K) })},
	} {
		if l, err := New(testData().Layer, o); err == nil {
			l.Close()
			t.Errorf("%+v: found no error", o)
		}
	}
}
