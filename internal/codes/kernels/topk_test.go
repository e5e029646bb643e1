package kernels

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

// sortedIndices returns the indices of the scores by descending score, ties
// by the lower index.
func sortedIndices(scores []float32) []uint32 {
	ids := make([]uint32, len(scores))
	for i := range ids {
		ids[i] = uint32(i)
	}
	slices.SortStableFunc(ids, func(a, b uint32) int {
		switch {
		case scores[a] > scores[b]:
			return -1
		case scores[a] < scores[b]:
			return 1
		}
		return 0
	})
	return ids
}

func checkTopK(t *rapid.T) {
	n := rapid.IntRange(0, 200).Draw(t, "n")
	k := rapid.IntRange(0, n).Draw(t, "k")
	values := rapid.IntRange(1, 300).Draw(t, "distinct values") // few make ties
	infinite := rapid.IntRange(0, 9).Draw(t, "many -Inf") == 0
	r := newRand(rapid.Uint64().Draw(t, "seed"))
	scores := make([]float32, n)
	for i := range scores {
		scores[i] = float32(r.IntN(values)) - float32(values/2)
		if infinite {
			scores[i] = float32(math.Inf(2*r.IntN(2) - 1))
			if scores[i] > 0 {
				scores[i] = 1
			}
		}
	}
	want := sortedIndices(scores)
	ids, vals := make([]uint32, k), make([]float32, k)
	TopK(ids, vals, scores)
	for i := range ids {
		if ids[i] != want[i] || vals[i] != scores[want[i]] {
			t.Fatalf("rank %d: got %d (%v), want %d (%v)", i, ids[i], vals[i], want[i], scores[want[i]])
		}
	}
	if n == 0 {
		return
	}
	{
		k := rapid.IntRange(1, n).Draw(t, "k of the bound")
		bound, ok := KthBound(scores, k)
		if wantOK := k <= 16 || k > 16 && n/((k+7)/8) >= 32; ok != wantOK {
			t.Fatalf("KthBound of %d scores, k %d: ok %v, want %v", n, k, ok, wantOK)
		}
		if ok && k <= 16 {
			padded := slices.Clone(scores)
			for len(padded)%laneCount > 0 {
				padded = append(padded, float32(math.Inf(-1)))
			}
			if want := kthOfLanesGeneric(new([laneCount]float32), padded, k); bound != want {
				t.Fatalf("KthBound, k %d: got %v, want %v", k, bound, want)
			}
		}
		if ok && bound > scores[want[k-1]] {
			t.Fatalf("KthBound, k %d: got %v, above the k-th largest %v", k, bound, scores[want[k-1]])
		}
		if got := KthLargest(slices.Clone(scores), k); got != scores[want[k-1]] {
			t.Fatalf("KthLargest, k %d: got %v, want %v", k, got, scores[want[k-1]])
		}
	}
	threshold := scores[r.IntN(n)]
	var atLeast []uint32
	for i, s := range scores {
		if s >= threshold {
			atLeast = append(atLeast, uint32(i))
		}
	}
	dst := make([]uint32, n)
	if m := SelectAtLeast(dst, scores, threshold); !slices.Equal(dst[:m], atLeast) {
		t.Fatalf("SelectAtLeast %v: got %v, want %v", threshold, dst[:m], atLeast)
	}
	if got, want := maxID(dst), slices.Max(dst); got != want {
		t.Fatalf("maxID: got %d, want %d", got, want)
	}
}

func TestTopKIsTheHeadOfTheSort(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) { rapid.Check(t, checkTopK) })
}

func FuzzTopKIsTheHeadOfTheSort(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkTopK)) }

// Of many scores groups without a selected one are skipped.
func TestSelectAtLeastOfManyScores(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) {
		for _, n := range []int{1008, 1023, 1024, 1025, 1040, 1087, 1088, 1136, 5000} {
			for every := 1; every < 2*n; every = 3*every + 1 {
				scores, dst := make([]float32, n), make([]uint32, n)
				var want []uint32
				for i := range scores {
					scores[i] = float32(i%5) - 9
					switch {
					case i%7 == 3:
						scores[i] = float32(math.NaN())
					case (i+n)%every == 0: // the last, among others
						scores[i] = float32(i % 3)
						want = append(want, uint32(i))
					}
				}
				if m := SelectAtLeast(dst, scores, 0); !slices.Equal(dst[:m], want) {
					t.Fatalf("%d scores, one of %d selected: got %v, want %v", n, every, dst[:m], want)
				}
			}
		}
	})
}

func TestMaxIDSeesAllBits(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) {
		for n := 1; n < 70; n++ {
			for at := range n {
				ids := make([]uint32, n)
				ids[at] = 1 << 31
				if got := maxID(ids); got != 1<<31 {
					t.Fatalf("largest at %d of %d: got %d", at, n, got)
				}
			}
		}
	})
}

func TestTopKOfNaNsSelectsIndicesOfScores(t *testing.T) {
	nan := float32(math.NaN())
	simdtest.EachLevel(t, func(t *testing.T) {
		for _, n := range []int{5, 20, 64, 100, 500} {
			for share := range 4 {
				scores := make([]float32, n)
				for i := range scores {
					if i%4 < share+1 {
						scores[i] = nan
					}
				}
				ids, vals := []uint32{1 << 30, 1 << 30, 1 << 30}, make([]float32, 3)
				TopK(ids, vals, scores)
				for _, id := range ids {
					if int(id) >= n {
						t.Fatalf("%d scores, %d of 4 NaN: selected %d", n, share+1, id)
					}
				}
			}
		}
	})
}

// The bound for a larger k: reached by at least k scores and, on scores in no order, by
// few more.
func TestKthBoundOfLargeK(t *testing.T) {
	r := newRand(17)
	scores := make([]float32, 10000)
	for i := range scores {
		scores[i] = float32(r.NormFloat64())
	}
	simdtest.EachLevel(t, func(t *testing.T) {
		for _, c := range []struct{ k, most int }{{17, 60}, {50, 160}, {100, 320}, {512, 1700}, {513, 0}} {
			bound, ok := KthBound(scores, c.k)
			if ok != (c.most > 0) {
				t.Fatalf("k %d: ok %v", c.k, ok)
			}
			n := 0
			for _, s := range scores {
				if s >= bound {
					n++
				}
			}
			if ok && (n < c.k || n > c.most) {
				t.Errorf("k %d: %d scores reach the bound, want %d to %d", c.k, n, c.k, c.most)
			}
		}
		if n := simdtest.AllocsPerRun(10, func() { KthBound(scores, 100) }); n != 0 {
			t.Errorf("%v allocations, want none", n)
		}
	})
}

// A NaN has no place in an order, but a search among NaNs ends.
func TestKthLargestEndsOnNaN(t *testing.T) {
	nan := float32(math.NaN())
	for _, scores := range [][]float32{{nan}, {nan, 1, 2}, {1, nan, 2, nan, 3}, {-1, -nan, float32(math.Inf(1))}} {
		for k := 1; k <= len(scores); k++ {
			KthLargest(slices.Clone(scores), k)
		}
	}
}
