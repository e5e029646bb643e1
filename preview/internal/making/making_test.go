package making

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/codes/linear"
	"github.com/learning-to-screen/l2s/internal/ground/precision"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/previewing"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

// data is a layer whose labels lean towards topics, and contexts that do.
type data struct {
	layer  *exact.Layer
	topics []float32
	dim    int
	r      *rand.Rand
}

func newData(t fatal, labels, dim int, biased bool, seed uint64) *data {
	const topics = 20
	r := rand.New(rand.NewPCG(seed, 7))
	d := &data{dim: dim, r: r, topics: make([]float32, topics*dim)}
	for i := range d.topics {
		d.topics[i] = float32(r.NormFloat64())
	}
	w := make([]float32, labels*dim)
	for s := range labels {
		d.lean(w[s*dim:(s+1)*dim], 0.7)
	}
	var bias []float32
	if biased {
		bias = make([]float32, labels)
		for s := range bias {
			bias[s] = float32(3 * r.NormFloat64())
		}
	}
	var err error
	if d.layer, err = exact.NewLayer(kernels.Float32Rows(w, dim), bias); err != nil {
		t.Fatal(err)
	}
	return d
}

// lean fills x with noise around a topic, with less noise in the later elements.
func (d *data) lean(x []float32, noise float64) {
	topic := d.r.IntN(len(d.topics) / d.dim)
	for j := range x {
		x[j] = (d.topics[topic*d.dim+j] + float32(noise*d.r.NormFloat64())) / float32(1+j/4)
	}
}

func (d *data) contexts(n int) []float32 {
	h := make([]float32, n*d.dim)
	for i := range n {
		d.lean(h[i*d.dim:(i+1)*d.dim], 0.5)
	}
	return h
}

type fatal interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func mustMake(t fatal, d *data, states []float32, opt Options) *previewing.Model {
	t.Helper()
	m, err := Make(context.Background(), d.layer, states, opt)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func mustSearch(t fatal, m *previewing.Model, l *exact.Layer) *previewing.Searcher {
	t.Helper()
	s, err := previewing.NewSearcher(m, l)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// made is a data set with a model, made once.
type made struct {
	*data
	model  *previewing.Model
	maker  *maker
	states []float32 // that it was made from
}

var (
	plainOnce  = sync.OnceValue(func() made { return makeOne(3000, 42, 16, false) })
	biasedOnce = sync.OnceValue(func() made { return makeOne(3000, 96, 80, true) })    // codes of each coordinate
	wideOnce   = sync.OnceValue(func() made { return makeOne(6000, 730, 720, false) }) // all stages have codes
)

func makeOne(labels, dim, coordinates int, biased bool) made {
	d := newData(panics{}, labels, dim, biased, 1)
	m, states, held, err := begin(d.layer, d.contexts(2000), &Options{Coordinates: coordinates})
	if err != nil {
		panic(err)
	}
	model, err := m.make(context.Background(), states, held)
	if err != nil {
		panic(err)
	}
	return made{d, model, m, states}
}

// panics replaces a test for code that makes data outside of one.
type panics struct{}

func (panics) Helper()                           {}
func (panics) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (panics) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func both(t *testing.T, f func(t *testing.T, x made)) {
	t.Run("without biases", func(t *testing.T) { f(t, plainOnce()) })
	t.Run("with biases", func(t *testing.T) { f(t, biasedOnce()) })
}

func andWide(t *testing.T, f func(t *testing.T, x made)) {
	both(t, f)
	t.Run("wide", func(t *testing.T) {
		simdtest.Long(t)
		f(t, wideOnce())
	})
}

// whole is a rung that looks at everything and scores it in full.
var whole = previewing.Rung{Deviations: 1e9, Reach: 1e9, Kept: 1e9}

// fileOf returns the bytes of a model's file.
func fileOf(m *previewing.Model) []byte {
	var b bytes.Buffer
	if _, err := m.WriteTo(&b); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// withRungs is a model with those rungs, the last of which requests have that name no budget.
func withRungs(m *previewing.Model, rungs ...previewing.Rung) *previewing.Model {
	m, err := previewing.Read("preview", bytes.NewReader(fileOf(m)), -1)
	if err != nil {
		panic(err)
	}
	p := m.Parts()
	p.Rungs, p.Normal = rungs, len(rungs)-1
	return m
}

// drawRequest draws a request with edits for k labels.
func drawRequest(t *rapid.T, labels int) (k int, req exact.Request) {
	set := func(name string, share int) *bitset.Set {
		if !rapid.Bool().Draw(t, name) {
			return nil
		}
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, name+" seed"), 1))
		s := bitset.New(labels)
		for id := range labels {
			if r.IntN(100) < share {
				s.Add(uint32(id))
			}
		}
		return s
	}
	k, req = rapid.IntRange(1, 60).Draw(t, "k"), exact.Request{Allowed: set("allowed", 70), Banned: set("banned", 10)}
	ids := rapid.SliceOfNDistinct(rapid.Uint32Range(0, uint32(labels-1)), 0, 9, rapid.ID).Draw(t, "biased")
	slices.Sort(ids)
	for _, id := range ids {
		req.Biases = append(req.Biases, exact.Bias{ID: id, Add: float32(rapid.IntRange(-40, 40).Draw(t, "add"))})
	}
	return k, req
}

// If all labels are looked at and scored in full, the answer equals the exact search, bit for bit.
func TestTheWholeLayerGivesTheExactAnswer(t *testing.T) {
	simdtest.Long(t)
	andWide(t, func(t *testing.T, x made) {
		m := withRungs(x.model, whole)
		s, e := mustSearch(t, m, x.layer), exact.NewSearcher(x.layer)
		rapid.Check(t, func(t *rapid.T) {
			k, req := drawRequest(t, m.Parts().Labels)
			h := x.contexts(1)
			got, want := make([]exact.Prediction, k), make([]exact.Prediction, k)
			a, err := s.Search(got, h, req)
			if err != nil {
				t.Fatal(err)
			}
			b, err := e.Search(want, h, req)
			if err != nil {
				t.Fatal(err)
			}
			if a.Count != b.Count || !slices.Equal(got[:a.Count], want[:b.Count]) {
				t.Fatalf("found %v, want %v", got[:a.Count], want[:b.Count])
			}
		})
	})
}

// The whole layer is scored by the preview's path, not by the exact layer's: otherwise the test
// above would prove nothing.
func TestTheWholeLayerIsScoredFromPreviews(t *testing.T) {
	x := plainOnce()
	limit := previewing.MaxKeptShare
	previewing.MaxKeptShare = 1
	defer func() { previewing.MaxKeptShare = limit }()
	s, e := mustSearch(t, withRungs(x.model, whole), x.layer), exact.NewSearcher(x.layer)
	for range 50 {
		h, got, want := x.contexts(1), make([]exact.Prediction, 7), make([]exact.Prediction, 7)
		a, err := s.Search(got, h, exact.Request{})
		if err != nil || a.Source != exact.FromSet {
			t.Fatalf("found an answer from the %v, %v; want one from the set", a.Source, err)
		}
		if _, err := e.TopK(want, h); err != nil || !slices.Equal(got, want) {
			t.Fatalf("found %v, want %v; %v", got, want, err)
		}
	}
	if got := s.Look().Stats; got.Kept != got.Queries*uint64(x.model.Parts().Labels) || got.Exact != 0 {
		t.Errorf("found %+v, want all labels kept", got)
	}
}

