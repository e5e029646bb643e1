package train

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s/internal/simdtest"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
	"pgregory.net/rapid"
)

func TestNormalIsTheDistributionFunction(t *testing.T) {
	table := phiTable()
	for x := -9.0; x <= 9; x += 1.0 / 512 {
		got, want := phi(table, x), 0.5*math.Erfc(-x/math.Sqrt2)
		if math.Abs(got-want) > 2e-5 || want > 1e-12 && math.Abs(got/want-1) > 3e-3 {
			t.Errorf("Phi(%v): found %v, want %v", x, got, want)
		}
	}
	for x, want := range map[float64]float64{math.Inf(-1): 0, math.Inf(1): 1, math.MaxFloat64: 1, -math.MaxFloat64: 0} {
		if got := phi(table, x); got != want {
			t.Errorf("Phi(%v): found %v, want %v", x, got, want)
		}
	}
	if got := phi(table, math.NaN()); got != 0 {
		t.Errorf("Phi(NaN): found %v, want 0", got)
	}
}

// The share of a mixture is the probability that a draw from it is at least 0,
// and its variance is the one wanted.
func TestShareIsThatOfTheMixture(t *testing.T) {
	table := phiTable()
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.SliceOfN(rapid.Float64Range(-3, 3), 1, 20).Draw(t, "x")
		mean := rapid.Float64Range(-6, 6).Draw(t, "mean")
		variance := rapid.Float64Range(0.01, 9).Draw(t, "variance")
		own := 0.0
		for _, v := range x {
			own += v * v / float64(len(x))
		}
		got := (&sampled{x: x}).share(table, mean, variance, own)

		// By the definition: kernels about the x, drawn together.
		drawn := math.Min(1-geometryKernel, (1-geometryKernel)*variance/own)
		cdf := func(z float64) float64 { return 0.5 * math.Erfc(-z/math.Sqrt2) }
		want := geometryWide * cdf(mean/(geometryWidth*math.Sqrt(variance)))
		for _, v := range x {
			want += (1 - geometryWide) * cdf((mean+math.Sqrt(drawn)*v)/math.Sqrt(variance-drawn*own)) / float64(len(x))
		}
		if math.Abs(got-want) > 1e-4 {
			t.Fatalf("found %v, want %v", got, want)
		}
		higher := (&sampled{x: x}).share(table, mean+0.5, variance, own)
		if higher < got {
			t.Fatalf("share %v at mean %v, and %v at a higher one", got, mean, higher)
		}
	})
}

// clustersOf are contexts around centres, far from each other, and the labels of
// a layer.
func clustersOf(t testing.TB, n int, seed uint64) (synthetic, *clusters) {
	const dim, centres, labels = 16, 6, 400
	random := rand.New(rand.NewPCG(seed, 9))
	normal := func(n int, scale float64) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(scale * random.NormFloat64())
		}
		return x
	}
	layerRandom := rand.New(rand.NewPCG(1, 1))
	weights := make([]float32, labels*dim)
	for i := range weights {
		weights[i] = float32(layerRandom.NormFloat64())
	}
	middle := make([]float32, centres*dim)
	for i := range middle {
		middle[i] = float32(2 * layerRandom.NormFloat64())
	}
	layer, err := softmax.NewLayer(kernels.Float32Rows(weights, dim), nil)
	if err != nil {
		t.Fatal(err)
	}
	s := synthetic{layer, normal(n*dim, 0.7), n, dim}
	c := &clusters{levels{clusters: centres}, middle, make([]uint32, n), nil}
	for i := range n {
		c.cluster[i] = uint32(i % centres)
		for j := range dim {
			s.contexts[i*dim+j] += middle[i%centres*dim+j]
		}
	}
	return s, c
}

// With few contexts the geometric shares are near to what many contexts count,
// also for labels that the few have not met; counts alone are not.
func TestGeometricSharesForeseeCounts(t *testing.T) {
	const k = 5
	few, c := clustersOf(t, 6*20, 3)
	many, all := clustersOf(t, 6*3000, 4)
	opt := SetOptions{Geometry: 20}
	r, err := rankGeometric(t.Context(), newTestData(t, few, k), few.layer, c, nil, nil, &opt)
	if err != nil {
		t.Fatal(err)
	}
	truth := map[[2]uint32]float64{}
	manyData := newTestData(t, many, k)
	for i := range uint32(many.n) {
		for _, s := range manyData.labelsOf(i) {
			truth[[2]uint32{all.cluster[i], s}] += 1.0 / 3000
		}
	}
	plain, err := rankLabels(t.Context(), newTestData(t, few, k), ascending(few.n), c, nil, &SetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// The mean share of the labels that are missed at an equal number of
	// candidates.
	miss := func(r *ranking) float64 {
		held := 0.0
		for t, set := range r.take(25).sets {
			for _, s := range set {
				held += truth[[2]uint32{uint32(t), s}]
			}
		}
		return 1 - held/(6*k)
	}
	geometric, counted := miss(r), miss(plain)
	if geometric > 0.6*counted {
		t.Errorf("labels missed: %.4f by geometry, %.4f by counts; want less than .6 of them", geometric, counted)
	}
	sum, unmet := 0.0, 0.0
	for i, it := range r.items {
		sum += r.shares[i]
		if it.count == 0 {
			unmet += r.shares[i]
		}
		if i > 0 && r.shares[i] > r.shares[i-1] {
			t.Fatalf("share %v comes after %v", r.shares[i], r.shares[i-1])
		}
	}
	if sum/6 < 0.8*k || sum/6 > 1.2*k {
		t.Errorf("the shares of a cluster add up to %.3f, want about k = %d", sum/6, k)
	}
	if unmet/6 < 0.05 {
		t.Errorf("labels that no context has have %.4f of the shares, want some", unmet/6)
	}
}

// A float16 layer that holds the same values gives the same shares, and so does
// any number of threads, at every level.
func TestGeometricSharesDependOnTheValuesAlone(t *testing.T) {
	s, c := clustersOf(t, 6*90, 5)
	var first *ranking
	for _, threads := range []int{1, 3} {
		simdtest.EachLevel(t, func(t *testing.T) {
			d := newTestData(t, s, 5)
			d.threads = threads
			r, err := rankGeometric(t.Context(), d, s.layer, c, nil, nil, &SetOptions{Geometry: 20, Always: []uint32{7}})
			if err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = r
			}
			if !slices.Equal(r.items, first.items) || !slices.Equal(r.shares, first.shares) {
				t.Errorf("%d threads: found other shares, expected the same", threads)
			}
			if slices.ContainsFunc(r.items, func(it item) bool { return it.label == 7 }) {
				t.Error("found an item of a label that is always included")
			}
		})
	}
}

