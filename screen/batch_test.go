package screen_test

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/simdtest"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// checkBatch is the promise of TopKBatch: the answers of TopK, bit for bit,
// in the order of the contexts.
func checkBatch(t *rapid.T) {
	in := drawHardShape(t).instance(t)
	k := rapid.IntRange(1, in.config.Labels).Draw(t, "k")
	var opts []screen.Option
	if rapid.Bool().Draw(t, "float32") {
		opts = append(opts, screen.Float32())
	}
	short := rapid.Bool().Draw(t, "short")
	if short {
		opts = append(opts, screen.Short())
	}
	single, batch := in.searcher(t, opts...), in.searcher(t, opts...)
	// Two batches of different sizes: scratch of the first must not show.
	for _, n := range []int{in.n, rapid.IntRange(0, in.n).Draw(t, "second batch")} {
		dst := make([]softmax.Prediction, n*k)
		counts, err := batch.TopKBatch(dst, k, in.contexts[:n*in.config.Dim])
		if err != nil {
			t.Fatal(err)
		}
		if len(counts) != n {
			t.Fatalf("%d counts, want %d", len(counts), n)
		}
		for i, count := range counts {
			want := topK(t, single, k, in.context(i))
			if got := dst[i*k : i*k+count]; !slices.Equal(got, want) {
				t.Fatalf("context %d of %d: got %v, want %v", i, n, got, want)
			}
			for _, p := range dst[i*k+count : (i+1)*k] {
				if p != (softmax.Prediction{}) {
					t.Fatalf("context %d of %d: written behind a short answer", i, n)
				}
			}
			if !short && count != k {
				t.Fatalf("context %d of %d: %d answers, want %d", i, n, count, k)
			}
		}
		if got, want := batch.Stats(), single.Stats(); got != want {
			t.Fatalf("stats %+v, want %+v", got, want)
		}
	}
}

func TestBatchEqualsSingleQueries(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) { rapid.Check(t, checkBatch) })
}

func TestBatchRefuses(t *testing.T) {
	nan := float32(math.NaN())
	s := plane(t, [][]uint32{{0, 1}, {2, 3}}).searcher(t)
	for _, c := range []struct {
		name     string
		dst, k   int
		contexts []float32
		want     string
	}{
		{"k 0", 0, 0, []float32{1, 2}, "screen: k: found 0, expected 1 to the 4 labels"},
		{"k negative", 0, -1, []float32{1, 2}, "screen: k: found -1, expected 1 to the 4 labels"},
		{"k above L", 5, 5, []float32{1, 2}, "screen: k: found 5, expected 1 to the 4 labels"},
		{"ragged contexts", 2, 1, []float32{1, 2, 3}, "screen: contexts: found 3 elements, expected a multiple of dimension 2"},
		{"short dst", 3, 2, []float32{1, 2, 3, 4}, "screen: dst: found 3 elements, expected k = 2 for each of 2 contexts"},
		{"long dst", 6, 2, []float32{1, 2, 3, 4}, "screen: dst: found 6 elements, expected k = 2 for each of 2 contexts"},
		{"NaN in the last row", 2, 1, []float32{1, 2, 3, nan}, "screen: contexts: row 1: softmax: context: found NaN at element 1, expected finite numbers"},
	} {
		dst := make([]softmax.Prediction, c.dst)
		if counts, err := s.TopKBatch(dst, c.k, c.contexts); err == nil || err.Error() != c.want || counts != nil {
			t.Errorf("%s: %v, error %v, want %s", c.name, counts, err, c.want)
		}
		for _, p := range dst {
			if p != (softmax.Prediction{}) {
				t.Errorf("%s: dst was written", c.name)
			}
		}
	}
	if got := s.Stats(); got != (screen.Stats{}) {
		t.Errorf("refused batches were counted: %+v", got)
	}
	if counts, err := s.TopKBatch(nil, 1, nil); err != nil || len(counts) != 0 {
		t.Errorf("an empty batch: %v, %v", counts, err)
	}
}

