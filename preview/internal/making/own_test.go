package making

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/precision"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/previewing"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
	"github.com/learning-to-screen/l2s/internal/watch/evaluate"
)

// The normal rung has the precision on held-out contexts, and finds own states: the first such rung
// from the chosen one on. If there is none it is the one that finds most own states.
func TestTheNormalRungFindsOwnStates(t *testing.T) {
	rung := func(p1, own float64) previewing.Rung {
		return previewing.Rung{Precision1: precision.Estimate{Value: p1}, PrecisionK: precision.Estimate{Value: 1}, Own: precision.Estimate{Value: own}}
	}
	for _, c := range []struct {
		name         string
		own          int
		rungs        []previewing.Rung
		chosen, want int
	}{
		{"precise enough", 100, []previewing.Rung{rung(0.9, 1), rung(1, 1), rung(1, 1)}, 1, 1},
		{"the chosen one is not precise", 100, []previewing.Rung{rung(0.9, 1), rung(0.99, 1), rung(1, 1)}, 1, 2},
		{"it misses own states", 100, []previewing.Rung{rung(1, 1), rung(1, 0.9998), rung(1, 0.9999), rung(1, 1)}, 1, 2},
		{"no rung finds enough", 100, []previewing.Rung{rung(1, 0.95), rung(1, 0.96), rung(1, 0.98), rung(1, 0.98)}, 1, 2},
		{"nor does the chosen one, which finds most", 100, []previewing.Rung{rung(1, 0.97), rung(1, 0.97)}, 0, 0},
		{"the layer has no own states", 0, []previewing.Rung{rung(1, 0), rung(1, 0)}, 0, 0},
	} {
		m := &maker{Parts: &previewing.Parts{Rungs: c.rungs, Normal: c.chosen, Own: c.own}}
		if m.setNormal(0.9995, 0.998); m.Normal != c.want {
			t.Errorf("%s: found rung %d, expected %d", c.name, m.Normal, c.want)
		}
	}
}

// A preview that never finds many labels is refused, or as the options say.
func TestAPreviewWithHolesIsRefused(t *testing.T) {
	for _, c := range []struct {
		name    string
		found   precision.Estimate
		own     int
		least   float64
		refused bool
	}{
		{"as many as allowed", precision.Estimate{Value: 0.9999, High: 0.99999}, 10000, 0, false},
		{"fewer, with a warning", precision.Estimate{Value: 0.89, High: 0.91}, 10000, 0, false},
		{"too few", precision.Estimate{Value: 0.88, High: 0.89}, 10000, 0, true},
		{"which the options allow", precision.Estimate{Value: 0.88, High: 0.89}, 10000, 0.8, false},
		{"more than these", precision.Estimate{Value: 0.90, High: 0.94}, 10000, 0.95, true},
		{"no own states", precision.Estimate{}, 0, 0, false},
	} {
		one := precision.Estimate{Value: 1, Low: 1, High: 1}
		m := &maker{opt: &Options{LeastOwn: c.least}, Parts: &previewing.Parts{K: 5, HeldOut: 9, Own: c.own, Rungs: []previewing.Rung{{Precision1: one, PrecisionK: one, Own: c.found}}}}
		err := m.precise(0.9995, 0.998)
		if errors.Is(err, precision.ErrTarget) != c.refused || c.refused && !strings.Contains(err.Error(), "of 10000 labels at most") {
			t.Errorf("%s: found error %v, expected one: %v", c.name, err, c.refused)
		}
	}
}

// spreadOnce is a model of a layer in which most labels can lead: independent rows, and states of
// which a few elements vary most, as in language models.
var spreadOnce = sync.OnceValue(func() made {
	const labels, dim = 16384, 96
	r := rand.New(rand.NewPCG(3, 9))
	w, states := make([]float32, labels*dim), make([]float32, 2000*dim)
	for i := range w {
		w[i] = float32(r.NormFloat64())
	}
	for i := range states {
		states[i] = float32(r.NormFloat64() * 4 / math.Sqrt(float64(1+i%dim)))
	}
	l, err := exact.NewLayer(kernels.Float32Rows(w, dim), nil)
	if err != nil {
		panic(err)
	}
	d := &data{layer: l, dim: dim, r: r}
	m, from, held, err := begin(l, states, &Options{Coordinates: 64, LeastOwn: 0.5, Precision1: 0.99, PrecisionK: 0.98})
	if err != nil {
		panic(err)
	}
	model, err := m.make(context.Background(), from, held)
	if err != nil {
		panic(err)
	}
	return made{d, model, m, from}
})

