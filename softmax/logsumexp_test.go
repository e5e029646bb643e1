package softmax_test

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/simdtest"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
)

// checkLogSumExp: the labels are those of TopKOf, bit for bit, and the sum is
// within the width of the int8 intervals of the one over reference logits. All
// labels by name and all labels by nil are the same bits.
func checkLogSumExp(t *rapid.T) {
	l, h := drawLayer(t)
	n := l.Labels()
	k := rapid.IntRange(0, n).Draw(t, "k")
	count := rapid.IntRange(1, 6).Draw(t, "contexts")
	var qs []*softmax.Query
	var contexts [][]float32
	for range count {
		contexts = append(contexts, h)
		q := softmax.NewQuery(l.Dim())
		if err := q.Set(h); err != nil {
			t.Fatal(err)
		}
		qs = append(qs, q)
		h = slices.Clone(h)
		h[0] = rapid.Float32Range(-1, 1).Draw(t, "h0")
	}
	dst, lse := make([]softmax.Prediction, k*count), make([]float64, count)
	l.TopKLogSumExp(dst, lse, k, qs, nil)
	same, sum := make([]softmax.Prediction, k*count), make([]float64, count)
	l.TopKLogSumExp(same, sum, k, qs, allIDs(n))
	if !slices.Equal(dst, same) || !slices.Equal(lse, sum) {
		t.Fatalf("all labels by name: %v %v, by nil: %v %v", same, sum, dst, lse)
	}
	for i, q := range qs {
		want := make([]softmax.Prediction, k)
		l.TopK(want, q)
		if got := dst[i*k : (i+1)*k]; !slices.Equal(got, want) {
			t.Fatalf("query %d: %v, want %v", i, got, want)
		}
		one, alone := make([]softmax.Prediction, k), make([]float64, 1)
		l.TopKLogSumExp(one, alone, k, qs[i:i+1], nil)
		if !slices.Equal(one, want) || alone[0] != lse[i] {
			t.Fatalf("query %d alone: %v, together: %v", i, alone[0], lse[i])
		}
		logits := make([]float64, n)
		kernels.RefScan(logits, l.Weights(), l.Bias(), contexts[i])
		exact := kernels.LogSumExp(logits)
		if k == n {
			if lse[i] != exact {
				t.Fatalf("query %d: k is the number of labels, %v, want %v", i, lse[i], exact)
			}
		}
		// Twice 2/127 of the norms is more than two roundings to int8 lose.
		bound := 0.0
		for s := range n {
			var w2, h2 float64
			for j, x := range l.Weights()[s*l.Dim() : (s+1)*l.Dim()] {
				w2 += float64(x) * float64(x)
				h2 += float64(contexts[i][j]) * float64(contexts[i][j])
			}
			bound = max(bound, math.Sqrt(w2*h2))
		}
		d := float64(l.Dim())
		if off := math.Abs(lse[i] - exact); off > 2*math.Sqrt(d)/127*bound+1e-5*(1+math.Abs(exact)) {
			t.Fatalf("query %d: %v, want %v within the error of int8, found %v off", i, lse[i], exact, off)
		}
	}
}

func TestLogSumExpGoesWithTheTopK(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) { rapid.Check(t, checkLogSumExp) })
}
