package train

import (
	"math"
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s/train/internal/rng"
	"pgregory.net/rapid"
)

// Of all contexts and by mini-batches: the vectors have length 1, and every
// context is in the cluster of the nearest, by plain loops. Over all contexts
// the objective never falls.
func TestKMeansInvariants(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 300).Draw(rt, "n")
		dim := rapid.IntRange(1, 9).Draw(rt, "dim")
		clusters := rapid.IntRange(1, min(n, 20)).Draw(rt, "clusters")
		directions := rapid.IntRange(1, 12).Draw(rt, "directions")
		spread := rapid.SampledFrom([]float64{0, 0.01, 0.5, 2}).Draw(rt, "spread")
		s := newSynthetic(t, rapid.Uint64().Draw(rt, "seed"), n, dim, 5, directions, spread)
		if rapid.Bool().Draw(rt, "zeros") {
			for i := 0; i < n; i += 3 {
				clear(s.contexts[i*dim : (i+1)*dim])
			}
		}
		batch := rapid.SampledFrom([]int{0, 1, 7, 100, 1000}).Draw(rt, "batch")
		tr := newTestData(t, s, 1)
		m, err := sphericalKMeans(t.Context(), tr, clusters, 15, batch)
		if err != nil {
			rt.Fatal(err)
		}
		for c := range clusters {
			v := m.v[c*dim : (c+1)*dim]
			if length := math.Sqrt(naiveDot(v, v)); math.Abs(length-1) > 1e-6 && length != 0 {
				rt.Fatalf("cluster %d: length %v, want 1", c, length)
			}
		}
		full := batch == 0 || batch >= n
		if !full && len(m.history) != 15 {
			rt.Fatalf("found %d mini-batches, want 15", len(m.history))
		}
		for i := 1; full && i < len(m.history); i++ {
			if m.history[i].Objective < m.history[i-1].Objective-1e-6 {
				rt.Fatalf("the objective falls from %v to %v in iteration %d", m.history[i-1].Objective, m.history[i].Objective, i+1)
			}
		}
		for i := range n {
			h := tr.row(uint32(i))
			own := naiveDot(m.v[int(m.cluster[i])*dim:][:dim], h)
			for c := range clusters {
				if x := naiveDot(m.v[c*dim:(c+1)*dim], h); x > own+1e-9*math.Sqrt(naiveDot(h, h)) {
					rt.Fatalf("context %d is in cluster %d at %v, but cluster %d is nearer at %v", i, m.cluster[i], own, c, x)
				}
			}
		}
	})
}

// With far more room between the directions than around them, k-means++ and
// the filling of empty clusters must find each of them.
func TestKMeansFindsSeparateDirections(t *testing.T) {
	const directions = 10
	s := newSynthetic(t, 5, 2000, 30, 5, directions, 0.05)
	tr := newTestData(t, s, 1)
	m, err := sphericalKMeans(t.Context(), tr, directions, 20, 0)
	if err != nil {
		t.Fatal(err)
	}
	if last := m.history[len(m.history)-1]; last.Objective < 0.99 {
		t.Errorf("mean cosine %v, want above 0.99", last.Objective)
	}
	p := newPartition(ascending(tr.n), m.cluster, directions)
	for c := range directions {
		if p.size(c) == 0 {
			t.Errorf("cluster %d is empty", c)
		}
	}
}

