package screen_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/simd"
	"github.com/learning-to-screen/l2s/internal/simdtest"
	"github.com/learning-to-screen/l2s/screen"
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

// checkTailLogits compares with plain sums, b + A B h.
func checkTailLogits(t *rapid.T) {
	labels, dim := rapid.SampledFrom([]int{1, 7, 40, 1023, 1024, 1030}).Draw(t, "labels"), rapid.IntRange(1, 100).Draw(t, "dim")
	rank := rapid.IntRange(1, min(labels, dim)).Draw(t, "rank")
	seed := rapid.Uint64().Draw(t, "seed")
	columns, rows, bias, h := normals(seed, rank*labels), normals(seed+1, rank*dim), normals(seed+2, labels), normals(seed+3, dim)
	tail, err := screen.NewTail(columns, rows, labels, dim)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]float64, labels)
	tail.Logits(got, bias, h)
	for s := range labels {
		want, size := float64(bias[s]), math.Abs(float64(bias[s]))
		for k := range rank {
			y := 0.0
			for j, x := range h {
				y += float64(rows[k*dim+j]) * float64(x)
			}
			term := float64(columns[k*labels+s]) * y
			want, size = want+term, size+math.Abs(term)
		}
		if math.Abs(got[s]-want) > 0x1p-22*size {
			t.Fatalf("label %d: %v, want %v", s, got[s], want)
		}
	}
}

func TestTailLogitsHaveTheSameBitsOnEveryLevel(t *testing.T) {
	const labels, dim, rank = 2100, 37, 9
	bias := normals(4, labels)
	tail, err := screen.NewTail(normals(5, rank*labels), normals(6, rank*dim), labels, dim)
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
			tail.Logits(got, bias, h)
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
	tail, err := screen.NewTail([]float32{2, -2, 3, 1}, []float32{100, 0, 0, 50}, 2, 2)
	if err != nil {
		t.Fatal(err)
	}
	const x = 0x1p127
	got := make([]float64, 2)
	tail.Logits(got, []float32{1, 2}, []float32{x, -x})
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
		{"no labels", nil, nil, 0, 2, "screen: tail: found 0 labels and dim 2, expected at least 1 of each"},
		{"no rows", nil, nil, 3, 2, "screen: tail: rows: found 0 elements, expected 1 to 2 rows of dim 2"},
		{"ragged rows", make([]float32, 3), make([]float32, 3), 3, 2, "screen: tail: rows: found 3 elements, expected 1 to 2 rows of dim 2"},
		{"too many rows", make([]float32, 9), make([]float32, 6), 3, 2, "screen: tail: rows: found 6 elements, expected 1 to 2 rows of dim 2"},
		{"a column missing", make([]float32, 3), make([]float32, 4), 3, 2, "screen: tail: columns: found 3 elements, expected one for each of 3 labels in 2 columns"},
		{"NaN", []float32{0, 0, nan, 0, 0, 0}, make([]float32, 4), 3, 2, "screen: tail: A by columns: found NaN at row 0, column 2, expected finite numbers"},
		{"Inf", make([]float32, 6), []float32{0, 0, 0, inf}, 3, 2, "screen: tail: B: found +Inf at row 1, column 1, expected finite numbers"},
	} {
		if _, err := screen.NewTail(c.columns, c.rows, c.labels, c.dim); err == nil || err.Error() != c.want {
			t.Errorf("%s: error %v, want %s", c.name, err, c.want)
		}
	}
}