// remembers is a Method that keeps the own states that it is asked about.
type remembers struct {
	*previewing.Steps
	mu     *sync.Mutex
	states map[uint32][]float32
}

func (r remembers) Finds(id uint32, h []float32) (int, bool, error) {
	r.mu.Lock()
	r.states[id] = slices.Clone(h)
	r.mu.Unlock()
	return r.Steps.Finds(id, h)
}

// ownStates returns own states of some labels of the layer of spreadOnce, in the order of their ids,
// as searches by some rungs lead to them.
func ownStates(t *testing.T, labels int, rungs []previewing.Rung, sure int) (ids []uint32, states [][]float32) {
	t.Helper()
	x, r := spreadOnce(), rand.New(rand.NewPCG(4, 4))
	contexts := make([]float32, 1000*x.dim)
	for i := range contexts {
		contexts[i] = float32(r.NormFloat64() * 4 / math.Sqrt(float64(1+i%x.dim)))
	}
	o, err := evaluate.NewOwn(context.Background(), x.layer, contexts)
	if err != nil {
		t.Fatal(err)
	}
	all, mu, found := evaluate.OwnSample(x.layer.Labels(), labels, 1), new(sync.Mutex), map[uint32][]float32{}
	firsts, err := o.Outcomes(context.Background(), all, 1, func() evaluate.Method {
		return remembers{previewing.NewSteps(x.model.Over(x.layer), rungs, sure), mu, found}
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range all {
		if firsts[i] != evaluate.NoState {
			ids, states = append(ids, id), append(states, found[id])
		}
	}
	return ids, states
}

// A rung's share of own states in the file is the share that searches by this rung find, of other
// labels and from other states too, within their intervals.
func TestRungsSayHowManyOwnStatesTheyFind(t *testing.T) {
	simdtest.Long(t)
	x := spreadOnce()
	p := x.model.Parts()
	if p.Own < 400 {
		t.Errorf("found %d own states of %d labels, expected 400 at least", p.Own, p.Labels)
	}
	for i := range p.Rungs {
		ids, states := ownStates(t, 2000, p.Rungs[i:i+1], 0)
		found, s, best := 0, x.model.Over(x.layer), make([]exact.Prediction, 1)
		for j, h := range states {
			if a, err := s.Answer(best, h, &exact.Request{}, &p.Rungs[i]); err != nil {
				t.Fatal(err)
			} else if a.Count == 1 && best[0].ID == ids[j] {
				found++
			}
		}
		share, e := float64(found)/float64(len(states)), p.Rungs[i].Own
		if i > 0 && e.Value < p.Rungs[i-1].Own.Value {
			t.Errorf("rung %d: found the share %v after %v, expected no less", i, e.Value, p.Rungs[i-1].Own.Value)
		}
		if share < e.Low-0.06 || share > e.High+0.06 {
			t.Errorf("rung %d: found %.4f of %d own states, expected %.4f (%.4f to %.4f), about", i, share, len(states), e.Value, e.Low, e.High)
		}
	}
}

// Every rung finds .9999 of the own states of a layer in which labels can lead, however fast it is.
func TestEveryRungFindsOwnStates(t *testing.T) {
	simdtest.Long(t)
	p := spreadOnce().model.Parts()
	for i, r := range p.Rungs {
		if r.Own.Value < precision.TargetOwn {
			t.Errorf("rung %d: found %v of %d own states, expected %v at least", i, r.Own, p.Own, precision.TargetOwn)
		}
	}
}

// It is the shares that find own states, and no reach: without them the same rungs miss some.
func TestWithoutSharesOwnStatesAreMissed(t *testing.T) {
	simdtest.Long(t)
	x := spreadOnce()
	p := x.model.Parts()
	fast := p.Rungs[0]
	fast.Reach = 0
	ids, states := ownStates(t, 2000, []previewing.Rung{fast}, 0)
	missed := map[*previewing.Model]int{}
	without := withRungs(x.model, fast)
	without.Parts().Margins = [previewing.MostStages]float64{}
	clear(without.Parts().Shares)
	without = withRungs(without, fast)
	for _, m := range []*previewing.Model{x.model, without} {
		look := m.Over(x.layer).Look()
		for i, h := range states {
			if look.Find(h, 1, &exact.Request{}, &fast) && !slices.Contains(look.IDs, ids[i]) {
				missed[m]++
			}
		}
	}
	if with, none := missed[x.model], missed[without]; with > len(states)/500 || none < len(states)/20 {
		t.Errorf("found %d of %d own states missed, and %d without shares, expected hardly any, and many", with, len(states), none)
	}
}

// A context that moves along M w', M the covariance of states, raises the logit of label w, and codes
// miss a share of that: at most the share of its panel, about.
func TestCodesMissAShareOfTheRise(t *testing.T) {
	both(t, func(t *testing.T, x made) { sharesHold(t, x, x.states) })
}

// The same of each kind of states, if these follow each other: the contexts of a text are of one kind.
func TestCodesMissAShareOfTheRiseInEachKind(t *testing.T) {
	simdtest.Long(t)
	const dim = 96
	d := newData(t, 3000, dim, false, 1)
	states := d.contexts(1800)
	for i := range states {
		if i >= len(states)/2 && i%dim < dim/4 {
			states[i] *= 0.1
		}
	}
	m, from, held, err := begin(d.layer, states, &Options{Coordinates: 80, Precision1: 0.9, PrecisionK: 0.9, LeastOwn: 0.01})
	if err != nil {
		t.Fatal(err)
	}
	model, err := m.make(context.Background(), from, held)
	if err != nil {
		t.Fatal(err)
	}
	x := made{d, model, m, from}
	for name, of := range map[string][]float32{"all": from, "the first half": from[:len(from)/2], "the second half": from[len(from)/2:]} {
		t.Run(name, func(t *testing.T) { sharesHold(t, x, of) })
	}
}

// A part of the states that does not vary, such as padding, is no kind: no label can lead in it.
func TestStatesThatAreEqualAreNoKind(t *testing.T) {
	simdtest.Long(t)
	const dim = 48
	d := newData(t, 3000, dim, false, 1)
	states := d.contexts(1800)
	for i := len(states) / 2; i < len(states); i += dim {
		copy(states[i:i+dim], states)
	}
	m, from, held, err := begin(d.layer, states, &Options{Coordinates: 24, HeldOut: d.contexts(100), Precision1: 0.9, PrecisionK: 0.9, LeastOwn: 0.01})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(partsOf(from, dim, leastOfKind)); n < 2 {
		t.Fatalf("found %d parts, expected two or more", n)
	}
	model, err := m.make(context.Background(), from, held)
	if err != nil {
		t.Fatal(err)
	}
	whole := 0
	for _, share := range m.Shares[:m.Panels()] {
		if share > 0.99 {
			whole++
		}
	}
	if r := model.Parts().Rungs[m.Normal]; r.Exact > 0.1 || whole > m.Panels()/20 {
		t.Errorf("found %.2f of the contexts answered exactly, and %d of %d panels of which codes miss all of a rise, expected hardly any", r.Exact, whole, m.Panels())
	}
}

// sharesHold fails unless codes miss at most the shares of panels in contexts of some states.
func sharesHold(t *testing.T, x made, states []float32) {
	t.Helper()
	m, d := x.maker, x.dim
	n := len(states) / d
	mean := make([]float64, d)
	for i, v := range states {
		mean[i%d] += float64(v) / float64(n)
	}
	look, row := mustSearch(t, x.model, x.layer).Look(), make([]float32, m.Width())
	inside, panels := m.Labels-m.Outliers, m.Panels()
	rises := 0
	for at := 0; at < inside; at += 61 {
		m.widen(row, int(m.IDs[at]))
		along, u := make([]float64, n), make([]float64, d)
		for i := range along {
			for j, v := range states[i*d : (i+1)*d] {
				along[i] += (float64(v) - mean[j]) * float64(row[j]-m.Mean[j])
			}
			for j, v := range states[i*d : (i+1)*d] {
				u[j] += along[i] * (float64(v) - mean[j]) / float64(n)
			}
		}
		rise, h := 0.0, make([]float32, d)
		for j, v := range u {
			rise += v * float64(row[j]-m.Mean[j])
		}
		far := 40 / rise // far enough that the rounding of contexts does not count
		for j, v := range u {
			h[j] = float32(mean[j] + far*v)
		}
		before, after := make([]float64, m.Stages()), make([]float64, m.Stages())
		for _, c := range []struct {
			h  []float32
			to []float64
		}{{floats32(mean), before}, {h, after}} {
			if !look.Coordinates(c.h) {
				t.Fatal("found a context without previews, expected one with them")
			}
			for j := range c.to {
				c.to[j] = float64(look.All(j)[at] * look.Scale)
			}
		}
		for j := range before {
			missed := 1 - (after[j]-before[j])/40
			if share := float64(m.Shares[j*panels+at/kernels.PanelRows]); missed > share+0.05 {
				t.Errorf("stage %d, label %d: found %.3f of the rise missed, expected at most the share %.3f of its panel", j, m.IDs[at], missed, share)
			}
			if missed > 0.05 {
				rises++
			}
		}
	}
	if rises == 0 {
		t.Error("found no part of a rise missed, expected some: nothing was compared")
	}
}

func floats32(x []float64) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = float32(v)
	}
	return y
}

