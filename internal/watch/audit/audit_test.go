package audit_test

import (
	"context"
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/files/heads"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
	"github.com/learning-to-screen/l2s/internal/tests/synthetic"
	"github.com/learning-to-screen/l2s/internal/watch/audit"
	"github.com/learning-to-screen/l2s/internal/watch/evaluate"
	"github.com/learning-to-screen/l2s/train"
)

// search asks a searcher of the pool.
func search(p *engine.Pool, dst []exact.Prediction, h []float32, req exact.Request) (a exact.Answer, err error) {
	err = p.Do(func(s *engine.Searcher) (err error) { a, err = s.Search(dst, h, &req); return err })
	return a, err
}

func topK(p *engine.Pool, dst []exact.Prediction, h []float32) (int, error) {
	a, err := search(p, dst, h, exact.Request{})
	return a.Count, err
}

// watched is a model of training, with contexts outside its training.
type watched struct {
	model    *screening.Model
	layer    *exact.Layer
	contexts []float32
}

var watchedOnce = sync.OnceValue(func() watched {
	data := synthetic.Structured(1500, 24, 20, 9000, 1)
	o := train.DefaultOptions()
	o.Clusters, o.Iterations, o.Tail, o.Threads, o.HeldOut = 20, 0, nil, 2, 1500
	m, _, err := train.Run(context.Background(), data.Layer, l2s.Float32(data.Contexts[:6000*24], data.Layer.Dim()), o)
	if err != nil {
		panic(err)
	}
	return watched{(*engine.Index)(m).Screen(), data.Exact, data.Contexts[6000*24:]}
})

