package softmax_test

import (
	"math"
	"testing"

	"github.com/learning-to-screen/l2s/internal/simd"
	"github.com/learning-to-screen/l2s/internal/simdtest"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
	"pgregory.net/rapid"
)

func normals(seed uint64, n int) []float32 {
	r, x := newRand(seed), make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

func TestTailLogits(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) { rapid.Check(t, checkTailLogits) })
}

// checkTailLogits compares with plain sums: exact logits for the ids, b + A B h
// for the others.
func checkTailLogits(t *rapid.T) {
	labels, dim := rapid.SampledFrom([]int{1, 7, 40, 1023, 1024, 1030}).Draw(t, "labels"), rapid.IntRange(1, 40).Draw(t, "dim")
	rank := rapid.IntRange(1, min(labels, dim)).Draw(t, "rank")
	seed := rapid.Uint64().Draw(t, "seed")
	l, err := softmax.NewLayer(normals(seed, labels*dim), normals(seed+1, labels), dim)
	if err != nil {
		t.Fatal(err)
	}
	tail, err := softmax.NewTail(normals(seed+3, rank*labels), normals(seed+4, rank*dim), labels, dim)
	if err != nil {
		t.Fatal(err)
	}
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
}
