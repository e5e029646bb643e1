package evaluate

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/precision"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

// ownLayer returns a layer with biases, and states that vary most along the first elements.
func ownLayer(t *testing.T, labels, d, n int) (*exact.Layer, []float32) {
	r := rand.New(rand.NewPCG(1, 2))
	w, b, states := make([]float32, labels*d), make([]float32, labels), make([]float32, n*d)
	for i := range w {
		w[i] = float32(r.NormFloat64())
	}
	for i := range b {
		b[i] = float32(r.NormFloat64())
	}
	for i := range states {
		states[i] = 1 + float32(r.NormFloat64()*3/math.Sqrt(float64(1+i%d)))
	}
	l, err := exact.NewLayer(kernels.Float32Rows(w, d), b)
	if err != nil {
		t.Fatal(err)
	}
	return l, states
}

// searchFor is a Method of exact searches, except for labels that it hides. It keeps the states that it is
// asked about.
type searchFor struct {
	s      *exact.Searcher
	hidden []uint32
	mu     *sync.Mutex
	states map[uint32][]float32 // nil: not kept
}

func (m searchFor) TopK(dst []exact.Prediction, h []float32) (int, error) {
	all := make([]exact.Prediction, len(dst)+len(m.hidden))
	n, err := m.s.TopK(all, h)
	all = slices.DeleteFunc(all[:n], func(p exact.Prediction) bool { return slices.Contains(m.hidden, p.ID) })
	return copy(dst, all), err
}

func (m searchFor) Finds(id uint32, h []float32) (int, bool, error) {
	if m.states != nil {
		m.mu.Lock()
		m.states[id] = slices.Clone(h)
		m.mu.Unlock()
	}
	if slices.Contains(m.hidden, id) {
		return 1, true, nil
	}
	return 0, false, nil
}

// methods returns what makes exact methods that hide labels, and keep states.
func methods(l *exact.Layer, states map[uint32][]float32, hidden ...uint32) func() Method {
	mu := new(sync.Mutex)
	return func() Method { return searchFor{exact.NewSearcher(l), hidden, mu, states} }
}

func outcomesOf(t *testing.T, o *Own, ids []uint32, fresh func() Method) []int {
	t.Helper()
	outcomes, err := o.Outcomes(context.Background(), ids, 0, fresh, nil)
	if err != nil {
		t.Fatal(err)
	}
	return outcomes
}

