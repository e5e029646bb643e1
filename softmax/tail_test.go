package softmax_test

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/simd"
	"github.com/learning-to-screen/l2s/internal/simdtest"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
)

func normals(seed uint64, n int) []float32 {
	r, x := newRand(seed), make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

func lowRank(t interface{ Fatal(...any) }, l *softmax.Layer, rank int) *softmax.Tail {
	tail, err := softmax.LowRank(l, rank)
	if err != nil {
		t.Fatal(err)
	}
	return tail
}

// squaredError is the sum of (W - A B)^2.
func squaredError(l *softmax.Layer, t *softmax.Tail) (sum float64) {
	for s := range l.Labels() {
		for j := range l.Dim() {
			diff := float64(l.Weights()[s*l.Dim()+j])
			for k := range t.Rank() {
				diff -= float64(t.Columns()[k*l.Labels()+s]) * float64(t.Rows()[k*l.Dim()+j])
			}
			sum += diff * diff
		}
	}
	return sum
}

func TestLowRankFindsTheFactorsOfALowRankLayer(t *testing.T) {
	// W is a product of rank 3, and more labels than one block holds.
	const labels, dim, rank = 1100, 12, 3
	a, b := normals(1, labels*rank), normals(2, rank*dim)
	w := make([]float32, labels*dim)
	for s := range labels {
		for j := range dim {
			for k := range rank {
				w[s*dim+j] += a[s*rank+k] * b[k*dim+j]
			}
		}
	}
	l := newLayer(t, w, nil, dim)
	if e := squaredError(l, lowRank(t, l, rank)); e > 1e-8*float64(len(w)) {
		t.Errorf("rank %d: squared error %v, want none but rounding", rank, e)
	}
	if e := squaredError(l, lowRank(t, l, rank-1)); e < 1 {
		t.Errorf("rank %d: squared error %v, want what the third factor holds", rank-1, e)
	}
}

// The best approximation of a matrix whose rows are a_i e_i, orthogonal, keeps
// the longest ones and leaves the sum of the others' squares (Eckart, Young).
func TestLowRankKeepsTheLargestSingularValues(t *testing.T) {
	w := make([]float32, 6*4)
	for i, v := range []float32{2, -7, 0.5, 3} {
		w[i*4+i] = v
	}
	l := newLayer(t, w, nil, 4)
	for rank, want := range map[int]float64{1: 4 + 0.25 + 9, 2: 4 + 0.25, 3: 0.25, 4: 0} {
		if e := squaredError(l, lowRank(t, l, rank)); math.Abs(e-want) > 1e-5 {
			t.Errorf("rank %d: squared error %v, want %v", rank, e, want)
		}
	}
	// The leading factor comes first.
	if b := lowRank(t, l, 4).Rows(); math.Abs(float64(b[1])) < 0.999 {
		t.Errorf("first row of B: %v, want the direction of the row of length 7", b[:4])
	}
}

func TestTailLogits(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) { rapid.Check(t, checkTailLogits) })
}

// checkTailLogits compares with plain sums: exact logits for the ids, b + A B h
// for the others; of full rank the latter are the exact ones too.
func checkTailLogits(t *rapid.T) {
	labels, dim := rapid.SampledFrom([]int{1, 7, 40, 1023, 1024, 1030}).Draw(t, "labels"), rapid.IntRange(1, 40).Draw(t, "dim")
	rank := rapid.IntRange(1, min(labels, dim)).Draw(t, "rank")
	seed := rapid.Uint64().Draw(t, "seed")
	l, err := softmax.NewLayer(normals(seed, labels*dim), normals(seed+1, labels), dim)
	if err != nil {
		t.Fatal(err)
	}
	tail := lowRank(t, l, rank)
	h := normals(seed+2, dim)
	q := softmax.NewQuery(dim)
	if err := q.Set(h); err != nil {
		t.Fatal(err)
	}
	exact, got := make([]float64, labels), make([]float64, labels)
	kernels.RefScan(exact, l.Weights(), l.Bias(), h)
	var ids []uint32
	for s := range labels {
		if newRand(seed+uint64(s)).IntN(3) == 0 {
			ids = append(ids, uint32(s))
		}
	}
	l.TailLogits(got, q, tail, ids)
	inside := map[int]bool{}
	for _, id := range ids {
		inside[int(id)] = true
	}
	for s := range labels {
		want := exact[s]
		if !inside[s] {
			want = float64(l.Bias()[s])
			for k := range rank {
				y := 0.0
				for j, x := range h {
					y += float64(tail.Rows()[k*dim+j]) * float64(x)
				}
				want += float64(tail.Columns()[k*labels+s]) * y
			}
			if rank == dim && math.Abs(got[s]-exact[s]) > 1e-4 {
				t.Fatalf("full rank, label %d: %v, want the exact %v", s, got[s], exact[s])
			}
			if math.Abs(got[s]-want) > 1e-4 {
				t.Fatalf("label %d outside: %v, want %v", s, got[s], want)
			}
		} else if got[s] != want {
			t.Fatalf("label %d inside: %v, want exactly %v", s, got[s], want)
		}
	}
	l.TailLogits(got, q, nil, ids)
	for s := range labels {
		if want := exact[s]; inside[s] && got[s] != want || !inside[s] && !math.IsInf(got[s], -1) {
			t.Fatalf("no tail, label %d: %v", s, got[s])
		}
	}
}

