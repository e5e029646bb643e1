package learn

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
	"github.com/learning-to-screen/l2s/internal/tests/synthetic"
	"github.com/learning-to-screen/l2s/preview"
)

// previewTest is a layer that previews pay for, and a learner that makes no screen before most
// queries.
func previewTest(t *testing.T) (*synthetic.Data, *l2s.Layer, Options, chan Event) {
	data := synthetic.Structured(preview.LeastLabels, testDim, 40, 6000, 1)
	events := make(chan Event, 1000)
	o := testOptions(events)
	o.Bytes, o.Least, o.Train.Target = 128<<20, 4000, 0
	return data, data.Layer, o, events
}

// A large layer has a preview after an eighth of the contexts of a training. Its logits are exact,
// its sums over all labels too, and it finds nearly all best labels.
func TestAPreviewAnswersBeforeAScreen(t *testing.T) {
	data, layer, o, events := previewTest(t)
	l := newTest(t, layer, o)
	exact := exactly(t, layer)
	top, want := make([]l2s.Prediction, 5), make([]l2s.Prediction, 5)
	var kinds []string
	begun := false
	asked, missed := 0, 0
	for i := 0; i < data.Len() && asked < 500; i++ {
		h := data.Context(i)
		a, err := l.Search(top, h, l2s.Request{})
		if err != nil {
			t.Fatal(err)
		}
		// When there are enough contexts, no query comes before there is a preview.
		for enough := l.Kept() >= l.previewStep(); enough && !begun; {
			e := <-events
			kinds = append(kinds, e.Kind)
			if begun = e.Kind == previewed; !begun && e.Kind != began {
				t.Fatalf("found the event %+v, expected a preview", e)
			}
		}
		if _, err := exact.TopK(want, h); err != nil {
			t.Fatal(err)
		}
		if !begun {
			continue
		}
		if !a.Exact {
			asked++
		}
		for j, p := range top {
			at := slices.IndexFunc(want, func(q l2s.Prediction) bool { return q.ID == p.ID })
			if at < 0 {
				missed++
			} else if want[at] != p {
				t.Fatalf("context %d, place %d: found %v, expected the exact logit of %v", i, j, p, want[at])
			}
		}
	}
	if !begun || asked == 0 || kinds[0] != began {
		t.Fatalf("found the events %v, and %d answers of a preview, expected some", kinds, asked)
	}
	if float64(missed) > 0.01*float64(5*asked) {
		t.Errorf("found %d of %d labels missed, expected one in a hundred at most", missed, 5*asked)
	}
	h := data.Context(1)
	a, err := l.Search(nil, h, l2s.Request{LogSum: true})
	b, err2 := exact.Search(nil, h, l2s.Request{LogSum: true})
	if err != nil || err2 != nil || a.LogSum != b.LogSum {
		t.Errorf("found the log-sum %v, expected the exact one, %v (%v, %v)", a.LogSum, b.LogSum, err, err2)
	}
	if _, err := l.TopK(top, make([]float32, testDim+1)); err == nil {
		t.Error("found no error for a context of another dimension")
	}
}

// Contexts that a reservoir may pass over are in no preview and no check of one: the exact layer
// answers them, also while a preview answers the others.
func TestAPreviewLeavesOutWhatIsNotKept(t *testing.T) {
	simdtest.Long(t)
	data, with, o, _ := previewTest(t)
	layer, err := l2s.New(l2s.Matrix(engine.MatrixOfRows((*engine.Layer)(with).Exact().Weights())), nil) // without biases a shorter context is no harder
	if err != nil {
		t.Fatal(err)
	}
	l := newTest(t, layer, o)
	made, err := preview.Make(context.Background(), layer, l2s.Float32(data.Contexts[:3000*testDim], layer.Dim()), preview.Options{})
	if err != nil {
		t.Fatal(err)
	}
	answerBy(t, l, made, livePreview{})
	exact := exactly(t, layer)
	top, want := make([]l2s.Prediction, 5), make([]l2s.Prediction, 5)
	var usual int
	for i := range 100 {
		h := slices.Clone(data.Context(3000 + i))
		if a, err := l.Search(top, h, l2s.Request{}); err != nil {
			t.Fatal(err)
		} else if !a.Exact {
			usual++
		}
		largest := 0.0
		for _, x := range h {
			largest = max(largest, math.Abs(float64(x)))
		}
		for name, to := range map[string]float64{"zeros": 0, "too small for float16": 0x1p-15, "too large for it": 65520} {
			of := make([]float32, len(h))
			for j, x := range h {
				of[j] = float32(float64(x) / largest * to)
			}
			kept := l.Kept()
			a, err := l.Search(top, of, l2s.Request{})
			if err != nil {
				t.Fatal(err)
			}
			if l.Kept() != kept {
				t.Fatalf("%s: found the context kept, expected it passed over", name)
			}
			if _, err := exact.TopK(want, of); err != nil {
				t.Fatal(err)
			}
			if !a.Exact || !slices.Equal(top[:a.Count], want) {
				t.Fatalf("%s: found %v, exactly: %v, expected %v from the exact layer", name, top[:a.Count], a.Exact, want)
			}
		}
	}
	if usual < 50 {
		t.Errorf("found %d of 100 usual contexts answered by the preview, expected more", usual)
	}
}

