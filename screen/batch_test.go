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