// On every rung logits are exact, in order, of labels that may be answered, and the best of the
// labels scored in full.
func TestAnswersAreExactAmongWhatIsLookedAt(t *testing.T) {
	andWide(t, func(t *testing.T, x made) {
		s, e := mustSearch(t, x.model, x.layer), exact.NewSearcher(x.layer)
		rungs := x.model.Parts().Rungs
		rapid.Check(t, func(t *rapid.T) {
			k, req := drawRequest(t, x.model.Parts().Labels)
			req.Budget = rapid.SampledFrom(rungs).Draw(t, "rung").Kept
			h := x.contexts(1)
			got := make([]exact.Prediction, k)
			a, err := s.Search(got, h, req)
			if err != nil {
				t.Fatal(err)
			}
			want, among := make([]exact.Prediction, k), req
			among.Budget = 0
			if a.Source == exact.FromSet {
				if a.Count != k {
					t.Fatalf("found %d labels from previews, want %d", a.Count, k)
				}
				ids := slices.Clone(s.Look().IDs)
				slices.Sort(ids)
				if len(slices.Compact(slices.Clone(ids))) != len(ids) {
					t.Fatalf("found a label twice among those scored in full")
				}
				for _, id := range ids {
					if !exact.Permits(&req, id) {
						t.Fatalf("found label %d scored in full, which may not be answered", id)
					}
				}
				for _, b := range req.Biases {
					if _, found := slices.BinarySearch(ids, b.ID); exact.Permits(&req, b.ID) && !found {
						t.Fatalf("found label %d, which is biased, not scored in full", b.ID)
					}
				}
				among.Among = exact.Only(ids)
			}
			b, err := e.Search(want, h, among)
			if err != nil {
				t.Fatal(err)
			}
			if a.Count != b.Count || !slices.Equal(got[:a.Count], want[:b.Count]) {
				t.Fatalf("found %v, want %v", got[:a.Count], want[:b.Count])
			}
		})
	})
}

// coordinatesOf returns the coordinates of a context, and its probes.
func (m *maker) coordinatesOf(h []float32) []float64 {
	z, t := make([]float64, m.Coordinates+m.Probes), previewing.NewDirections(m.Turn, m.Width()).Turner()
	t.Turn(z, m.extended(h))
	return z
}

// A preview is near the logit of the label's coordinates.
func TestPreviewsAreTheLogitsInTheCoordinates(t *testing.T) {
	simdtest.Long(t)
	andWide(t, func(t *testing.T, x made) {
		m := x.maker
		s, r := mustSearch(t, x.model, x.layer), m.readers(m.through)()
		errors2, total := 0.0, 0.0
		for range 20 {
			h := x.contexts(1)
			if !s.Look().Coordinates(h) {
				t.Fatal("found a context without previews, expected one with them")
			}
			for j := range m.Stages() {
				s.Look().All(j)
			}
			z := m.coordinatesOf(h)
			for at, id := range m.IDs[:m.Labels-m.Outliers] {
				r.read(int(id))
				want := linear.Dot(r.a, z[:m.Coordinates])
				off := float64(s.Look().Scores[at]*s.Look().Scale) - want
				errors2, total = errors2+off*off, total+want*want
			}
		}
		if share := errors2 / total; !(share < 0.01) {
			t.Errorf("found a share of %v of the squares of previews wrong, want less than 0.01", share)
		}
	})
}

// E[zz^T] is 1 over the contexts that the coordinates are made from, and the probes estimate the
// part outside.
func TestCoordinatesAreWhite(t *testing.T) {
	simdtest.Long(t)
	both(t, func(t *testing.T, x made) {
		m := x.maker
		const n = 3000
		second := linear.New(m.Coordinates, m.Coordinates)
		outside, probed := 0.0, 0.0
		row := make([]float32, m.Width())
		for i := range n {
			h := x.contexts(1)
			z := m.coordinatesOf(h)
			for a := range m.Coordinates {
				linear.Axpy(second.Row(a), z[a]/n, z[:m.Coordinates])
			}
			if i >= 20 {
				continue
			}
			for _, p := range z[m.Coordinates:] {
				probed += p * p
			}
			rest := m.outsideOf(h, z)
			for id := 0; id < m.Labels; id += 3 {
				m.widen(row, id)
				logit := 0.0
				for j, v := range rest {
					logit += v * (float64(row[j]) - float64(m.Mean[j]))
				}
				outside += logit * logit / float64((m.Labels+2)/3)
			}
		}
		for a := range m.Coordinates {
			for b := range m.Coordinates {
				want := 0.0
				if a == b {
					want = 1
				}
				if off := math.Abs(second.Row(a)[b] - want); off > 0.25 {
					t.Errorf("E[z_%d z_%d]: found %v, want %v", a, b, second.Row(a)[b], want)
				}
			}
		}
		if ratio := probed / outside; ratio < 0.6 || ratio > 1.6 {
			t.Errorf("found %v outside the coordinates by probes, want about %v", probed, outside)
		}
	})
}

// outsideOf returns a context less its part in the coordinates.
func (m *maker) outsideOf(h []float32, z []float64) []float64 {
	rest := make([]float64, m.Width())
	for j, v := range m.extended(h) {
		rest[j] = float64(v)
		for r := range m.Coordinates {
			rest[j] -= float64(m.through[r*m.Width()+j]) * z[r]
		}
	}
	return rest
}

// misses returns the number of wanted labels that were not found.
func misses(found, want []exact.Prediction) (n int) {
	for _, p := range want {
		if !slices.ContainsFunc(found, func(q exact.Prediction) bool { return q.ID == p.ID }) {
			n++
		}
	}
	return n
}

// The best labels that a rung does not score are the labels that a search by it does not find.
func TestARungMissesWhatItLeavesOut(t *testing.T) {
	simdtest.Long(t)
	missed := 0
	both(t, func(t *testing.T, x made) {
		s, e := mustSearch(t, x.model, x.layer), exact.NewSearcher(x.layer)
		for range 200 {
			h := x.contexts(1)
			for _, k := range []int{1, 5, 40} {
				got, want := make([]exact.Prediction, k), make([]exact.Prediction, k)
				if _, err := e.TopK(want, h); err != nil {
					t.Fatal(err)
				}
				narrow := previewing.Rung{}
				for i, r := range append(slices.Clone(x.model.Parts().Rungs), narrow) {
					if _, err := s.Answer(got, h, &exact.Request{}, &r); err != nil {
						t.Fatal(err)
					}
					n := misses(got, want)
					missed += n
					first, all := leavesOut(s.Look(), h, want, &r)
					if all != n || first != misses(got[:1], want[:1]) {
						t.Fatalf("rung %d, k %d: found %d labels left out, the best among them: %d, want the %d that the search misses", i, k, all, first, n)
					}
				}
			}
		}
	})
	if missed == 0 {
		t.Error("found no label that is missed, want some: nothing was compared")
	}
}

