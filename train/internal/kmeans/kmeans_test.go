package kmeans

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/train/internal/rng"
	"github.com/learning-to-screen/l2s/train/internal/traintest"
)

// The vectors have length 1, and the objective never falls.
func TestInvariants(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 300).Draw(rt, "n")
		dim := rapid.IntRange(1, 9).Draw(rt, "dim")
		clusters := rapid.IntRange(1, min(n, 20)).Draw(rt, "clusters")
		directions := rapid.IntRange(1, 12).Draw(rt, "directions")
		spread := rapid.SampledFrom([]float64{0, 0.01, 0.5, 2}).Draw(rt, "spread")
		s := traintest.Around(t, rapid.Uint64().Draw(rt, "seed"), n, dim, 5, directions, spread)
		if rapid.Bool().Draw(rt, "zeros") {
			for i := 0; i < n; i += 3 {
				clear(s.Contexts[i*dim : (i+1)*dim])
			}
		}
		v, history, err := Find(t.Context(), s.Corpus(t, 1), clusters, 15)
		if err != nil {
			rt.Fatal(err)
		}
		for c := range clusters {
			v := v[c*dim : (c+1)*dim]
			if length := math.Sqrt(kernels.RefDot(v, v)); math.Abs(length-1) > 1e-6 && length != 0 {
				rt.Fatalf("cluster %d: length %v, want 1", c, length)
			}
		}
		for i := 1; i < len(history); i++ {
			if history[i].Objective < history[i-1].Objective-1e-6 {
				rt.Fatalf("the objective falls from %v to %v in iteration %d", history[i-1].Objective, history[i].Objective, i+1)
			}
		}
	})
}

// Every context is assigned to the cluster of the nearest vector, by plain loops.
func TestAssignsToTheNearest(t *testing.T) {
	s := traintest.Around(t, 4, 500, 7, 5, 9, 0.5)
	m, err := newKMeans(t.Context(), s.Corpus(t, 1), 9)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.plant(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := m.assign(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for i := range m.N {
		h := m.Row(uint32(i), nil)
		own := kernels.RefDot(m.v[int(m.cluster[i])*m.Dim:][:m.Dim], h)
		for c := range m.clusters {
			if x := kernels.RefDot(m.v[c*m.Dim:(c+1)*m.Dim], h); x > own+1e-9*math.Sqrt(kernels.RefDot(h, h)) {
				t.Fatalf("context %d is in cluster %d at %v, but cluster %d is nearer at %v", i, m.cluster[i], own, c, x)
			}
		}
	}
}

// With far more room between the directions than around them, k-means++
// must find each of them.
func TestFindsSeparateDirections(t *testing.T) {
	const directions = 10
	s := traintest.Around(t, 5, 2000, 30, 5, directions, 0.05)
	_, history, err := Find(t.Context(), s.Corpus(t, 1), directions, 20)
	if err != nil {
		t.Fatal(err)
	}
	if last := history[len(history)-1]; last.Objective < 0.99 {
		t.Errorf("mean cosine %v, want above 0.99", last.Objective)
	}
}

func TestDrawFollowsTheWeights(t *testing.T) {
	r := rng.New(7, 8, 9)
	weights := []float64{0, 1, 0, 3, 0}
	var count [5]int
	const draws = 40000
	for range draws {
		count[draw(&r, weights)]++
	}
	if count[0]+count[2]+count[4] != 0 || math.Abs(float64(count[1])-draws/4) > 500 {
		t.Errorf("found %v", count)
	}
	if got := draw(&r, []float64{0}); got != 0 {
		t.Errorf("all weights zero: found %d", got)
	}
}