// checkLogSumExp: the answers are those of TopKBatch, and the sums those that
// the exact log-probabilities over the candidates have, but for the error of
// int8; they do not depend on the other contexts of the batch.
func checkLogSumExp(t *rapid.T) {
	in := drawHardShape(t).instance(t)
	k := rapid.IntRange(1, in.config.Labels).Draw(t, "k")
	opts := []screen.Option{screen.Short()}
	if rapid.Bool().Draw(t, "float32") {
		opts = append(opts, screen.Float32())
	}
	single, batch, alone := in.searcher(t, opts...), in.searcher(t, opts...), in.searcher(t, opts...)
	d := in.config.Dim
	want, dst, lse := make([]softmax.Prediction, in.n*k), make([]softmax.Prediction, in.n*k), make([]float64, in.n)
	wantCounts, err := single.TopKBatch(want, k, in.contexts)
	if err != nil {
		t.Fatal(err)
	}
	counts, err := batch.TopKLogSumExp(dst, lse, k, in.contexts)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(counts, wantCounts) || !slices.Equal(dst, want) {
		t.Fatalf("found %v %v, want those of TopKBatch, %v %v", counts, dst, wantCounts, want)
	}
	if got, want := batch.Stats(), single.Stats(); got != want {
		t.Fatalf("stats %+v, want %+v", got, want)
	}
	one, sum := make([]softmax.Prediction, k), make([]float64, 1)
	for i := range in.n {
		h := in.contexts[i*d : (i+1)*d]
		n, err := alone.TopKLogSumExp(one, sum, k, h)
		if err != nil {
			t.Fatal(err)
		}
		if n[0] != counts[i] || sum[0] != lse[i] {
			t.Fatalf("context %d: %v alone, %v in a batch", i, sum[0], lse[i])
		}
		if counts[i] == 0 && !math.IsInf(lse[i], -1) {
			t.Fatalf("context %d: found %v over no labels, want -Inf", i, lse[i])
		}
		if counts[i] > 0 && lse[i] < dst[i*k].Logit-1e-4*(1+math.Abs(lse[i])) {
			t.Fatalf("context %d: the sum %v is below its largest term %v", i, lse[i], dst[i*k].Logit)
		}
	}
}

func TestLogSumExpGoesWithTheBatch(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) { rapid.Check(t, checkLogSumExp) })
}

// The sum over the int8 centres is close to that over reference logits: of the
// candidates, or of all labels where the exact layer answered.
func TestLogSumExpIsCloseToTheReference(t *testing.T) {
	exact, screened := 0, 0
	for name, in := range map[string]*instance{"flat": ordinary(t), "groups": grouped(t), "probing": probing(t)} {
		t.Run(name, func(t *testing.T) {
			s := in.searcher(t)
			dst, lse := make([]softmax.Prediction, in.n*3), make([]float64, in.n)
			all, q := make([]float64, in.config.Labels), softmax.NewQuery(in.config.Dim)
			for i := range in.n {
				before := s.Stats().Exact
				if _, err := s.TopKLogSumExp(dst[:3], lse[:1], 3, in.context(i)); err != nil {
					t.Fatal(err)
				}
				want := 0.0
				if s.Stats().Exact > before {
					exact++
					if err := q.Set(in.context(i)); err != nil {
						t.Fatal(err)
					}
					in.layer.LogProbs(all, q)
					want = all[dst[0].ID]
				} else {
					screened++
					ids, logp, err := s.LogProbs(nil, in.context(i))
					if err != nil {
						t.Fatal(err)
					}
					want = logp[slices.Index(ids, dst[0].ID)]
				}
				if got := dst[0].Logit - lse[0]; math.Abs(got-want) > 0.02 {
					t.Errorf("context %d: log-probability %v, want %v within 0.02", i, got, want)
				}
			}
			if n := simdtest.AllocsPerRun(20, func() {
				if _, err := s.TopKLogSumExp(dst, lse, 3, in.contexts); err != nil {
					t.Fatal(err)
				}
			}); n != 0 {
				t.Errorf("%v allocations a batch, want none", n)
			}
		})
	}
	if exact == 0 || screened == 0 {
		t.Errorf("the exact layer answered %d contexts and screens %d, expected some of each", exact, screened)
	}
}

// The answers and the sums are the same bits on every level.
func TestLogSumExpIsTheSameOnEveryLevel(t *testing.T) {
	type answer struct {
		dst []softmax.Prediction
		lse []float64
	}
	for name, in := range map[string]*instance{"flat": ordinary(t), "groups": grouped(t), "probing": probing(t)} {
		var first *answer
		simdtest.EachLevel(t, func(t *testing.T) {
			a := &answer{make([]softmax.Prediction, in.n*3), make([]float64, in.n)}
			if _, err := in.searcher(t).TopKLogSumExp(a.dst, a.lse, 3, in.contexts); err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = a
			}
			if !slices.Equal(a.dst, first.dst) || !slices.Equal(a.lse, first.lse) {
				t.Errorf("%s: found other answers or sums than on the lowest level", name)
			}
		})
	}
}