func TestKMeansFillsEmptyClusters(t *testing.T) {
	s := newSynthetic(t, 6, 400, 8, 5, 6, 0.3)
	tr := newTestData(t, s, 1)
	invNorm, err := unitRows(t.Context(), tr)
	if err != nil {
		t.Fatal(err)
	}
	const clusters = 6
	m := &kMeans{data: tr, clusters: clusters, invNorm: invNorm, cluster: make([]uint32, tr.n), v: make([]float32, clusters*tr.dim)}
	for c := range clusters { // all the same: cluster 0 takes everything
		scaleTo(m.v[c*tr.dim:(c+1)*tr.dim], tr.row(0), invNorm[0])
	}
	all := ascending(tr.n)
	p, err := m.fillEmpty(t.Context(), all, newPartition(all, m.cluster, clusters))
	if err != nil {
		t.Fatal(err)
	}
	for c := range clusters {
		if p.size(c) == 0 {
			t.Errorf("cluster %d is still empty", c)
		}
	}
	before, err := m.update(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.assign(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	after, err := m.update(t.Context(), newPartition(all, m.cluster, clusters))
	if err != nil {
		t.Fatal(err)
	}
	if after < before {
		t.Errorf("the objective falls from %v to %v", before, after)
	}
}

// Many small samples must come near to what all contexts give, and for any
// number of threads to the same bits.
func TestKMeansByMiniBatches(t *testing.T) {
	s := newSynthetic(t, 5, 3000, 20, 5, 30, 0.4)
	mean := func(m *kMeans) float64 {
		sum := 0.0
		for i := range m.n {
			h := m.row(uint32(i))
			sum += naiveDot(m.v[int(m.cluster[i])*m.dim:][:m.dim], h) / math.Sqrt(naiveDot(h, h))
		}
		return sum / float64(m.n)
	}
	const clusters, batch = 20, 200
	run := func(threads, iterations, batch int) *kMeans {
		tr := newTestData(t, s, 1)
		tr.threads = threads
		m, err := sphericalKMeans(t.Context(), tr, clusters, iterations, batch)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	full, few, first := mean(run(1, 30, 0)), run(1, 30, batch), mean(run(1, 1, 1))
	if got := mean(few); got < full-0.1*(full-first) || full-first < 0.02 {
		t.Errorf("mean cosine %v by mini-batches, %v over all contexts, %v of the seeds", got, full, first)
	}
	for _, threads := range []int{2, 5} {
		if m := run(threads, 30, batch); !slices.Equal(m.v, few.v) || !slices.Equal(m.cluster, few.cluster) || !slices.Equal(m.history, few.history) {
			t.Errorf("%d threads: found other clusters than with one", threads)
		}
	}
	if all := run(1, 30, 3000); mean(all) != full {
		t.Errorf("a mini-batch of all contexts: mean cosine %v, want the cosine without mini-batches, %v", mean(all), full)
	}
}

// A cluster that no mini-batch so far had a context of is given one; one that
// only the present mini-batch has none of is left alone.
func TestKMeansFillsClustersThatNoMiniBatchHad(t *testing.T) {
	s := newSynthetic(t, 6, 200, 8, 5, 6, 0.3)
	tr := newTestData(t, s, 1)
	invNorm, err := unitRows(t.Context(), tr)
	if err != nil {
		t.Fatal(err)
	}
	const clusters = 3
	m := &kMeans{data: tr, clusters: clusters, invNorm: invNorm, cluster: make([]uint32, tr.n), v: make([]float32, clusters*tr.dim)}
	m.past = &kMeansPast{make([]float64, clusters*tr.dim), []int{50, 50, 0}}
	for c := range clusters { // all the same: cluster 0 takes everything
		scaleTo(m.v[c*tr.dim:(c+1)*tr.dim], tr.row(0), invNorm[0])
	}
	all := ascending(tr.n)
	p, err := m.fillEmpty(t.Context(), all, newPartition(all, m.cluster, clusters))
	if err != nil {
		t.Fatal(err)
	}
	if p.size(0) != tr.n-1 || p.size(1) != 0 || p.size(2) != 1 {
		t.Errorf("found %d, %d and %d contexts, want %d, none and one", p.size(0), p.size(1), p.size(2), tr.n-1)
	}
}

func TestPartitionKeepsOrder(t *testing.T) {
	p := newPartition([]uint32{0, 2, 3, 5, 6}, []uint32{2, 9, 0, 2, 9, 0, 2}, 4)
	want := [][]uint32{{2, 5}, {}, {0, 3, 6}, {}}
	for c, w := range want {
		if !slices.Equal(p.members(c), w) || p.size(c) != len(w) {
			t.Errorf("cluster %d: found %v, want %v", c, p.members(c), w)
		}
	}
}

func TestScaleReachesTheConfidence(t *testing.T) {
	s := newSynthetic(t, 8, 500, 10, 5, 6, 0.4)
	tr := newTestData(t, s, 1)
	m, err := sphericalKMeans(t.Context(), tr, 6, 20, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, confidence := range []float64{0.3, 0.8, 0.95} {
		scale, err := scaleFor(t.Context(), tr, m.v, confidence)
		if err != nil {
			t.Fatal(err)
		}
		mean := 0.0
		for i := range tr.n {
			z := make([]float64, 6)
			for c := range z {
				z[c] = scale * naiveDot(m.v[c*tr.dim:(c+1)*tr.dim], tr.row(uint32(i)))
			}
			mean += slices.Max(naiveSoftmax(z)) / float64(tr.n)
		}
		if math.Abs(mean-confidence) > 1e-6 {
			t.Errorf("confidence %v: found %v at scale %v", confidence, mean, scale)
		}
	}
}

func TestScaleIsOneWhereNoneServes(t *testing.T) {
	s := newSynthetic(t, 8, 50, 4, 5, 2, 0.4)
	tr := newTestData(t, s, 1)
	for name, v := range map[string][]float32{"one cluster": {1, 0, 0, 0}, "equal clusters": {1, 0, 0, 0, 1, 0, 0, 0}, "zero": make([]float32, 8)} {
		if scale, err := scaleFor(t.Context(), tr, v, 0.8); err != nil || scale != 1 {
			t.Errorf("%s: found %v, %v, want 1", name, scale, err)
		}
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
