package perplexity

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/dense"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

func normals(seed uint64, n int) []float32 {
	r, x := rand.New(rand.NewPCG(seed, 0)), make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

func newLayer(t interface{ Fatal(...any) }, weights, bias []float32, dim int) *exact.Layer {
	l, err := exact.NewLayer(kernels.Float32Rows(weights, dim), bias)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustLowRank(t interface{ Fatal(...any) }, l *exact.Layer, rank int) *LowRank {
	low, err := NewLowRank(context.Background(), l, rank)
	if err != nil {
		t.Fatal(err)
	}
	return low
}

// squaredError is the sum of (W - A B)^2.
func squaredError(l *exact.Layer, t *LowRank) (sum float64) {
	w := dense.Weights(l)
	for s := range l.Labels() {
		for j := range l.Dim() {
			diff := float64(w[s*l.Dim()+j])
			for k := range t.rank {
				diff -= float64(t.columns[k*l.Labels()+s]) * float64(t.rows[k*l.Dim()+j])
			}
			sum += diff * diff
		}
	}
	return sum
}

func TestLowRankFindsTheFactorsOfALowRankLayer(t *testing.T) {
	// W is a product of rank 3.
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
	if e := squaredError(l, mustLowRank(t, l, rank)); e > 1e-8*float64(len(w)) {
		t.Errorf("rank %d: squared error %v, want none but rounding", rank, e)
	}
	if e := squaredError(l, mustLowRank(t, l, rank-1)); e < 1 {
		t.Errorf("rank %d: squared error %v, want the square of the third factor", rank-1, e)
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
		if e := squaredError(l, mustLowRank(t, l, rank)); math.Abs(e-want) > 1e-5 {
			t.Errorf("rank %d: squared error %v, want %v", rank, e, want)
		}
	}
}

// The logits are b + A B h, by plain sums; at full rank they are the layer's.
func TestLowRankLogits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		labels, dim := rapid.SampledFrom([]int{1, 7, 40, 1023, 1024, 1030}).Draw(t, "labels"), rapid.IntRange(1, 90).Draw(t, "dim")
		full := min(labels, dim)
		rank := rapid.IntRange(1, full).Draw(t, "rank")
		seed := rapid.Uint64().Draw(t, "seed")
		l := newLayer(t, normals(seed, labels*dim), normals(seed+1, labels), dim)
		h, low := normals(seed+2, dim), mustLowRank(t, l, rank)
		got := make([]float64, labels)
		low.logits(got, l.Bias(), h)
		exact := make([]float64, labels)
		l.Weights().RefScan(exact, l.Bias(), h)
		for s := range labels {
			want, size := float64(l.Bias()[s]), 1.0
			for k := range rank {
				y := 0.0
				for j, x := range h {
					y += float64(low.rows[k*dim+j]) * float64(x)
				}
				term := float64(low.columns[k*labels+s]) * y
				want, size = want+term, size+math.Abs(term)
			}
			if math.Abs(got[s]-want) > 0x1p-22*size {
				t.Fatalf("label %d: %v, want %v", s, got[s], want)
			}
			if rank == full && math.Abs(got[s]-exact[s]) > 1e-3 {
				t.Fatalf("label %d: %v at full rank, want the layer's %v", s, got[s], exact[s])
			}
		}
	})
}

func TestLowRankRefuses(t *testing.T) {
	l := newLayer(t, make([]float32, 6), nil, 2)
	for _, rank := range []int{-1, 0, 3} {
		want := fmt.Sprintf("perplexity: rank: found %d, expected 1 to 2, the smaller of 3 labels and dim 2", rank)
		if _, err := NewLowRank(context.Background(), l, rank); err == nil || err.Error() != want {
			t.Errorf("rank %d: error %v, want %s", rank, err, want)
		}
	}
}