// What a screen is measured with is what a run without the held-out slice would
// choose: a view of some contexts gives the sets that a copy of them does.
func TestSetsOfAViewAreThoseOfACopy(t *testing.T) {
	s, c := clustersOf(t, 6*50, 6)
	d := newTestData(t, s, 5)
	pool, _ := holdOut(d.n, 0.2)
	opt := SetOptions{Geometry: 20, Spread: 0.2, ProbeShare: 0.3, PairWeight: 200, Shells: []float64{0.4}}
	view, err := chooseSets(t.Context(), d.part(pool), s.layer, c.part(pool), &opt, 20)
	if err != nil {
		t.Fatal(err)
	}
	alone := synthetic{layer: s.layer, n: len(pool), dim: s.dim}
	for _, i := range pool {
		alone.contexts = append(alone.contexts, d.row(i)...)
	}
	copied, err := chooseSets(t.Context(), newTestData(t, alone, 5), s.layer, c.part(pool), &opt, 20)
	if err != nil {
		t.Fatal(err)
	}
	a, _, fa := view.take(d.part(pool), 20)
	b, _, fb := copied.take(newTestData(t, alone, 5), 20)
	if !slices.EqualFunc(a.sets, b.sets, slices.Equal) || fa != fb {
		t.Errorf("found %+v and other sets, want the sets of a copy, %+v", fa, fb)
	}
}

// The figures on the held-out slice foretell the figures on contexts that the run has
// not seen at all; the figures of training do not.
func TestUnseenForetellsOtherContexts(t *testing.T) {
	train, _ := clustersOf(t, 2000, 7)
	other, _ := clustersOf(t, 4000, 8)
	for _, c := range []struct {
		name   string
		change func(o *Options)
	}{
		{"k-means alone", func(o *Options) { o.KMeansOnly = true }},
		{"learned", func(o *Options) {}},
		{"two levels, spread, a second probe", func(o *Options) { o.Groups, o.Clusters, o.Spread, o.ProbeShare = 4, 40, 0.2, 0.3 }},
		{"shells, a second probe", func(o *Options) { o.KMeansOnly, o.ProbeShare, o.Shells = true, 0.3, []float64{0.3} }},
		{"counts", func(o *Options) { o.Geometry, o.Clusters = 0, 40 }},
	} {
		o := testOptions()
		o.Clusters, o.Budget, o.HeldOut, o.Lambda = 12, 20, 0.25, 0
		c.change(&o)
		m, r, err := Run(t.Context(), train.layer, train.contexts, o)
		if err != nil {
			t.Fatal(err)
		}
		if r.Unseen == nil || r.Unseen.Contexts != 500 {
			t.Fatalf("%s: found %+v, want figures on 500 contexts", c.name, r.Unseen)
		}
		p, _ := precision(t, m, other, o.K)
		if off := math.Abs(r.Unseen.PrecisionK - p); off > 4*r.Unseen.Deviation+0.015 || r.Unseen.Deviation == 0 {
			t.Errorf("%s: found P@5 %.4f, deviation %.4f on the slice, want about %.4f", c.name, r.Unseen.PrecisionK, r.Unseen.Deviation, p)
		}
		if c.name == "counts" && math.Abs(r.PrecisionK-p) < 3*math.Abs(r.Unseen.PrecisionK-p) {
			t.Errorf("%s: P@5 is %.4f on training, %.4f on the slice, %.4f on others: want the slice much nearer", c.name, r.PrecisionK, r.Unseen.PrecisionK, p)
		}
	}
}

// Measuring leaves no other trace: but for k-means, which leaves the slice out.
func TestMeasureOffIsARunOverAllContexts(t *testing.T) {
	s, _ := clustersOf(t, 800, 9)
	o := testOptions()
	o.Measure, o.KMeansOnly = false, true
	m, r, err := Run(t.Context(), s.layer, s.contexts, o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Unseen != nil || bytes.Contains(m.Record(), []byte("unseen")) {
		t.Errorf("found %+v, want no figures on a held-out slice", r)
	}
}
