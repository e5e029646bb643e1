package screen_test

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/simdtest"
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
		case inside || f.exact:
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

// checkLogProb compares with a softmax in plain float64 over all labels: exact
// logits within the set, those of the tail outside, impossible without one.
func checkLogProb(t *rapid.T) {
	in := drawShape(t).instance(t)
	for _, s := range []*screen.Searcher{in.searcher(t), in.searcher(t, screen.Float32())} {
		for i := range in.n {
			h := in.context(i)
			logits := in.probabilityLogits(h)
			largest, sum, total := slices.Max(logits), 0.0, 0.0
			for _, x := range logits {
				sum += math.Exp(x - largest)
			}
			lse := largest + math.Log(sum)
			if math.IsInf(largest, -1) {
				lse = largest
			}
			if got, err := s.LogPartition(h); err != nil || got != lse && !(math.Abs(got-lse) < 1e-3) {
				t.Fatalf("context %d: partition %v, %v, want %v", i, got, err, lse)
			}
			for id, x := range logits {
				got, want := logProb(t, s, h, id), x-lse
				if math.IsInf(x, -1) {
					want = x
				}
				if got != want && !(math.Abs(got-want) < 1e-3) {
					t.Fatalf("context %d, id %d: %v, want %v", i, id, got, want)
				}
				total += math.Exp(got)
			}
			if !math.IsInf(largest, -1) && math.Abs(total-1) > 1e-9 {
				t.Fatalf("context %d: probabilities sum to %v", i, total)
			}
		}
	}
}

func TestLogProbIsTheSoftmaxOverAllLabels(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) { rapid.Check(t, checkLogProb) })
}

func TestLogProbOfFullRankIsExact(t *testing.T) {
	in := shape{labels: 60, dim: 20, clusters: 5, contexts: 30, keep: 20, tail: 20, seed: 3}.instance(t)
	s, q, want := in.searcher(t), softmax.NewQuery(20), make([]float64, 60)
	for i := range in.n {
		if err := q.Set(in.context(i)); err != nil {
			t.Fatal(err)
		}
		in.layer.LogProbs(want, q)
		for id := range want {
			if got := logProb(t, s, in.context(i), id); math.Abs(got-want[id]) > 1e-5 {
				t.Errorf("context %d, id %d: %v, want %v", i, id, got, want[id])
			}
		}
	}
}

func TestTopKLessThePartitionIsLogProb(t *testing.T) {
	in := tailed(t)
	s := in.searcher(t, screen.Short())
	for i := range in.n {
		h := in.context(i)
		z, err := s.LogPartition(h)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range topK(t, s, 5, h) {
			if got := logProb(t, s, h, int(p.ID)); got != p.Logit-z {
				t.Errorf("context %d, id %d: %v, want %v", i, p.ID, got, p.Logit-z)
			}
		}
	}
}

func TestOverTheTailAnswersOfABatchHaveTheirLogProb(t *testing.T) {
	in := tailed(t)
	const k = 5
	s := in.searcher(t, screen.Short(), screen.OverTail())
	dst, plain, lse := make([]softmax.Prediction, k*in.n), make([]softmax.Prediction, k*in.n), make([]float64, in.n)
	counts, err := s.TopKLogSumExp(dst, lse, k, in.contexts)
	if err != nil {
		t.Fatal(err)
	}
	counts = slices.Clone(counts)
	want, err := in.searcher(t, screen.Short()).TopKBatch(plain, k, in.contexts)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(counts, want) {
		t.Fatalf("found %v answers, want %v", counts, want)
	}
	for i, n := range counts {
		if !slices.Equal(dst[k*i:k*i+n], plain[k*i:k*i+n]) {
			t.Errorf("context %d: found %v, want %v", i, dst[k*i:k*i+n], plain[k*i:k*i+n])
		}
		for _, p := range dst[k*i : k*i+n] {
			if got, want := p.Logit-lse[i], logProb(t, s, in.context(i), int(p.ID)); got != want {
				t.Errorf("context %d, id %d: %v, want %v", i, p.ID, got, want)
			}
		}
	}
	if allocs := simdtest.AllocsPerRun(10, func() { s.TopKLogSumExp(dst, lse, k, in.contexts) }); allocs != 0 {
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
		{"NaN", func() (float64, error) { return s.LogPartition(append(slices.Clone(h[1:]), float32(math.NaN()))) }, "softmax: context: found NaN at element 23, expected finite numbers"},
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
