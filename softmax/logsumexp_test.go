package softmax_test

import (
	"math"
	"math/rand/v2"
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

// The sum is the same bits on every level, over all labels, some, and several
// contexts at a time, as the order of its terms is fixed.
func TestLogSumExpIsTheSameOnEveryLevel(t *testing.T) {
	const labels, dim, k, contexts = 300, 37, 5, 6
	r := rand.New(rand.NewPCG(1, 2))
	fill := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	weights, bias, h := fill(labels*dim), fill(labels), fill(contexts*dim)
	some := []uint32{3, 4, 9, 57, 100, 101, 200, 250, 298, 299}
	var first []float64
	var firstTop []softmax.Prediction
	simdtest.EachLevel(t, func(t *testing.T) {
		l, err := softmax.NewLayer(weights, bias, dim)
		if err != nil {
			t.Fatal(err)
		}
		var qs []*softmax.Query
		for i := range contexts {
			q := softmax.NewQuery(dim)
			if err := q.Set(h[i*dim : (i+1)*dim]); err != nil {
				t.Fatal(err)
			}
			qs = append(qs, q)
		}
		top, lse := make([]softmax.Prediction, 2*k*contexts), make([]float64, 2*contexts)
		l.TopKLogSumExp(top[:k*contexts], lse[:contexts], k, qs, nil)
		l.TopKLogSumExp(top[k*contexts:], lse[contexts:], k, qs, some)
		if first == nil {
			first, firstTop = lse, top
		}
		if !slices.Equal(lse, first) || !slices.Equal(top, firstTop) {
			t.Errorf("found sums %v, want those of the lowest level, %v", lse, first)
		}
	})
}

// In float32 the labels are those of the scan and the gather-dot, and the sum is
// that over the same scores.
func TestLogSumExpInFloat32(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, h := drawLayer(t)
		n := l.Labels()
		q := softmax.NewQuery(l.Dim())
		if err := q.Set(h); err != nil {
			t.Fatal(err)
		}
		scores := make([]float32, n)
		kernels.Scan(scores, l.Weights(), l.Bias(), h)
		for _, x := range scores {
			if x-x != 0 {
				t.Skip("logits outside the range of float32")
			}
		}
		ids := rapid.Permutation(allIDs(n)).Draw(t, "ids")[:rapid.IntRange(0, n).Draw(t, "labels")]
		for _, ids := range [][]uint32{nil, ids} {
			want := make([]softmax.Prediction, n)
			var count int
			var terms []float64
			if ids == nil {
				count = l.TopKFloat32(want, q)
			} else {
				count = l.TopKOfFloat32(want, q, ids)
				scores = scores[:len(ids)]
				kernels.GatherDot(scores, l.Weights(), l.Bias(), ids, h)
			}
			for _, x := range scores {
				terms = append(terms, float64(x))
			}
			got := make([]softmax.Prediction, n)
			found, lse := l.TopKLogSumExpFloat32(got, q, ids)
			if found != count || !slices.Equal(got, want) || lse != kernels.LogSumExp(terms) {
				t.Fatalf("%d labels: found %d and %v, want %d and %v", len(scores), found, lse, count, kernels.LogSumExp(terms))
			}
		}
	})
}