func newOwn(t *testing.T, l *exact.Layer, states []float32) *Own {
	t.Helper()
	o, err := NewOwn(context.Background(), l, states)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// The own state of a label by its definition, from all logits: h + x u of a base h for the smallest x
// of at least 0 with which the label leads every other by 3 and a 64th. NaN if none does.
func smallest(l *exact.Layer, id uint32, h, u []float32) float64 {
	d, labels := l.Dim(), l.Labels()
	logits, slopes := make([]float64, labels), make([]float64, labels)
	w, _ := kernels.AsFloat32(l.Weights())
	for s := range labels {
		logits[s] = float64(l.Bias()[s])
		for j := range d {
			logits[s] += float64(w[s*d+j]) * float64(h[j])
			slopes[s] += float64(w[s*d+j]) * float64(u[j])
		}
	}
	least, most := 0.0, math.Inf(1)
	for s := range labels {
		lead, slope := logits[id]-logits[s]-ownAim, slopes[id]-slopes[s]
		switch {
		case uint32(s) == id:
		case slope > 0:
			least = max(least, -lead/slope)
		case slope < 0:
			most = min(most, lead/-slope)
		case lead < 0:
			return math.NaN()
		}
	}
	if least > most {
		return math.NaN()
	}
	return least
}

// Every own state is as defined: on the line of its label, at the first place where it leads all
// others by 3, and as long as real states at most; a label without one has no such place.
func TestOwnStatesAreAsDefined(t *testing.T) {
	l, states := ownLayer(t, 300, 12, 2000)
	o, found := newOwn(t, l, states), map[uint32][]float32{}
	ids := OwnSample(l.Labels(), l.Labels(), 0)
	outcomes := outcomesOf(t, o, ids, methods(l, found))
	f := newOwnFinder(o, methods(l, nil)())
	some := [2]int{}
	for i, id := range ids {
		base := &o.bases[scattered(0, uint64(id))%uint64(len(o.bases))]
		if !f.begin(id, base) {
			t.Fatalf("label %d: found no line", id)
		}
		want := smallest(l, id, base.h, f.u)
		off := math.Abs(want - f.most)
		if outcomes[i] == NoState {
			some[0]++
			if want < f.most && off > 1e-3 {
				t.Errorf("label %d: found no state, expected the one at %v, below %v", id, want, f.most)
			}
			continue
		}
		some[1]++
		if !(want <= f.most) && !(off < 0.1) { // the aim is above the lead, so that a state may end just before
			t.Errorf("label %d: found a state, expected none: %v, at most %v", id, want, f.most)
			continue
		}
		x, best := found[id], make([]exact.Prediction, 2)
		if _, err := exact.NewSearcher(l).TopK(best, x); err != nil {
			t.Fatal(err)
		}
		lead := best[0].Logit - best[1].Logit
		if base := lead > OwnLead+1.0/32; best[0].ID != id || lead < OwnLead || base && !slices.Equal(x, o.baseOf(id).h) {
			t.Errorf("label %d: found the leader %d by %v, expected the label by %d, and little more", id, best[0].ID, lead, OwnLead)
		}
		square := 0.0
		for j := range x {
			square += float64(x[j]-base.h[j]) * float64(x[j]-base.h[j]) / (float64(f.u[j]) * float64(f.u[j])) / float64(len(x))
		}
		if at := math.Sqrt(square); math.Abs(at-want) > 0.05 {
			t.Errorf("label %d: found the state at %v, expected %v", id, at, want)
		}
	}
	if some[0] < 20 || some[1] < 20 {
		t.Errorf("found %d labels without and %d with a state, expected some of both", some[0], some[1])
	}
}

func (o *Own) baseOf(id uint32) *ownBase {
	return &o.bases[scattered(0, uint64(id))%uint64(len(o.bases))]
}

// A length in deviations: it is that of z if the state is mean + L z, L L^T the covariance.
func TestLengthsAreInDeviations(t *testing.T) {
	l, states := ownLayer(t, 20, 12, 4000)
	o := newOwn(t, l, states)
	mean, n := 0.0, 0
	for _, b := range o.bases {
		square := 0.0
		for j, x := range b.h {
			off := (float64(x) - 1) / 3
			square += off * off * float64(1+j)
		}
		if math.Abs(b.square-square) > 0.15*square {
			t.Errorf("found the square %v, expected about %v", b.square, square)
		}
		mean, n = mean+b.square, n+1
	}
	if mean /= float64(n); math.Abs(mean-12) > 0.5 {
		t.Errorf("found squares of %v on average, expected about the dimension, 12", mean)
	}
	if n < 1000 || o.limit < 28 || o.limit > 38 { // 99.9% of chi-squared with 12 degrees are below 32.9
		t.Errorf("found %d bases and the limit %v, expected 32.9, about", n, o.limit)
	}
}

// What a method hides is missed, and nothing else, though its own hints leave out hidden labels, which
// may lead.
func TestHiddenLabelsAreMissed(t *testing.T) {
	l, states := ownLayer(t, 300, 12, 2000)
	o, ids := newOwn(t, l, states), OwnSample(l.Labels(), l.Labels(), 0)
	open := outcomesOf(t, o, ids, methods(l, nil))
	var withState, without []uint32
	for i, id := range ids {
		if open[i] == NoState {
			without = append(without, id)
		} else {
			withState = append(withState, id)
		}
	}
	hidden := append(slices.Clone(withState[:9]), without[:4]...)
	outcomes := outcomesOf(t, o, ids, methods(l, nil, hidden...))
	missed := 0
	for i, id := range ids {
		switch is := slices.Contains(hidden, id); {
		case is && outcomes[i] != NoState && outcomes[i] != 1:
			t.Errorf("hidden label %d: found outcome %d, expected 1 or none", id, outcomes[i])
		case is && outcomes[i] == 1 && open[i] == NoState:
			t.Errorf("hidden label %d: found a missed state, expected none: it cannot lead", id)
		case is && outcomes[i] == 1:
			missed++
		case !is && outcomes[i] == 1:
			t.Errorf("label %d: found it missed, expected it found", id)
		}
	}
	if missed != 9 {
		t.Errorf("found %d of 9 hidden labels missed, expected all", missed)
	}
	n, found := OwnShare(outcomes, 0)
	if want := 1 - 9/float64(n); math.Abs(found.Value-want) > 1e-12 || n < len(withState) {
		t.Errorf("found the share %v of %d, expected %v", found.Value, n, want)
	}
}

// The outcome of a label does not depend on the other labels, the threads or the CPU.
func TestOutcomesAreEqualEverywhere(t *testing.T) {
	l, states := ownLayer(t, 200, 16, 1000)
	ids := OwnSample(l.Labels(), l.Labels(), 0)
	want, wantStates := outcomesOf(t, newOwn(t, l, states), ids, methods(l, nil)), map[uint32][]float32(nil)
	simdtest.EachLevel(t, func(t *testing.T) {
		found := map[uint32][]float32{}
		o := newOwn(t, l, states)
		if got := outcomesOf(t, o, ids, methods(l, found)); !slices.Equal(got, want) {
			t.Errorf("found other outcomes than on the best level")
		}
		if wantStates == nil {
			wantStates = found
		}
		for id, x := range found {
			if !slices.Equal(x, wantStates[id]) {
				t.Errorf("label %d: found another state than on the first level", id)
			}
		}
		for i, id := range ids[:20] {
			if got := outcomesOf(t, o, []uint32{id}, methods(l, nil)); got[0] != want[i] {
				t.Errorf("label %d alone: found outcome %d, expected %d", id, got[0], want[i])
			}
		}
	})
}

// Equal rows, and states that do not differ, have no own states.
func TestLabelsWithoutAnOwnState(t *testing.T) {
	l, states := ownLayer(t, 60, 12, 500)
	w, _ := kernels.AsFloat32(l.Weights())
	copy(w[:12], w[12:24])
	l, err := exact.NewLayer(kernels.Float32Rows(w, 12), make([]float32, 60))
	if err != nil {
		t.Fatal(err)
	}
	ids := OwnSample(60, 60, 0)
	if got := outcomesOf(t, newOwn(t, l, states), ids, methods(l, nil)); got[0] != NoState || got[1] != NoState || !slices.Contains(got, 0) {
		t.Errorf("found the outcomes %v, expected none for the first two labels, which are equal", got)
	}
	for i := range states {
		states[i] = 1
	}
	if got := outcomesOf(t, newOwn(t, l, states), ids, methods(l, nil)); slices.ContainsFunc(got, func(x int) bool { return x != NoState }) {
		t.Errorf("found the outcomes %v of equal states, expected none", got)
	}
	if n, e := OwnShare([]int{NoState}, 0); n != 0 || e.High != 0 {
		t.Errorf("found %d and %v without a state, expected zeros", n, e)
	}
}

// A sample has one label of each of equal parts, another one with another seed.
func TestOwnSample(t *testing.T) {
	for _, c := range []struct{ labels, n, want int }{{10, 20, 10}, {10, 10, 10}, {1000, 7, 7}} {
		ids := OwnSample(c.labels, c.n, 0)
		if len(ids) != c.want || !slices.IsSorted(ids) || len(slices.Compact(slices.Clone(ids))) != len(ids) || int(ids[len(ids)-1]) >= c.labels {
			t.Errorf("%+v: found %v", c, ids)
		}
	}
	if slices.Equal(OwnSample(1000, 7, 0), OwnSample(1000, 7, 1)) {
		t.Error("found equal samples with two seeds")
	}
}

func TestOutcomesEndWithTheContext(t *testing.T) {
	l, states := ownLayer(t, 60, 12, 500)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := newOwn(t, l, states).Outcomes(ctx, OwnSample(60, 60, 0), 0, methods(l, nil), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("found error %v, expected one of the context", err)
	}
	if _, err := NewOwn(ctx, l, states); !errors.Is(err, context.Canceled) {
		t.Errorf("found error %v, expected one of the context", err)
	}
}

// roundBlocks is a search as previews had until version 6 of their file: it takes blocks for round, and looks at a
// block if its centre, plus some times the root mean square distance of its labels times that of the
// coordinates of the context, reaches the k-th best of the nearest block.
type roundBlocks struct {
	l       *exact.Layer
	s       *exact.Searcher
	size    int
	centres []float32
	radii   []float64
	reach   float64
}

func newRoundBlocks(l *exact.Layer, size int, reach float64) *roundBlocks {
	d, w := l.Dim(), make([]float32, l.Dim())
	m := &roundBlocks{l: l, s: exact.NewSearcher(l), size: size, reach: reach}
	for first := 0; first < l.Labels(); first += size {
		centre := meanOf(size, d, func(dst []float32, i int) { l.Weights().Widen(dst, first+i) })
		square := 0.0
		for i := range size {
			l.Weights().Widen(w, first+i)
			for j := range w {
				square += float64(w[j]-centre[j]) * float64(w[j]-centre[j]) / float64(size)
			}
		}
		m.centres, m.radii = append(m.centres, centre...), append(m.radii, math.Sqrt(square))
	}
	return m
}

func (m *roundBlocks) ids(h []float32) (ids []uint32) {
	d := len(h)
	length := math.Sqrt(kernels.RefDot(h, h) / float64(d))
	best, previews := math.Inf(-1), make([]float64, len(m.radii))
	for b := range m.radii {
		previews[b] = kernels.RefDot(m.centres[b*d:(b+1)*d], h)
		best = max(best, previews[b])
	}
	for b, x := range previews {
		if x+m.reach*length*m.radii[b] >= best {
			for i := range m.size {
				ids = append(ids, uint32(b*m.size+i))
			}
		}
	}
	return ids
}

func (m *roundBlocks) TopK(dst []exact.Prediction, h []float32) (int, error) {
	a, err := m.s.Search(dst, h, exact.Request{Among: exact.Only(m.ids(h))})
	return a.Count, err
}

func (m *roundBlocks) Finds(id uint32, h []float32) (int, bool, error) {
	if slices.Contains(m.ids(h), id) {
		return 0, false, nil
	}
	return 1, true, nil
}

// Own states see the hole that text does not. The labels of a block differ by noise, except for one,
// which is far out along an axis that has nothing to do with blocks. States vary along it, but none
// of this text goes the way of that label. On the text a search that takes blocks for round finds
// every best label; in its own state the label leads by 3, and is not looked at.
func TestOwnStatesSeeAHoleThatTextDoesNot(t *testing.T) {
	const labels, d, size, axis = 512, 24, 64, 23
	r := rand.New(rand.NewPCG(5, 6))
	w, states := make([]float32, labels*d), make([]float32, 4000*d)
	for s := range labels {
		row := w[s*d : (s+1)*d]
		row[s/size] = 10
		for j := labels / size; j < axis; j++ {
			row[j] = float32(0.5 * r.NormFloat64())
		}
	}
	const hidden = 3*size + 5
	w[hidden*d+axis] = 6
	for i := range states {
		if states[i] = float32(r.NormFloat64()); i%d == axis {
			states[i] = states[i]/4 - 8*float32(r.IntN(5)/4)
		}
	}
	l, err := exact.NewLayer(kernels.Float32Rows(w, d), make([]float32, labels))
	if err != nil {
		t.Fatal(err)
	}
	const reach = 3 // in deviations of a label of a round block
	m, s, best := newRoundBlocks(l, size, reach), exact.NewSearcher(l), make([]exact.Prediction, 1)
	for i := 0; i < len(states); i += d {
		if _, err := s.TopK(best, states[i:i+d]); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(m.ids(states[i:i+d]), best[0].ID) {
			t.Errorf("state %d of the text: found the best label, %d, missed, expected none", i/d, best[0].ID)
		}
	}
	ids := OwnSample(labels, labels, 0)
	outcomes := outcomesOf(t, newOwn(t, l, states), ids, func() Method { return newRoundBlocks(l, size, reach) })
	n, found := OwnShare(outcomes, 0)
	if outcomes[hidden] != 1 || n < 2 || found.Value >= precision.TargetOwn {
		t.Errorf("found the outcome %d of the hidden label, and %.4f of %d own states, expected 1, and less than %v", outcomes[hidden], found.Value, n, precision.TargetOwn)
	}
}

// Leads are of logits with the scale of the layer: twice the scale, half the way.
func TestOwnStatesFollowTheScale(t *testing.T) {
	l, states := ownLayer(t, 300, 12, 2000)
	scaled, err := l.Scaled(2, 30)
	if err != nil {
		t.Fatal(err)
	}
	found, plain := map[uint32][]float32{}, map[uint32][]float32{}
	outcomesOf(t, newOwn(t, scaled, states), OwnSample(300, 300, 0), methods(scaled, found))
	outcomesOf(t, newOwn(t, l, states), OwnSample(300, 300, 0), methods(l, plain))
	best, s := make([]exact.Prediction, 2), exact.NewSearcher(l)
	for id, x := range found {
		if _, err := s.TopK(best, x); err != nil {
			t.Fatal(err)
		}
		if lead := 2 * (best[0].Logit - best[1].Logit); best[0].ID != id || lead < OwnLead-1e-6 {
			t.Errorf("label %d: found the leader %d by %v, expected the label by %d", id, best[0].ID, lead, OwnLead)
		}
	}
	if len(plain) == 0 || len(found) <= len(plain) {
		t.Errorf("found %d own states, expected more than the %d without a scale", len(found), len(plain))
	}
}