// A preview that misses too many labels of new contexts is given up: the exact layer answers, and
// the next preview is made from contexts that came later.
func TestAPreviewThatMissesIsGivenUp(t *testing.T) {
	simdtest.Long(t)
	_, layer, o, events := previewTest(t)
	o.Least = 1 << 14
	o.Bytes = 512 << 20
	l := newTest(t, layer, o)
	r := rand.New(rand.NewPCG(1, 1))
	states := make([]float32, 3000*testDim)
	for i := range states {
		states[i] = float32(r.NormFloat64())
	}
	poor, err := preview.Make(context.Background(), layer, l2s.Float32(states[:512*testDim], layer.Dim()), preview.Options{Precision1: 1e-3, PrecisionK: 1e-3})
	if err != nil {
		t.Fatal(err)
	}
	parts := (*engine.Index)(poor).Preview().Parts()
	for panel := range slices.Chunk(parts.IDs, 2) { // every label has the codes of another one
		slices.Reverse(panel)
	}
	top := make([]l2s.Prediction, 5)
	for i := range 600 {
		if _, err := l.TopK(top, states[i*testDim:(i+1)*testDim]); err != nil {
			t.Fatal(err)
		}
	}
	answerBy(t, l, poor, livePreview{made: 600})
	l.check(context.Background())
	var e Event
	if len(events) > 0 {
		e = <-events
	}
	if s := l.state.Load(); e.Kind != unlearnt || e.Contexts != mostChecked || !(e.Precision1 < 0.99) || s.preview != nil || s.previewsFrom != 600 {
		t.Errorf("found the event %+v, a preview: %v, and contexts from %d on, expected one that is given up", e, s.preview != nil, s.previewsFrom)
	}
	if a, err := l.Search(top, states[:testDim], l2s.Request{}); err != nil || !a.Exact {
		t.Errorf("found an exact answer: %v (%v), expected the exact layer's", a.Exact, err)
	}

	// A precise preview is kept.
	good, err := preview.Make(context.Background(), layer, l2s.Float32(states, layer.Dim()), preview.Options{})
	if err != nil {
		t.Fatal(err)
	}
	answerBy(t, l, good, livePreview{})
	l.check(context.Background())
	p := l.state.Load().preview
	if p == nil || len(events) > 0 {
		t.Fatalf("found a precise preview given up, or events: %d", len(events))
	}
	if p.checked != l.Kept() {
		t.Errorf("found contexts up to %d checked, expected %d", p.checked, l.Kept())
	}
}

// The first preview is made from enough contexts, however few a training takes. One whose contexts
// are forgotten meanwhile does not answer, and the next is made as soon as there are as many again.
func TestTheFirstPreview(t *testing.T) {
	data, layer, o, _ := previewTest(t)
	var l *Learner
	var kinds []string
	forget := true
	o.Least, o.Event = 8, func(e Event) {
		kinds = append(kinds, e.Kind)
		if e.Kind == began && forget {
			l.Forget()
		}
	}
	l, err := newLearner(layer, o) // which runs nothing by itself
	if err != nil {
		t.Fatal(err)
	}
	top := make([]l2s.Prediction, 5)
	next := 0
	for _, want := range [][]string{{began, declined}, {began, previewed}} {
		for kinds = nil; l.Kept() < l.state.Load().previewAt; next++ {
			if next == data.Len() {
				t.Fatalf("found %d contexts, expected them to be enough for a preview", l.Kept())
			}
			if _, err := l.TopK(top, data.Context(next)); err != nil {
				t.Fatal(err)
			}
		}
		kept := l.Kept()
		l.updatePreview(context.Background())
		if s := l.state.Load(); !slices.Equal(kinds, want) || (s.preview != nil) != (want[1] == previewed) || s.previewAt != kept+l.previewStep() {
			t.Errorf("found the events %v, a preview: %v, and the next at %d, expected %v, and at %d", kinds, s.preview != nil, s.previewAt, want, kept+l.previewStep())
		}
		forget = false
	}
}

// Small layers, and bounds of memory that leave no room for it, have no preview.
func TestWhenThereIsNoPreview(t *testing.T) {
	_, layer, o, _ := previewTest(t)
	if !o.previews(layer) {
		t.Fatal("found no preview, expected one")
	}
	o.Bytes = 8 << 20
	if o.previews(layer) {
		t.Error("found a preview within 8 MiB, expected none")
	}
	o.Bytes = math.MaxInt64 / 8
	if o.previews(testData().Layer) {
		t.Errorf("found a preview for %d labels, expected none", testData().Layer.Labels())
	}
}

// answerBy lets a preview answer.
func answerBy(t *testing.T, l *Learner, x *l2s.Index, p livePreview) {
	t.Helper()
	if _, err := l.previews.Swap(l.layer, x); err != nil {
		t.Fatal(err)
	}
	l.step(func(s *state) { s.preview = &p })
}