// traffic asks a pool about contexts, changed, until audited queries of it are audited, and returns
// the alarms that began, with the number of audited queries at that time.
func (w watched) traffic(t *testing.T, change func(h []float32), audited uint64, until func(audit.Report) bool) (alarms map[string]uint64, r audit.Report) {
	t.Helper()
	p, err := engine.NewPool(engine.Over(w.layer), engine.OfScreen(w.model), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	alarms = map[string]uint64{}
	a, err := audit.Start(p, audit.Options{Share: 1, Alarm: func(x audit.Alarm) {
		mu.Lock()
		defer mu.Unlock()
		if x.Text == "" {
			t.Errorf("found an alarm of %s without a text", x.Of)
		}
		alarms[x.Of]++
	}})
	if err != nil {
		t.Fatal(err)
	}
	d := w.model.Dim()
	h, top := make([]float32, d), make([]exact.Prediction, 5)
	for i := 0; r.Audited < audited && !(until != nil && until(r)); i++ {
		at := i % (len(w.contexts) / d)
		copy(h, w.contexts[at*d:])
		change(h)
		if _, err := topK(p, top, h); err != nil {
			t.Fatal(err)
		}
		if i%32 == 31 {
			time.Sleep(10 * time.Microsecond) // the audit is to get its turn
			r = a.Report()
		}
	}
	a.Stop()
	if after := a.Report(); len(after.Alarms) < len(r.Alarms) || after.Audited < r.Audited {
		t.Errorf("found %+v after the end, expected the report before", after.Alarms)
	}
	return alarms, r
}

func noise(r *rand.Rand, by float64) func([]float32) {
	return func(h []float32) {
		for i := range h {
			h[i] += float32(by * r.NormFloat64())
		}
	}
}

func permuted(r *rand.Rand, d int) func([]float32) {
	order := r.Perm(d)
	return func(h []float32) {
		was := slices.Clone(h)
		for i, j := range order {
			h[i] = was[j]
		}
	}
}

// Contexts like in training give the expected figures and no alarm, contexts with noise an alarm of
// precision, and contexts with another order of their elements an alarm of geometry.
func TestAuditNoticesDrift(t *testing.T) {
	w := watchedOnce()
	alarms, r := w.traffic(t, func([]float32) {}, 1500, nil)
	if len(alarms) > 0 || len(r.Alarms) > 0 {
		t.Errorf("contexts like in training: found the alarms %v: %+v", alarms, r.Alarms)
	}
	e, err := evaluate.Run(t.Context(), w.model, w.layer, w.contexts, evaluate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if want := e.AtK[1].Precision; r.K != 5 || math.Abs(r.PrecisionK.Value-want) > 0.004 || r.PrecisionK.Low > r.PrecisionK.Value || r.ExpectedK.Value == 0 || r.Window != int(r.Audited) {
		t.Errorf("found P@%d %+v, expected %+v, of %d of %d queries, expected %v", r.K, r.PrecisionK, r.ExpectedK, r.Window, r.Audited, want)
	}
	if len(r.Ladder) != len(w.model.Ladder()) || r.Geometry == nil || len(r.Cosine) != len(r.Geometry.Cosine.Shares) {
		t.Errorf("found %d budgets and the shares %v, expected the ones of the model", len(r.Ladder), r.Cosine)
	}
	alarms, r = w.traffic(t, noise(rand.New(rand.NewPCG(1, 1)), 2), 2000, func(r audit.Report) bool { return len(r.Alarms) > 0 && r.Alarms[0].Of[0] == 'P' })
	if alarms["P@5"] == 0 && alarms["P@1"] == 0 {
		t.Errorf("noise: found %v and P@5 %.4f, expected an alarm", alarms, r.PrecisionK.Value)
	}
	alarms, r = w.traffic(t, permuted(rand.New(rand.NewPCG(1, 1)), 24), 2000, func(r audit.Report) bool {
		return slices.ContainsFunc(r.Alarms, func(x audit.Alarm) bool { return x.Of == "cosine" })
	})
	if alarms["cosine"] == 0 {
		t.Errorf("another order of elements: found %v, expected an alarm of geometry", alarms)
	}
}

// An audit continues with the next model, ends when it is asked to, and refuses wrong options.
func TestAuditsBeginAndEnd(t *testing.T) {
	w := watchedOnce()
	p, err := engine.NewPool(engine.Over(w.layer), engine.OfScreen(w.model), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := audit.Start(p, audit.Options{Share: 1.5}); err == nil {
		t.Error("found no error for a share above 1")
	}
	a, err := audit.Start(p, audit.Options{Share: 1})
	if err != nil {
		t.Fatal(err)
	}
	top := make([]exact.Prediction, 5)
	ask := func(n int) {
		for i := range n {
			if _, err := topK(p, top, w.contexts[i*24:(i+1)*24]); err != nil {
				t.Fatal(err)
			}
		}
	}
	ask(400)
	if r := a.Report(); r.Sampled < 20 || r.Sampled > 100 {
		t.Errorf("found %d samples of 400 queries, expected about 50", r.Sampled)
	}
	c := w.model.Config()
	c.Budget, c.Record = c.Ladder[0].Budget, []byte("{}")
	other, err := screening.NewModel(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Swap(engine.Over(w.layer), engine.OfScreen(other)); err != nil {
		t.Fatal(err)
	}
	if r := a.Report(); r.Sampled != 0 || r.Geometry != nil || len(r.Alarms) > 0 {
		t.Errorf("after a swap: found %+v, expected a new beginning", r)
	}
	ask(400)
	second, err := audit.Start(p, audit.Options{}) // ends the first one
	if err != nil {
		t.Fatal(err)
	}
	a.Stop()
	ask(400)
	if r := second.Report(); r.Sampled == 0 {
		t.Error("found no samples of the second audit")
	}
	second.Stop()
	before := second.Report().Sampled
	ask(400)
	if r := second.Report(); r.Sampled != before {
		t.Errorf("found %d samples after the end, expected %d", r.Sampled, before)
	}
}

// A share that leaves no time for a second exact answer gets none.
func TestTheSmallestShareOfAnAudit(t *testing.T) {
	w := watchedOnce()
	p, err := engine.NewPool(engine.Over(w.layer), engine.OfScreen(w.model), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a, err := audit.Start(p, audit.Options{Share: math.SmallestNonzeroFloat64})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Stop()
	top := make([]exact.Prediction, 5)
	for range 100 { // in between which the audit has its turn
		for i := range 100 {
			if _, err := topK(p, top, w.contexts[i*24:(i+1)*24]); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Millisecond)
	}
	if r := a.Report(); r.Audited > 1 {
		t.Errorf("found %d exact answers, expected 1 at most", r.Audited)
	}
}

// Queries of a pool with an audit allocate nothing, whichever query is sampled.
func TestAuditedQueriesDoNotAllocate(t *testing.T) {
	w := watchedOnce()
	p, err := engine.NewPool(engine.Over(w.layer), engine.OfScreen(w.model), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a, err := audit.Start(p, audit.Options{Share: 0.0001}) // allocations of the audit itself are rare
	if err != nil {
		t.Fatal(err)
	}
	defer a.Stop()
	i, top := 0, make([]exact.Prediction, 5)
	ask := func() {
		i = (i + 1) % 3000
		if _, err := topK(p, top, w.contexts[i*24:(i+1)*24]); err != nil {
			t.Fatal(err)
		}
	}
	for range 2000 {
		ask()
		time.Sleep(time.Microsecond)
	}
	if n := simdtest.AllocsPerRun(500, ask); n != 0 {
		t.Errorf("found %v allocations a query", n)
	}
}

// Many goroutines ask while models are swapped, and the audit reports.
func TestAuditOfManyGoroutines(t *testing.T) {
	w := watchedOnce()
	p, err := engine.NewPool(engine.Over(w.layer), engine.OfScreen(w.model), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a, err := audit.Start(p, audit.Options{Share: 1})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			top := make([]exact.Prediction, 5)
			for i := range 2000 {
				at := (i*7 + g) % 3000
				if _, err := search(p, top, w.contexts[at*24:(at+1)*24], exact.Request{Budget: w.model.Ladder()[i%len(w.model.Ladder())].Budget}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 20 {
		if _, err := p.Swap(engine.Over(w.layer), engine.OfScreen(w.model)); err != nil {
			t.Error(err)
		}
		a.Report()
	}
	wg.Wait()
	a.Stop()
}

var long = flag.Bool("long", false, "run TestAuditOfALanguageModel, which takes minutes")

// TestAuditOfALanguageModel prints the results of an audit for the contexts of a model with 65,536
// labels: go test ./internal/watch/audit -run AuditOfALanguageModel -v -args -long
func TestAuditOfALanguageModel(t *testing.T) {
	const folder = "../../../../shared/data/llm-65k"
	if !*long {
		t.Skip("it takes minutes: make test-long")
	}
	if _, err := os.Stat(folder); err != nil {
		t.Skip("../shared/data/llm-65k is not there: ", err)
	}
	public, err := l2s.Open(folder, l2s.OpenOptions{Copy: true})
	if err != nil {
		t.Fatal(err)
	}
	defer public.Close()
	layer := (*engine.Layer)(public).Exact()
	open := func(name string) []float32 {
		c, release, err := heads.OpenContexts(folder+"/contexts_"+name+".npy", layer.Dim())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { release() })
		return c
	}
	o := train.DefaultOptions()
	o.Tail = nil
	made, _, err := train.Run(t.Context(), public, l2s.Float32(open("train"), layer.Dim()), o)
	if err != nil {
		t.Fatal(err)
	}
	m := (*engine.Index)(made).Screen()
	// The amount of noise that lowers P@5 to .97.
	least, most := 0.0, 16.0
	for range 9 {
		by := (least + most) / 2
		contexts, add := slices.Clone(open("test")[:1000*layer.Dim()]), noise(rand.New(rand.NewPCG(1, 1)), by)
		add(contexts)
		e, err := evaluate.Run(t.Context(), m, layer, contexts, evaluate.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if least = by; e.AtK[1].Precision < 0.97 {
			least, most = most-2*(most-by), by
		}
		t.Logf("noise of %.3f: P@1 %.4f, P@5 %.4f", by, e.AtK[0].Precision, e.AtK[1].Precision)
	}
	for _, c := range []struct {
		name, contexts string
		change         func([]float32)
		expected       string // the beginning of the name of an alarm; - for no alarm
	}{
		{"test", "test", func([]float32) {}, "-"},
		{"noise", "test", noise(rand.New(rand.NewPCG(2, 2)), most), "P@"},
		{"permuted", "test", permuted(rand.New(rand.NewPCG(1, 1)), layer.Dim()), "cosine"},
		{"news", "news", func([]float32) {}, ""},
		{"go", "go", func([]float32) {}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, first := watched{m, layer, open(c.contexts)}, map[string]audit.Report{}
			alarms, r := w.traffic(t, c.change, 2000, func(r audit.Report) bool {
				for _, x := range r.Alarms {
					if _, ok := first[x.Of]; !ok {
						first[x.Of] = r
						t.Logf("%s: after %d samples, some %d queries, of which %d audited: %s", x.Of, r.Sampled, 8*r.Sampled, r.Audited, x.Text)
					}
				}
				return false
			})
			t.Logf("P@1 %.4f (expected %.4f, at least %.4f), P@5 %.4f (%.4f, %.4f)", r.Precision1.Value, r.Expected1.Value, r.Expected1.Low, r.PrecisionK.Value, r.ExpectedK.Value, r.ExpectedK.Low)
			t.Logf("cosine %.3f\nmost   %.3f", r.Cosine, r.Geometry.Cosine.Most)
			found := false
			for of := range alarms {
				found = found || strings.HasPrefix(of, c.expected)
			}
			if c.expected == "-" && len(alarms) > 0 || c.expected != "-" && c.expected != "" && !found {
				t.Errorf("found the alarms %v, expected %s", alarms, c.expected)
			}
			for of, n := range first {
				if of == c.expected && 8*n.Sampled > 200+100 {
					t.Errorf("%s: found after %d queries, expected 200", of, 8*n.Sampled)
				}
			}
		})
	}
}
