package screen_test

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/simdtest"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

func logProb(t failer, s *screen.Searcher, h []float32, id int) float64 {
	t.Helper()
	p, err := s.LogProb(h, uint32(id))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// probabilityLogits are the logits that LogProb is defined by.
func (in *instance) probabilityLogits(h []float32) []float64 {
	f, d := in.find(h), in.config.Dim
	logits := make([]float64, in.config.Labels)
	for s := range logits {
		b := float64(in.layer.Bias()[s])
		switch _, inside := slices.BinarySearch(f.set, uint32(s)); {
		case inside || f.exact || len(f.set) == 0 && in.config.Tail == nil:
			logits[s] = in.ranked(h, []uint32{uint32(s)})[0].Logit
		case in.config.Tail == nil:
			logits[s] = math.Inf(-1)
		default:
			logits[s] = b
			for k := range in.config.Tail.Rank() {
				for e, x := range h {
					logits[s] += float64(in.config.Tail.Columns()[k*in.config.Labels+s]) * float64(in.config.Tail.Rows()[k*d+e]) * float64(x)
				}
			}
		}
	}
	return logits
}

// A cluster without candidates and without a tail leaves log-probabilities to the exact
// layer, as it does the best labels.
func TestLogProbOfAnEmptySetIsExact(t *testing.T) {
	layer, err := softmax.NewLayer(kernels.Float32Rows([]float32{1, 0, 0, 1, 1, 1}, 2), nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := screen.NewModel(screen.Config{Dim: 2, Labels: 3, Clusters: []float32{1, 1}, Sets: [][]uint32{nil}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := screen.NewSearcher(m, layer)
	if err != nil {
		t.Fatal(err)
	}
	exact := softmax.NewSearcher(layer)
	h := []float32{1, 2}
	for id := range 3 {
		want, err := exact.LogProb(h, uint32(id))
		if err != nil {
			t.Fatal(err)
		}
		if got := logProb(t, s, h, id); got != want {
			t.Errorf("label %d: found %v, expected %v as by the exact layer", id, got, want)
		}
	}
}

// checkLogProb compares with a softmax in plain float64 over all labels: exact
// logits within the set, the tail's logits outside, impossible without one.
func checkLogProb(t *rapid.T) {
	in := drawShape(t).instance(t)
	s := in.searcher(t)
	for i := range in.n {
		h := in.context(i)
		logits := in.probabilityLogits(h)
		lse, total := kernels.LogSumExp(logits), 0.0
		for id, x := range logits {
			got, want := logProb(t, s, h, id), x-lse
			if math.IsInf(x, -1) {
				want = x
			}
			if got != want && !(math.Abs(got-want) < 1e-4) {
				t.Fatalf("context %d, id %d: %v, want %v", i, id, got, want)
			}
			total += math.Exp(got)
		}
		if !math.IsInf(lse, -1) && math.Abs(total-1) > 1e-9 {
			t.Fatalf("context %d: probabilities sum to %v", i, total)
		}
	}
}

func TestLogProbIsTheSoftmaxOverAllLabels(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) { rapid.Check(t, checkLogProb) })
}

// checkOverTail: over the tail the labels are those without it, and the log-sum is
// that over all labels that may be answered, exact within the set, whether the
// request has edits or not.
func checkOverTail(t *rapid.T) {
	shape := drawShape(t)
	shape.tail = rapid.IntRange(1, min(shape.labels, shape.dim)).Draw(t, "rank")
	in := shape.instance(t)
	req := drawRequest(t, in)
	plain, over := in.searcher(t, screen.Short()), in.searcher(t, screen.Short(), screen.OverTail())
	want, dst := make([]softmax.Prediction, req.K*in.n), make([]softmax.Prediction, req.K*in.n)
	wantAnswers, answers := make([]softmax.Answer, in.n), make([]softmax.Answer, in.n)
	if err := plain.SearchBatch(want, wantAnswers, in.contexts, req); err != nil {
		t.Fatal(err)
	}
	if err := over.SearchBatch(dst, answers, in.contexts, req); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(dst, want) {
		t.Fatalf("found %v, want the answers without the tail, %v", dst, want)
	}
	for i, a := range answers {
		if a.Count != wantAnswers[i].Count || a.Source != wantAnswers[i].Source {
			t.Fatalf("context %d: found %+v, want as without the tail, %+v", i, a, wantAnswers[i])
		}
		if !req.LogSum || a.Source == softmax.FromLayer {
			if a != wantAnswers[i] {
				t.Fatalf("context %d: found %+v, want as without the tail, %+v", i, a, wantAnswers[i])
			}
			continue
		}
		logits := in.probabilityLogits(in.context(i))
		for _, b := range req.Biases {
			logits[b.ID] = in.ranked(in.context(i), []uint32{b.ID})[0].Logit + float64(b.Add)
		}
		for id := range logits {
			if !req.Permits(uint32(id)) {
				logits[id] = math.Inf(-1)
			}
		}
		if want := kernels.LogSumExp(logits); a.LogSum != want && !(math.Abs(a.LogSum-want) < 1e-4) {
			t.Fatalf("context %d: log-sum %v, want %v", i, a.LogSum, want)
		}
		if !req.Edits() {
			for _, p := range dst[i*req.K:][:a.Count] {
				if got, want := p.Logit-a.LogSum, logProb(t, over, in.context(i), int(p.ID)); got != want {
					t.Fatalf("context %d, id %d: %v, want %v", i, p.ID, got, want)
				}
			}
		}
	}
}

func TestOverTheTailAnswersHaveTheirLogProb(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) { rapid.Check(t, checkOverTail) })
	in := tailed(t)
	s := in.searcher(t, screen.OverTail())
	dst, answers := make([]softmax.Prediction, 5*in.n), make([]softmax.Answer, in.n)
	search := func() {
		if err := s.SearchBatch(dst, answers, in.contexts, softmax.Request{K: 5, LogSum: true}); err != nil {
			t.Fatal(err)
		}
	}
	search()
	if allocs := simdtest.AllocsPerRun(10, search); allocs != 0 {
		t.Errorf("%v allocations, want none", allocs)
	}
	bare, err := in.model.WithTail(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := screen.NewSearcher(bare, in.layer, screen.OverTail()); err == nil || !strings.Contains(err.Error(), "found a model without one") {
		t.Errorf("a model without a tail: error %v", err)
	}
}

func TestATailMayBeAddedLater(t *testing.T) {
	in := tailed(t)
	config := in.config
	config.Tail = nil
	bare, err := screen.NewModel(config)
	if err != nil {
		t.Fatal(err)
	}
	with, err := bare.WithTail(in.config.Tail)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(encode(t, with), encode(t, in.model)) {
		t.Error("added later: another model")
	}
	if without, err := with.WithTail(nil); err != nil || !bytes.Equal(encode(t, without), encode(t, bare)) || bare.Tail() != nil {
		t.Errorf("removed again: another model, %v", err)
	}
	other := shape{labels: 301, dim: 24, clusters: 1, contexts: 1, tail: 1}.instance(t)
	want := "screen: tail: found one for 301 labels and dim 24, expected 300 and 24"
	if _, err := bare.WithTail(other.config.Tail); err == nil || err.Error() != want {
		t.Errorf("of another layer: error %v, want %s", err, want)
	}
}

func TestLogProbRefuses(t *testing.T) {
	in := tailed(t)
	s := in.searcher(t)
	h := in.context(0)
	for _, c := range []struct {
		name string
		call func() (float64, error)
		want string
	}{
		{"id", func() (float64, error) { return s.LogProb(h, 300) }, "screen: id: found 300, expected one below the 300 labels"},
		{"short", func() (float64, error) { return s.LogProb(h[1:], 0) }, "softmax: context: found 23 elements, expected 24"},
		{"NaN", func() (float64, error) { return s.LogProb(append(slices.Clone(h[1:]), float32(math.NaN())), 0) }, "softmax: context: found NaN at element 23, expected finite numbers"},
	} {
		if _, err := c.call(); err == nil || err.Error() != c.want {
			t.Errorf("%s: error %v, want %s", c.name, err, c.want)
		}
	}
	config := in.config
	config.Dim, config.Clusters = 12, config.Clusters[:9*12]
	config.Fingerprint = [32]byte{}
	want := "screen: tail: found one for 300 labels and dim 24, expected 300 and 12"
	if _, err := screen.NewModel(config); err == nil || err.Error() != want {
		t.Errorf("tail of another shape: error %v, want %s", err, want)
	}
}