func TestTailLogitsHaveTheSameBitsOnEveryLevel(t *testing.T) {
	const labels, dim, rank = 2100, 37, 9
	l := newLayer(t, normals(3, labels*dim), normals(4, labels), dim)
	// Given factors: those of LowRank may differ between architectures.
	tail, err := softmax.NewTail(normals(5, rank*labels), normals(6, rank*dim), labels, dim)
	if err != nil {
		t.Fatal(err)
	}
	for _, scale := range []float32{1, 0x1p-140, 0x1p120} {
		var first []float64
		for _, level := range simd.Available() {
			restore := simd.Set(level)
			h := normals(7, dim)
			for i := range h {
				h[i] *= scale
			}
			got := make([]float64, labels)
			l.TailLogits(got, newQuery(t, h), tail, []uint32{5, 2000})
			restore()
			if first == nil {
				first = got
			}
			for s := range got {
				if math.Float64bits(got[s]) != math.Float64bits(first[s]) {
					t.Fatalf("scale %v, label %d: %s gives %x, %s %x", scale, s, level, got[s], simd.Available()[0], first[s])
				}
			}
		}
	}
}

// A context at the end of the range of float32, where B h leaves it.
func TestTailLogitsOfLargeContexts(t *testing.T) {
	l := newLayer(t, []float32{100, 0, 0, 100}, []float32{1, 2}, 2)
	tail, err := softmax.NewTail([]float32{2, -2, 3, 1}, []float32{100, 0, 0, 50}, 2, 2)
	if err != nil {
		t.Fatal(err)
	}
	const x = 0x1p127
	got := make([]float64, 2)
	l.TailLogits(got, newQuery(t, []float32{x, -x}), tail, nil)
	for s, want := range []float64{2*100*x - 3*50*x, -2*100*x - 50*x} {
		if math.Abs(got[s]/want-1) > 1e-6 {
			t.Errorf("label %d: %v, want %v", s, got[s], want)
		}
	}
}

func TestTailsAreRefused(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct {
		name          string
		columns, rows []float32
		labels, dim   int
		want          string
	}{
		{"no labels", nil, nil, 0, 2, "softmax: tail: found 0 labels and dim 2, expected at least 1 of each"},
		{"no rows", nil, nil, 3, 2, "softmax: tail: rows: found 0 elements, expected 1 to 2 rows of dim 2"},
		{"ragged rows", make([]float32, 3), make([]float32, 3), 3, 2, "softmax: tail: rows: found 3 elements, expected 1 to 2 rows of dim 2"},
		{"too many rows", make([]float32, 9), make([]float32, 6), 3, 2, "softmax: tail: rows: found 6 elements, expected 1 to 2 rows of dim 2"},
		{"a column missing", make([]float32, 3), make([]float32, 4), 3, 2, "softmax: tail: columns: found 3 elements, expected one for each of 3 labels in 2 columns"},
		{"NaN", []float32{0, 0, nan, 0, 0, 0}, make([]float32, 4), 3, 2, "softmax: tail: columns: found NaN at column 0, label 2, expected finite numbers"},
		{"Inf", make([]float32, 6), []float32{0, 0, 0, inf}, 3, 2, "softmax: tail: rows: found +Inf at row 1, column 1, expected finite numbers"},
	} {
		if _, err := softmax.NewTail(c.columns, c.rows, c.labels, c.dim); err == nil || err.Error() != c.want {
			t.Errorf("%s: error %v, want %s", c.name, err, c.want)
		}
	}
	l := newLayer(t, make([]float32, 6), nil, 2)
	for _, rank := range []int{-1, 0, 3} {
		want := fmt.Sprintf("softmax: rank: found %d, expected 1 to 2, the smaller of 3 labels and dim 2", rank)
		if _, err := softmax.LowRank(l, rank); err == nil || err.Error() != want {
			t.Errorf("rank %d: error %v, want %s", rank, err, want)
		}
	}
	// A layer whose factors leave the range of float32.
	huge := newLayer(t, []float32{3e38, 3e38, 3e38, 3e38}, nil, 2)
	if _, err := softmax.LowRank(huge, 1); err == nil {
		t.Error("factors beyond float32: no error")
	}
}