// A panel's gauge after a stage is the largest part of a label's logits that the codes up to the
// stage leave, in root mean squares over contexts, over the root mean square of all labels.
func TestPanelsSayWhatTheirLabelsHaveLeft(t *testing.T) {
	simdtest.Long(t)
	andWide(t, func(t *testing.T, x made) {
		m, s := x.maker, mustSearch(t, x.model, x.layer)
		const n = 60
		inside, row := m.Labels-m.Outliers, make([]float32, m.Width())
		squares := make([][]float64, m.Stages())
		for j := range squares {
			squares[j] = make([]float64, inside)
		}
		for range n {
			h := x.contexts(1)
			if !s.Look().Coordinates(h) {
				t.Fatal("found a context without previews, expected one with them")
			}
			logits := make([]float64, inside)
			for at, id := range m.IDs[:inside] {
				m.widen(row, int(id))
				for k, v := range m.extended(h) {
					logits[at] += float64(v) * (float64(row[k]) - float64(m.Mean[k]))
				}
			}
			for j := range m.Stages() {
				scores := s.Look().All(j)
				for at, logit := range logits {
					off := logit - float64(scores[at]*s.Look().Scale)
					squares[j][at] += off * off / n
				}
			}
		}
		for j := range squares {
			mean := 0.0
			for _, x := range squares[j] {
				mean += x / float64(inside)
			}
			off := 0.0
			for panel := range m.Panels() {
				of := squares[j][panel*kernels.PanelRows : min((panel+1)*kernels.PanelRows, inside)]
				want := max(math.Sqrt(slices.Max(of)/mean), leastGauge)
				off += math.Abs(math.Log(float64(m.ResidualScale[j*m.Panels()+panel])/want)) / float64(m.Panels())
			}
			if off > 0.3 {
				t.Errorf("stage %d: found gauges that are off by %v of their logarithms, want at most 0.3", j, off)
			}
		}
	})
}

// A label that is farther below the best than a request wants is looked for no more: the answer is
// the one without a distance, cut there, and less is scored for it.
func TestADistanceSparesWork(t *testing.T) {
	andWide(t, func(t *testing.T, x made) {
		near, far := mustSearch(t, x.model, x.layer), mustSearch(t, x.model, x.layer)
		const n, k = 300, 40
		missed, wanted := 0, 0
		for range n {
			h := x.contexts(1)
			got, want := make([]exact.Prediction, k), make([]exact.Prediction, k)
			a, err := near.Search(got, h, exact.Request{Within: 0.5})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := far.Search(want, h, exact.Request{}); err != nil {
				t.Fatal(err)
			}
			cut := slices.IndexFunc(want, func(p exact.Prediction) bool { return p.Logit < want[0].Logit-0.5 })
			if cut < 0 {
				cut = k
			}
			missed, wanted = missed+misses(got[:a.Count], want[:cut]), wanted+cut
		}
		if missed > wanted/200 {
			t.Errorf("found %d of %d labels missed, want at most one in 200", missed, wanted)
		}
		if a, b := near.Look().Stats, far.Look().Stats; a.Kept >= b.Kept || a.Exact > b.Exact {
			t.Errorf("found %d labels scored and %d exact answers with a distance, want less than %d and %d", a.Kept, a.Exact, b.Kept, b.Exact)
		}
	})
}

// Other contexts of the same kind have the precision of the rungs, and the best rung finds nearly
// all labels.
func TestRungsSayHowPreciseSearchesAre(t *testing.T) {
	simdtest.Long(t)
	both(t, func(t *testing.T, x made) {
		s, e := mustSearch(t, x.model, x.layer), exact.NewSearcher(x.layer)
		rungs, normal := x.model.Parts().Rungs, x.model.Parts().Normal
		const n, k = 800, 5
		for i, r := range rungs {
			missed := 0
			for range n {
				h, got, want := x.contexts(1), make([]exact.Prediction, k), make([]exact.Prediction, k)
				if _, err := s.Search(got, h, exact.Request{Budget: r.Kept}); err != nil {
					t.Fatal(err)
				}
				if _, err := e.TopK(want, h); err != nil {
					t.Fatal(err)
				}
				missed += misses(got, want)
			}
			found := 1 - float64(missed)/(n*k)
			if found < r.PrecisionK.Low-0.03 || found > r.PrecisionK.High+0.03 {
				t.Errorf("rung %d: found precision %v, want about %+v", i, found, r.PrecisionK)
			}
			if i == len(rungs)-1 && found < 0.995 {
				t.Errorf("the last rung: found precision %v, want at least 0.995", found)
			}
		}
		if r := rungs[normal]; r.PrecisionK.Value < 0.998 {
			t.Errorf("the default: found precision %v, want at least 0.998", r.PrecisionK.Value)
		}
	})
}

// A budget is the last rung that does not score more labels, and a budget below all of them is the
// first.
func TestABudgetIsTheLastRungWithinIt(t *testing.T) {
	simdtest.Long(t)
	limit := previewing.MaxKeptShare
	previewing.MaxKeptShare = 1
	defer func() { previewing.MaxKeptShare = limit }()
	both(t, func(t *testing.T, x made) {
		all := x.model.Parts().Rungs
		m := withRungs(x.model, all[0], all[len(all)-1], whole)
		m.Parts().Rungs[0].Kept, m.Parts().Rungs[1].Kept, m.Parts().Normal = 10, 20, 1
		s := mustSearch(t, m, x.layer)
		var ways []*previewing.Searcher // of each rung
		for _, r := range m.Parts().Rungs {
			ways = append(ways, mustSearch(t, withRungs(x.model, r), x.layer))
		}
		search := func(s *previewing.Searcher, h []float32, budget float64) (list []exact.Prediction, kept uint64) {
			list, before := make([]exact.Prediction, 5), s.Look().Stats.Kept
			if _, err := s.Search(list, h, exact.Request{Budget: budget}); err != nil {
				t.Fatalf("budget %v: %v", budget, err)
			}
			return list, s.Look().Stats.Kept - before
		}
		var kept [3]uint64
		for range 100 {
			h := x.contexts(1)
			for budget, r := range map[float64]int{
				0: 1, math.SmallestNonzeroFloat64: 0, 1e-9: 0, math.Nextafter(10, 0): 0, 10: 0, math.Nextafter(20, 0): 0, 20: 1, 1e300: 2, math.Inf(1): 2,
			} {
				found, n := search(s, h, budget)
				want, of := search(ways[r], h, 0)
				if !slices.Equal(found, want) || n != of {
					t.Fatalf("budget %v: found %v, %d scored in full, expected %v and %d, as by rung %d", budget, found, n, want, of, r)
				}
				kept[r] += n
			}
		}
		if kept[0]/5 >= kept[2]/2 { // means over the budgets of a rung
			t.Errorf("found %d labels scored by the first rung and %d by the one that scores all, expected fewer", kept[0]/5, kept[2]/2)
		}
	})
}

