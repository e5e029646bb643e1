package screen_test

import (
	"math"
	"slices"
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

// probabilityLogits are the logits that LogProb is defined by without a regression.
func (in *instance) probabilityLogits(h []float32) []float64 {
	f := in.find(h)
	logits := make([]float64, in.config.Labels)
	for s := range logits {
		if _, inside := slices.BinarySearch(f.set, uint32(s)); inside || f.exact || len(f.set) == 0 {
			logits[s] = in.ranked(h, []uint32{uint32(s)})[0].Logit
		} else {
			logits[s] = math.Inf(-1)
		}
	}
	return logits
}

// A cluster without candidates, in a model without a regression, leaves log-probabilities to the exact
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

// checkLogProb compares with a softmax in plain float64 over the labels of the set: labels
// outside are impossible.
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

func TestLogProbIsTheSoftmaxOverTheSet(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) { rapid.Check(t, checkLogProb) })
}

// checkOverTail: over the tail the labels are those without it, whether the request has
// edits or not, and the exact layer's log-sums too. checkRegression is about the others.
func checkOverTail(t *rapid.T) {
	in := drawShape(t).instance(t).withRegression(t)
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
		if a.Source != softmax.FromLayer && req.LogSum {
			a.LogSum = wantAnswers[i].LogSum
		}
		if a != wantAnswers[i] {
			t.Fatalf("context %d: found %+v, want as without the tail, %+v", i, a, wantAnswers[i])
		}
	}
}

func TestOverTheTailAnswersAreThoseWithoutIt(t *testing.T) {
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
	if _, err := screen.NewSearcher(ordinary(t).model, in.layer, screen.OverTail()); err == nil || err.Error() != "screen: regression: found a model without one, expected one for OverTail" {
		t.Errorf("a model without a regression: error %v", err)
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
}