// A larger budget looks at no fewer labels than a smaller one, and the normal rung stays.
func TestBudgetsAscendInAllThatTheyLookAt(t *testing.T) {
	rung := func(kept, looked float64) previewing.Rung { return previewing.Rung{Kept: kept, Looked: looked} }
	for _, c := range []struct {
		name   string
		rungs  []previewing.Rung
		normal int
		want   []previewing.Rung
	}{
		{"in order", []previewing.Rung{rung(5, 0.1), rung(8, 0.2)}, 0, []previewing.Rung{rung(5, 0.1), rung(8, 0.2)}},
		{"a larger one that sees less", []previewing.Rung{rung(61.7, 0.38), rung(61.9, 0.04)}, 0, []previewing.Rung{rung(61.7, 0.38)}},
		{"between", []previewing.Rung{rung(80.1, 0.05), rung(81.8, 0.3), rung(81.9, 0.05), rung(90, 0.4)}, 1, []previewing.Rung{rung(80.1, 0.05), rung(81.8, 0.3), rung(90, 0.4)}},
		{"a smaller one that sees more than the normal one", []previewing.Rung{rung(5, 0.5), rung(8, 0.2)}, 1, []previewing.Rung{rung(8, 0.2)}},
	} {
		if got := ascending(slices.Clone(c.rungs), c.rungs[c.normal]); !slices.Equal(got, c.want) {
			t.Errorf("%s: found %v, expected %v", c.name, got, c.want)
		}
	}
}