// Contexts of another kind have a larger spread, and look farther: nearly all of their best labels
// are found.
func TestStrangeContextsAreAnsweredAsPrecisely(t *testing.T) {
	both(t, func(t *testing.T, x made) {
		s, e := mustSearch(t, x.model, x.layer), exact.NewSearcher(x.layer)
		const n, k = 400, 5
		missed := 0
		for i := range n {
			got, want := make([]exact.Prediction, k), make([]exact.Prediction, k)
			h := x.contexts(1)
			for j, more := range x.strange() {
				h[j] += more * float32(i) / n
			}
			a, err := s.Search(got, h, exact.Request{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := e.TopK(want, h); err != nil {
				t.Fatal(err)
			}
			if a.Source == exact.FromLayer && !slices.Equal(got, want) {
				t.Errorf("found %v from the layer, want %v", got, want)
			}
			missed += misses(got, want)
		}
		if missed > n*k/500 {
			t.Errorf("found %d of %d labels missed, want at most %d", missed, n*k, n*k/500)
		}
		if got := s.Look().Stats; got.Far < n/20 {
			t.Errorf("found %+v, want some of %d contexts far", got, n)
		}
	})
}

// A context with one huge element, which the layer does not use, is not rounded to that element
// alone: the best labels are found.
func TestAHugeElementHidesNoOthers(t *testing.T) {
	simdtest.Long(t)
	x := newData(t, 3000, 42, false, 2)
	const unused = 3
	w := make([]float32, x.layer.Labels()*x.dim)
	for id := range x.layer.Labels() {
		x.layer.Weights().Widen(w[id*x.dim:(id+1)*x.dim], id)
		w[id*x.dim+unused] = 0
	}
	var err error
	if x.layer, err = exact.NewLayer(kernels.Float32Rows(w, x.dim), nil); err != nil {
		t.Fatal(err)
	}
	s, e := mustSearch(t, mustMake(t, x, x.contexts(3000), Options{Coordinates: 16}), x.layer), exact.NewSearcher(x.layer)
	for _, times := range []float64{1, 100, 1e3, 1e4, 1e6, 1e20} {
		var missed, n int
		for range 100 {
			h := x.contexts(1)
			h[unused] = float32(times * math.Sqrt(kernels.RefDot(h, h)))
			got, want := make([]exact.Prediction, 5), make([]exact.Prediction, 5)
			if _, err := s.Search(got, h, exact.Request{}); err != nil {
				t.Fatal(err)
			}
			if _, err := e.TopK(want, h); err != nil {
				t.Fatal(err)
			}
			missed += misses(got, want)
			n += len(want)
		}
		if missed > n/100 {
			t.Errorf("an element of %g times the others: found %d of %d labels missed, want at most %d", times, missed, n, n/100)
		}
	}
}

// strange returns a context that no topic is near.
func (d *data) strange() []float32 {
	h := make([]float32, d.dim)
	for j := range h {
		h[j] = float32(3 * d.r.NormFloat64())
	}
	return h
}

// An answer does not depend on earlier queries of the searcher.
func TestAnswersDependOnTheContextAlone(t *testing.T) {
	x := plainOnce()
	one := mustSearch(t, x.model, x.layer)
	const n, k = 60, 5
	for i := range n {
		h := x.contexts(1)
		if i%3 == 0 {
			h = x.strange()
		}
		got, want := make([]exact.Prediction, k), make([]exact.Prediction, k)
		if i%2 == 0 {
			for range 20 {
				if _, err := one.Search(got, x.strange(), exact.Request{}); err != nil {
					t.Fatal(err)
				}
			}
		}
		a, err := one.Search(got, h, exact.Request{})
		if err != nil {
			t.Fatal(err)
		}
		b, err := mustSearch(t, x.model, x.layer).Search(want, h, exact.Request{})
		if err != nil {
			t.Fatal(err)
		}
		if a != b || !slices.Equal(got, want) {
			t.Errorf("context %d: found %v, %+v after others, %v, %+v first", i, got, a, want, b)
		}
	}
}

// The same model, to the bit, and the same answers on every level, with any number of threads.
func TestModelsAndAnswersAreTheSameEverywhere(t *testing.T) {
	andWide(t, func(t *testing.T, x made) {
		d := newData(t, 700, 20, x.maker.Biased > 0, 5)
		states := d.contexts(300)
		tests := d.contexts(30)
		var file []byte
		var answers []exact.Prediction
		threads := 1
		simdtest.EachLevel(t, func(t *testing.T) {
			threads++
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(threads))
			m := mustMake(t, d, states, Options{Coordinates: 8})
			s := mustSearch(t, m, d.layer)
			var found []exact.Prediction
			for at := 0; at < len(tests); at += d.dim {
				for _, r := range m.Parts().Rungs {
					top := make([]exact.Prediction, 3)
					a, err := s.Search(top, tests[at:at+d.dim], exact.Request{Budget: r.Kept, LogSum: true})
					if err != nil {
						t.Fatal(err)
					}
					found = append(append(found, top...), exact.Prediction{Logit: a.LogSum})
				}
			}
			data := fileOf(m)
			if file == nil {
				file, answers = data, found
			}
			if !bytes.Equal(data, file) || !slices.Equal(found, answers) {
				t.Errorf("found another model or other answers than on the first level")
			}
		})
	})
}

func TestQueriesAllocateNothing(t *testing.T) {
	andWide(t, func(t *testing.T, x made) {
		s := mustSearch(t, x.model, x.layer)
		banned := bitset.New(x.model.Parts().Labels)
		banned.Add(7)
		h, top := x.contexts(1), make([]exact.Prediction, 10)
		reqs := []exact.Request{{}, {LogSum: true}, {Banned: banned}, {Biases: []exact.Bias{{ID: 3, Add: 1}}}, {Exact: true}}
		ask := func() {
			for i, req := range reqs {
				k := []int{1, 5, 10}[i%3]
				if _, err := s.Search(top[:k], h[:x.dim], req); err != nil {
					t.Fatal(err)
				}
			}
		}
		ask() // the exact searcher grows
		if n := simdtest.AllocsPerRun(20, ask); n != 0 {
			t.Errorf("found %v allocations, want none", n)
		}
	})
}

// The sum is over all labels, with the error of the rung; sums over edited labels are exact.
func TestLogSums(t *testing.T) {
	both(t, func(t *testing.T, x made) {
		s, e := mustSearch(t, x.model, x.layer), exact.NewSearcher(x.layer)
		rungs := x.model.Parts().Rungs
		for i, r := range rungs {
			wrong := 0
			const n = 200
			for range n {
				h := x.contexts(1)
				a, err := s.Search(nil, h, exact.Request{LogSum: true, Budget: r.Kept})
				if err != nil {
					t.Fatal(err)
				}
				b, err := e.Search(make([]exact.Prediction, bestOfSums), h, exact.Request{LogSum: true})
				if err != nil {
					t.Fatal(err)
				}
				if math.Abs(a.LogSum-b.LogSum) > 1.2*r.LogSumOff+1e-4 {
					wrong++
				}
			}
			if wrong > n/8 {
				t.Errorf("rung %d: found %d of %d log-sums off by more than 1.2 times %v, want one in twenty", i, wrong, n, r.LogSumOff)
			}
		}
		banned := bitset.New(x.model.Parts().Labels)
		for id := range 100 {
			banned.Add(uint32(7 * id))
		}
		far := x.contexts(1)
		for i := range far {
			far[i] *= 50
		}
		for _, req := range []exact.Request{{LogSum: true, Banned: banned}, {LogSum: true, ExactSum: true},
			{LogSum: true, Temperature: 0.1}, {LogSum: true, Temperature: 30}, {LogSum: true}} {
			h, got, want := x.contexts(1), make([]exact.Prediction, 3), make([]exact.Prediction, 3)
			if !exact.Edits(&req) && !req.ExactSum && req.Temperature == 0 {
				h = far
			}
			a, err := s.Search(got, h, req)
			if err != nil {
				t.Fatal(err)
			}
			if b, err := e.Search(want, h, req); err != nil || a.LogSum != b.LogSum {
				t.Errorf("found a log-sum of %v, want %v; %v", a.LogSum, b.LogSum, err)
			}
		}
	})
}

// A rung with infinite distances looks at all labels that may be answered, and at no others.
func TestDistancesBeyondAllNumbers(t *testing.T) {
	both(t, func(t *testing.T, x made) {
		banned := bitset.New(x.model.Parts().Labels)
		for id := range 100 {
			banned.Add(uint32(3 * id))
		}
		e := exact.NewSearcher(x.layer)
		for _, distance := range []float64{1e38, 1e308, math.MaxFloat64} {
			s := mustSearch(t, withRungs(x.model, previewing.Rung{Deviations: distance, Reach: distance, Kept: 1e9}), x.layer)
			for range 50 {
				h, got, want := x.contexts(1), make([]exact.Prediction, 20), make([]exact.Prediction, 20)
				req := exact.Request{Banned: banned}
				if _, err := s.Search(got, h, req); err != nil {
					t.Fatal(err)
				}
				if _, err := e.Search(want, h, req); err != nil || !slices.Equal(got, want) {
					t.Fatalf("distances of %v: found %v, %v, expected %v", distance, got, err, want)
				}
			}
		}
	})
}

// No log-sum is above the best logit plus the log of the number of labels, however far apart the
// logits are.
func TestLogSumsArePossible(t *testing.T) {
	simdtest.Long(t)
	const labels, dim, n = 4000, 20, 1000
	r := rand.New(rand.NewPCG(4, 2))
	draw := func(n int, scale float64) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(scale * r.NormFloat64())
		}
		return x
	}
	l, err := exact.NewLayer(kernels.Float32Rows(draw(labels*dim, 3), dim), nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := Make(context.Background(), l, draw(n*dim, 1.5), Options{Coordinates: 16})
	if err != nil && !errors.Is(err, precision.ErrTarget) {
		t.Fatal(err)
	}
	if m == nil {
		t.Fatal("found no model, expected one")
	}
	s, estimates := mustSearch(t, m, l), 0
	for range 2000 { // the exact layer answers most: labels of such a layer look alike
		h, best := draw(dim, 1.5), make([]exact.Prediction, 1)
		a, err := s.Search(best, h, exact.Request{LogSum: true, Budget: m.Parts().Rungs[0].Kept})
		if err != nil {
			t.Fatal(err)
		}
		if a.Source == exact.FromSet {
			estimates++
		}
		if most := best[0].Logit + math.Log(labels); a.LogSum > most+1e-3 || a.LogSum < best[0].Logit-1e-3 {
			t.Errorf("found a log-sum of %v, expected %v to %v", a.LogSum, best[0].Logit, most)
		}
	}
	if estimates < 20 {
		t.Errorf("found %d estimates, expected some", estimates)
	}
}

// A layer of which any label may be among the best has no preview, and Make returns an error.
func TestAFlatLayerHasNoPreview(t *testing.T) {
	simdtest.Long(t)
	const labels, dim, n = LeastLabels, 128, 400
	r := rand.New(rand.NewPCG(1, 2))
	draw := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	l, err := exact.NewLayer(kernels.Float32Rows(draw(labels*dim), dim), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Make(context.Background(), l, draw(n*dim), Options{Coordinates: 16}); !errors.Is(err, precision.ErrTarget) {
		t.Errorf("found %v, expected an error of the precision", err)
	}
}

func TestWhatIsRefused(t *testing.T) {
	x := plainOnce()
	s := mustSearch(t, x.model, x.layer)
	h := x.contexts(1)
	with := func(v float32) []float32 { y := slices.Clone(h); y[3] = v; return y }
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	top := make([]exact.Prediction, 2)
	for _, c := range []struct {
		name, want string
		kind       error
		call       func() error
	}{
		{"NaN", "found NaN at element 3", exact.ErrContext, func() error { _, err := s.Search(top, with(nan), exact.Request{}); return err }},
		{"infinity", "found +Inf at element 3", exact.ErrContext, func() error { _, err := s.Search(top, with(inf), exact.Request{}); return err }},
		{"a short context", "found 41 elements", exact.ErrContext, func() error { _, err := s.Search(top, h[1:], exact.Request{}); return err }},
		{"k of 0", "k: found 0", exact.ErrRequest, func() error { _, err := s.Search(nil, h, exact.Request{}); return err }},
		{"a negative budget", "budget: found -1", exact.ErrRequest, func() error { _, err := s.Search(top, h, exact.Request{Budget: -1}); return err }},
		{"a budget of NaN", "budget: found NaN", exact.ErrRequest, func() error {
			_, err := s.Search(top, h, exact.Request{Budget: math.NaN()})
			return err
		}},
		{"another layer", "fingerprint: found", exact.ErrLayer, func() error {
			_, err := previewing.NewSearcher(x.model, newData(t, 3000, 42, false, 99).layer)
			return err
		}},
		{"another shape", "index: found a preview for ", exact.ErrLayer, func() error {
			_, err := previewing.NewSearcher(x.model, newData(t, 300, 42, false, 99).layer)
			return err
		}},
		{"no model", "no model", nil, func() error { _, err := previewing.NewSearcher(nil, x.layer); return err }},
		{"few states", "states: found 48", nil, func() error { _, err := Make(t.Context(), x.layer, x.contexts(64), Options{}); return err }},
		{"ragged states", "expected rows of 42", nil, func() error { _, err := Make(t.Context(), x.layer, make([]float32, 43), Options{}); return err }},
		{"states of zeros", "mean square", nil, func() error { _, err := Make(t.Context(), x.layer, make([]float32, 42*200), Options{}); return err }},
		{"states that are not finite", "found NaN at element 3", nil, func() error {
			_, err := Make(t.Context(), x.layer, append(x.contexts(100), with(nan)...), Options{HeldOut: x.contexts(2)})
			return err
		}},
		{"a k above the labels", "k 3001", nil, func() error { _, err := Make(t.Context(), x.layer, x.contexts(200), Options{K: 3001}); return err }},
		{"a precision above 1", "precision 2", nil, func() error {
			_, err := Make(t.Context(), x.layer, x.contexts(200), Options{PrecisionK: 2})
			return err
		}},
		{"no layer", "layer: found nil", nil, func() error { _, err := Make(t.Context(), nil, nil, Options{}); return err }},
	} {
		if err := c.call(); err == nil || !strings.Contains(err.Error(), c.want) || c.kind != nil && !errors.Is(err, c.kind) {
			t.Errorf("%s: found error %v, want one with %q, a %v", c.name, err, c.want, c.kind)
		}
	}
}

// Contexts of extreme numbers are answered exactly.
func TestExtremeContexts(t *testing.T) {
	x := plainOnce()
	s, e := mustSearch(t, x.model, x.layer), exact.NewSearcher(x.layer)
	for _, scale := range []float32{0, 1e-42, 1e-30, 1e20, 1e36} {
		h := x.contexts(1)
		for j := range h {
			h[j] *= scale
		}
		got, want := make([]exact.Prediction, 5), make([]exact.Prediction, 5)
		if _, err := s.Search(got, h, exact.Request{}); err != nil {
			t.Fatal(err)
		}
		if _, err := e.TopK(want, h); err != nil || !slices.Equal(got, want) {
			t.Errorf("scale %v: found %v, want %v; %v", scale, got, want, err)
		}
	}
}

// Shapes at the edges: fewer labels than coordinates, than a panel, than k; one label; equal rows.
func TestSmallLayers(t *testing.T) {
	for _, c := range []struct{ labels, dim int }{{1, 1}, {2, 3}, {15, 5}, {17, 70}, {130, 9}} {
		for _, biased := range []bool{false, true} {
			d := newData(t, c.labels, c.dim, biased, 3)
			m := mustMake(t, d, d.contexts(200), Options{})
			m, err := previewing.Read("preview", bytes.NewReader(fileOf(m)), -1)
			if err != nil {
				t.Fatal(err)
			}
			s, e := mustSearch(t, m, d.layer), exact.NewSearcher(d.layer)
			for range 20 {
				for k := 1; k <= min(c.labels, 6); k++ {
					h, got, want := d.contexts(1), make([]exact.Prediction, k), make([]exact.Prediction, k)
					if _, err := s.Search(got, h, exact.Request{LogSum: true}); err != nil {
						t.Fatal(err)
					}
					if _, err := e.TopK(want, h); err != nil {
						t.Fatal(err)
					}
					if got[0].Logit < want[0].Logit && c.labels < 64 {
						t.Errorf("%d labels: found %v, want %v", c.labels, got, want)
					}
				}
			}
		}
	}
	same := make([]float32, 100*4)
	for i := range same {
		same[i] = float32(1 + i%4)
	}
	layer, err := exact.NewLayer(kernels.Float32Rows(same, 4), nil)
	if err != nil {
		t.Fatal(err)
	}
	d := newData(t, 10, 4, false, 3)
	m, err := Make(t.Context(), layer, d.contexts(200), Options{})
	if err != nil {
		t.Fatal(err)
	}
	top := make([]exact.Prediction, 3)
	if _, err := mustSearch(t, m, layer).Search(top, d.contexts(1), exact.Request{}); err != nil || top[0].ID != 0 || top[1].ID != 1 || top[2].ID != 2 {
		t.Errorf("found %v, %v, want the lowest of equal labels", top, err)
	}
}

func TestMakeEndsWithItsContext(t *testing.T) {
	d := newData(t, 2000, 30, false, 2)
	for stop := range 4 {
		ctx, cancel := context.WithCancel(t.Context())
		var stages []string
		_, err := Make(ctx, d.layer, d.contexts(400), Options{Progress: func(stage string, done float64) {
			if !slices.Contains(stages, stage) {
				stages = append(stages, stage)
			}
			if done < 0 || done > 1 {
				t.Errorf("found progress %v of %s, want 0 to 1", done, stage)
			}
			if len(stages) > stop {
				cancel()
			}
		}})
		if stop == 2 { // the fingerprint is not interrupted, the later work is
			stop = 3
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("stopped at stage %d: found %v, want one that wraps %v", stop, err, context.Canceled)
		}
		cancel()
	}
}

func TestModelsRoundTrip(t *testing.T) {
	andWide(t, func(t *testing.T, x made) {
		path := filepath.Join(t.TempDir(), "m.l2p")
		if err := x.model.Save(path); err != nil {
			t.Fatal(err)
		}
		file, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		m, err := previewing.Read("preview", bytes.NewReader(file), -1)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(fileOf(m), fileOf(x.model)) {
			t.Error("found other bytes after a load, want the same")
		}
		s, o := mustSearch(t, m, x.layer), mustSearch(t, x.model, x.layer)
		for range 50 {
			h, got, want := x.contexts(1), make([]exact.Prediction, 5), make([]exact.Prediction, 5)
			_, err1 := s.Search(got, h, exact.Request{})
			_, err2 := o.Search(want, h, exact.Request{})
			if err1 != nil || err2 != nil || !slices.Equal(got, want) {
				t.Fatalf("found %v, want %v; %v, %v", got, want, err1, err2)
			}
		}
	})
}

// A label with previews that tell little of its logits, since its coordinates are too large for
// codes or its row has a direction for itself, is found by every rung, unless the request forbids
// it.
func TestOutliersAreFound(t *testing.T) {
	simdtest.Long(t)
	const labels, dim, large, alone = 2048, 32, 700, 900
	d := newData(t, labels, dim, false, 5)
	w := make([]float32, labels*dim)
	for id := range labels {
		d.layer.Weights().Widen(w[id*dim:(id+1)*dim], id)
	}
	for j := range dim {
		w[large*dim+j] *= 8
	}
	w[alone*dim+dim-1] = 20 // the contexts of the making hardly have it
	layer, err := exact.NewLayer(kernels.Float32Rows(w, dim), nil)
	if err != nil {
		t.Fatal(err)
	}
	d.layer = layer
	m := mustMake(t, d, d.contexts(1500), Options{Coordinates: 16, Precision1: 0.5, PrecisionK: 0.5})
	outliers := m.Parts().IDs[labels-m.Parts().Outliers:]
	if !slices.Contains(outliers, large) || !slices.Contains(outliers, alone) || len(outliers) > labels/labelsPerOutlier {
		t.Fatalf("found the outliers %v, expected %d and %d among at most %d", outliers, large, alone, labels/labelsPerOutlier)
	}
	again, err := previewing.Read("preview", bytes.NewReader(fileOf(m)), -1)
	if err != nil {
		t.Fatal(err)
	}
	exactly, dst, want := exact.NewSearcher(layer), make([]exact.Prediction, 1), make([]exact.Prediction, 1)
	for _, m := range []*previewing.Model{m, again} {
		s := mustSearch(t, m, layer)
		for i := range 50 {
			h := d.contexts(1)
			if h[dim-1] = 5; i%2 == 1 { // along a row
				copy(h, w[large*dim:(large+1)*dim])
			}
			if _, err := exactly.TopK(want, h); err != nil {
				t.Fatal(err)
			}
			if id := want[0].ID; id != alone && id != large {
				t.Fatalf("found the best label %d, expected an outlier", id)
			}
			for _, r := range m.Parts().Rungs {
				a, err := s.Search(dst, h, exact.Request{Budget: r.Kept})
				if err != nil || a.Count != 1 || dst[0] != want[0] {
					t.Fatalf("found %v, %+v, %v, expected %v", dst, a, err, want)
				}
			}
			banned := bitset.New(labels)
			banned.Add(want[0].ID)
			if a, err := s.Search(dst, h, exact.Request{Banned: banned}); err != nil || a.Count != 1 || dst[0].ID == want[0].ID {
				t.Fatalf("found %v, %+v, %v, expected another label than the banned %d", dst, a, err, want[0].ID)
			}
		}
	}
}

// Some labels of huge rows or biases, as tokens have that are not to be written, do not decide
// the coordinates and blocks of the others.
func TestHugeRowsAreSetApart(t *testing.T) {
	simdtest.Long(t)
	const labels, dim = 4096, 32
	for name, change := range map[string]func(row []float32, bias *float32){
		"bias -1e9":  func(_ []float32, bias *float32) { *bias = -1e9 },
		"bias -1e30": func(_ []float32, bias *float32) { *bias = -1e30 },
		"bias 1e6":   func(_ []float32, bias *float32) { *bias = 1e6 },
		"row x 1e6": func(row []float32, _ *float32) {
			for j := range row {
				row[j] *= 1e6
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newData(t, labels, dim, true, 6)
			states := d.contexts(1500)
			before := mustMake(t, d, states, Options{Coordinates: 16})
			w, bias := make([]float32, labels*dim), slices.Clone(d.layer.Bias())
			for id := range labels {
				d.layer.Weights().Widen(w[id*dim:(id+1)*dim], id)
			}
			for id := 0; id < labels; id += labels / 50 {
				change(w[id*dim:(id+1)*dim], &bias[id])
			}
			var err error
			if d.layer, err = exact.NewLayer(kernels.Float32Rows(w, dim), bias); err != nil {
				t.Fatal(err)
			}
			m := mustMake(t, d, states, Options{Coordinates: 16})
			for id, outliers := 0, m.Parts().IDs[labels-m.Parts().Outliers:]; id < labels; id += labels / 50 {
				if !slices.Contains(outliers, uint32(id)) {
					t.Errorf("found the outliers %v, expected %d among them", outliers, id)
				}
			}
			more := m.Parts().Outliers - before.Parts().Outliers // which are always scored
			if same := slices.Equal(m.Parts().Steps, before.Parts().Steps); !same && m.Parts().Rungs[m.Parts().Normal].Kept-float64(more) > 2*before.Parts().Rungs[before.Parts().Normal].Kept+labels/100 {
				t.Errorf("found %v labels scored in full, expected about the %v without huge rows", m.Parts().Rungs[m.Parts().Normal].Kept, before.Parts().Rungs[before.Parts().Normal].Kept)
			}
			if p := m.Parts().Rungs[m.Parts().Normal].Precision1; p.High < 0.9995 {
				t.Errorf("found P@1 %+v, expected .9995 within it", p)
			}
		})
	}
}

// No bound cuts off labels that look alike: they are scored in full, or the exact layer answers. So
// a search that looks farther misses less, in unusual contexts too.
func TestWhoLooksFartherMissesLess(t *testing.T) {
	simdtest.Long(t)
	both(t, func(t *testing.T, x made) {
		exactly := exact.NewSearcher(x.layer)
		missed, scored := make([]int, 3), make([]uint64, 3)
		const n, k = 300, 3
		var list []*previewing.Searcher
		for i := range missed {
			list = append(list, mustSearch(t, withRungs(x.model, previewing.Rung{Deviations: []float64{0.1, 0.5, 3}[i], Reach: []float64{0.5, 2, 6}[i], Kept: 1e9}), x.layer))
		}
		want, got := make([]exact.Prediction, k), make([]exact.Prediction, k)
		for i := range n {
			h := x.contexts(1)
			if i%2 == 1 {
				h = x.strange()
			}
			if _, err := exactly.TopK(want, h); err != nil {
				t.Fatal(err)
			}
			for i, s := range list {
				before := s.Look().Stats.Kept
				a, err := s.Search(got, h, exact.Request{})
				if err != nil {
					t.Fatal(err)
				}
				missed[i] += misses(got, want)
				scored[i] += s.Look().Stats.Kept - before
				if kept := int(s.Look().Stats.Kept - before); kept > x.maker.Crowd(k)+x.maker.Outliers || a.Source == exact.FromLayer && kept > 0 {
					t.Fatalf("found %d labels scored in full, expected at most %d, or the exact layer", kept, x.maker.Crowd(k)+x.maker.Outliers)
				}
			}
		}
		if !(missed[0] >= missed[1] && missed[1] >= missed[2] && missed[2] <= n*k/500) {
			t.Errorf("found %d missed labels, of %d, in searches that look farther and farther, expected no more in a wider one", missed, n*k)
		}
		if scored[0] == 0 {
			t.Errorf("found %d labels scored in full, expected some", scored)
		}
	})
}

// Searches for few labels find the best of searches for more, and a larger budget keeps what a
// smaller one found: the labels scored in full are the same, or more.
func TestFewAreTheFirstOfMoreAndLargerBudgetsKeepWhatSmallerOnesFound(t *testing.T) {
	simdtest.Long(t)
	andWide(t, func(t *testing.T, x made) {
		s := mustSearch(t, x.model, x.layer)
		rungs := []previewing.Rung{{}, {Reach: 0.5, Deviations: 0.2}, {Reach: 1, Deviations: 0.5}, {Reach: 2, Deviations: 0.5}, {Reach: 5, Deviations: 3}}
		for i := range 200 {
			h := x.contexts(1)
			if i%2 == 1 {
				h = x.strange()
			}
			var before []uint32
			for j, r := range rungs {
				var few []exact.Prediction
				for _, k := range []int{1, 5, 40} {
					got := make([]exact.Prediction, k)
					a, err := s.Answer(got, h, &exact.Request{}, &r)
					if err != nil || a.Count != k {
						t.Fatal(a, err)
					}
					if !slices.Equal(got[:len(few)], few) {
						t.Fatalf("rung %d, k %d: found %v, want %v first", j, k, got, few)
					}
					few = got
				}
				if s.Look().Stats.Crowded > 0 { // the exact layer answers, which keeps all
					break
				}
				ids := slices.Sorted(slices.Values(s.Look().IDs))
				for _, id := range before {
					if _, found := slices.BinarySearch(ids, id); !found {
						t.Fatalf("rung %d: found %d no more, which a smaller one scored", j, id)
					}
				}
				before = ids
			}
			s.Look().Stats = previewing.Stats{}
		}
	})
}

func TestABudgetNamesOneRung(t *testing.T) {
	both(t, func(t *testing.T, x made) {
		for i := 1; i < len(x.model.Parts().Rungs); i++ {
			if a, b := x.model.Parts().Rungs[i-1], x.model.Parts().Rungs[i]; !(a.Kept < b.Kept) {
				t.Errorf("found rungs of %v and %v labels, expected ascending numbers", a.Kept, b.Kept)
			}
		}
	})
}

// The best labels below many banned ones are found about as surely as the best of all, by the preview
// unless these are so many that it asks the layer.
func TestBansDoNotLowerPrecision(t *testing.T) {
	simdtest.Long(t)
	both(t, func(t *testing.T, x made) {
		s, e := mustSearch(t, x.model, x.layer), exact.NewSearcher(x.layer)
		for _, banned := range []int{0, 4, 16, 64} {
			const contexts, k, most = 400, 5, 25
			missed, layer := 0, 0
			for range contexts {
				h := x.contexts(1)
				all, got := make([]exact.Prediction, banned+k), make([]exact.Prediction, k)
				if _, err := e.TopK(all, h); err != nil {
					t.Fatal(err)
				}
				ban := bitset.New(x.layer.Labels())
				for _, p := range all[:banned] {
					ban.Add(p.ID)
				}
				a, err := s.Search(got, h, exact.Request{Banned: ban})
				if err != nil {
					t.Fatal(err)
				}
				if a.Source == exact.FromLayer {
					layer++
				}
				missed += misses(got, all[banned:])
			}
			if banned <= 16 && layer > contexts/20 { // below more the mark is too far down
				t.Errorf("below %d banned labels: found %d of %d contexts answered by the layer, want few", banned, layer, contexts)
			}
			if missed > most {
				t.Errorf("below %d banned labels: found %d of %d labels missed, want at most %d", banned, missed, contexts*k, most)
			}
		}
	})
}

// Biases decide about short contexts, which no held-out context is like: the preview looks farther,
// and the exact layer answers about the shortest ones.
func TestShortContextsOfALayerWithBiases(t *testing.T) {
	x := biasedOnce()
	s, e := mustSearch(t, x.model, x.layer), exact.NewSearcher(x.layer)
	got, want := make([]exact.Prediction, 5), make([]exact.Prediction, 5)
	for _, factor := range []float32{0, 1e-6, 0.01, 0.1, 0.3, 0.6} {
		missed := 0
		for range 100 {
			h := x.contexts(1)
			for j := range h {
				h[j] *= factor
			}
			a, err := s.Search(got, h, exact.Request{})
			if err != nil {
				t.Fatal(err)
			}
			if factor < 0.1 && a.Source != exact.FromLayer {
				t.Errorf("factor %v: found an answer of the preview, want one of the layer", factor)
			}
			if _, err := e.TopK(want, h); err != nil {
				t.Fatal(err)
			}
			missed += misses(got, want)
		}
		if missed > 3 {
			t.Errorf("factor %v: found %d of 500 labels missed, want at most 3", factor, missed)
		}
	}
}

// Texts to come are of other kinds than held-out contexts: the normal rung looks as far as finds nearly all
// labels that lead there, also where a fast rung would do.
func TestTheNormalRungLooksFarForOtherTexts(t *testing.T) {
	simdtest.Long(t)
	both(t, func(t *testing.T, x made) {
		m := x.maker
		if r := m.Rungs[m.Normal]; r.Reach < previewing.LeastReach || r.Deviations < leastDeviations {
			t.Errorf("found the reach %v and the deviations %v, expected %v and %v at least", r.Reach, r.Deviations, previewing.LeastReach, float64(leastDeviations))
		}
	})
}

// The first setting without misses is the smallest that is enough for each label.
func TestTheFirstSettingWithoutMissesIsTheLeast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		needs := rapid.SliceOfN(rapid.Float32Range(3, 9), 1, 20).Draw(t, "needs")
		v := survey{n: len(needs), k: 1}
		for _, x := range needs {
			v.best = append(v.best, need{reach: x})
		}
		found := v.options(reaches, nil, nil, func(n need) float32 { return n.reach })[0]
		most := float64(slices.Max(needs))
		at := slices.Index(reaches, found.bound)
		if missed := found.missed.Count(); missed != 0 || found.bound < most || at > 0 && reaches[at-1] >= most {
			t.Fatalf("found the reach %v with %v missed, expected the first of at least %v", found.bound, missed, most)
		}
	})
}