// What all but few of some numbers do not exceed is found within a fifth of it, for exponential draws,
// though there are too few of them to say it. Numbers of labels that are always found do not count.
func TestMostOfNumbersIsThatOfManyMore(t *testing.T) {
	for _, n := range []int{500, 5000, 50000} {
		r := rand.New(rand.NewPCG(uint64(n), 1))
		off := 0.0
		const draws = 50
		for range draws {
			x := make([]float64, n)
			for i := range x {
				if x[i] = r.ExpFloat64(); i%4 == 0 {
					x[i] = math.Inf(-1)
				}
			}
			slices.Sort(x)
			want := -math.Log((1 - precision.TargetOwn) / 2 / 0.75) // which one of 20,000 exceeds
			off += math.Abs(mostOf(x)-want) / draws
		}
		if !(off < 2) {
			t.Errorf("%d numbers: found %.2f off on average, want less than 2 of 9.6", n, off)
		}
	}
	for _, c := range []struct {
		x    []float64
		want float64
	}{{[]float64{0.5}, 0.5}, {[]float64{math.Inf(-1), math.Inf(-1), 2}, 2}, {[]float64{math.Inf(-1), math.Inf(-1), math.Inf(-1)}, math.Inf(-1)}, {[]float64{3, 3, 3, 3}, 3}} {
		if got := mostOf(c.x); got != c.want {
			t.Errorf("most of %v: found %v, want %v", c.x, got, c.want)
		}
	}
}