// A best label that takes both a far look and many deviations, as one of a row that codes tell little of
// does, is one miss, so it does not make all searches look farther.
func TestALabelThatBothSettingsMissIsOneMiss(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) need {
			return need{rapid.Float32Range(0, 9).Draw(t, "reach"), rapid.Float32Range(0, 9).Draw(t, "deviations")}
		}), 1, 20).Draw(t, "needs")
		v := survey{n: len(list), k: 1, best: list}
		looks := v.options([]float64{4}, nil, nil, func(n need) float32 { return n.reach })
		keeps := v.options([]float64{4}, nil, nil, func(n need) float32 { return n.deviations })
		missed := 0
		for _, n := range list {
			if n.reach > 4 || n.deviations > 4 {
				missed++
			}
		}
		found, want := v.pairs(looks, keeps)[0], float64(missed)/float64(len(list))
		if math.Abs(found.miss1-want) > 1e-9 || math.Abs(found.missK-want) > 1e-9 {
			t.Fatalf("found misses of %v and %v, expected %v", found.miss1, found.missK, want)
		}
	})
}

// A log-sum without labels is estimated beside labels of Also as it is without them.
func TestSumsBesideLabels(t *testing.T) {
	x := plainOnce()
	s := mustSearch(t, x.model, x.layer)
	sets := 0
	for i := range 40 {
		h := x.contexts(1)
		plain, err := s.Search(nil, h, exact.Request{LogSum: true})
		if err != nil {
			t.Fatal(err)
		}
		beside, err := s.Search(nil, h, exact.Request{LogSum: true, Also: []uint32{uint32(i), uint32(x.model.Parts().Labels - 1 - i)}})
		if err != nil {
			t.Fatal(err)
		}
		if plain.Source != beside.Source || math.Abs(plain.LogSum-beside.LogSum) > 1e-9 {
			t.Errorf("context %d: found %v by %v beside labels, want %v by %v", i, beside.LogSum, beside.Source, plain.LogSum, plain.Source)
		}
		if plain.Source == exact.FromSet {
			sets++
		}
	}
	if sets == 0 {
		t.Error("found no estimate, expected some: nothing was compared")
	}
}
