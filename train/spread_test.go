package train

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// drawRouted draws contexts, weights of clusters, and options for them, flat or
// on two levels.
func drawRouted(t *rapid.T) (tr *data, weights []float32, opt Options) {
	opt = testOptions()
	per := rapid.IntRange(1, 7).Draw(t, "per")
	opt.Clusters = per
	if opt.Groups = rapid.IntRange(0, 4).Draw(t, "groups"); opt.Groups > 0 {
		opt.Clusters *= opt.Groups
	}
	dim := rapid.IntRange(1, 6).Draw(t, "dim")
	n := rapid.IntRange(1, 60).Draw(t, "n")
	random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	fill := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(random.NormFloat64())
		}
		return x
	}
	tr = &data{contexts: fill(n * dim), n: n, dim: dim, threads: 2, report: &reporter{}}
	return tr, fill((opt.Groups + opt.Clusters) * dim), opt
}

// scored is a cluster and by how much its score lags behind the best.
type scored struct {
	id  uint32
	gap float64
}

// naiveNear finds the neighbours of context i one product at a time.
func naiveNear(tr *data, weights []float32, opt *Options, i int) []scored {
	order := func(rows []float32, first int) []scored {
		var all []scored
		for c := range len(rows) / tr.dim {
			dot := 0.0
			for j, x := range tr.row(uint32(i)) {
				dot += float64(rows[c*tr.dim+j]) * float64(x)
			}
			all = append(all, scored{uint32(first + c), -dot})
		}
		slices.SortFunc(all, func(a, b scored) int { return cmp.Or(cmp.Compare(a.gap, b.gap), cmp.Compare(a.id, b.id)) })
		best := all[0].gap
		for j := range all {
			all[j].gap -= best
		}
		return all
	}
	u, v := opt.levels().split(weights, tr.dim)
	if opt.Groups == 0 {
		return order(v, 0)[:min(nearInGroup, opt.Clusters)]
	}
	per := opt.levels().perGroup()
	members := func(a int) []scored { return order(v[a*per*tr.dim:(a+1)*per*tr.dim], a*per) }
	groups := order(u, 0)
	found := members(int(groups[0].id))[:min(nearInGroup, per)]
	if len(groups) > 1 {
		found = append(found, scored{members(int(groups[1].id))[0].id, groups[1].gap})
	}
	return found
}

func TestContextsAreSpreadOverTheClustersNearThem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr, weights, opt := drawRouted(t)
		nb, err := (&clusters{levels: opt.levels(), weights: weights}).findNeighbours(t.Context(), tr, nil)
		if err != nil {
			t.Fatal(err)
		}
		temperature := rapid.Float64Range(0.05, 5).Draw(t, "temperature")
		want := make([]map[uint32]float64, tr.n)
		for i := range tr.n {
			found := naiveNear(tr, weights, &opt, i)
			sum := 0.0
			for _, c := range found {
				sum += math.Exp(-c.gap / temperature)
			}
			want[i] = map[uint32]float64{}
			for _, c := range found {
				want[i][c.id] = math.Exp(-c.gap/temperature) / sum
			}
			if nb.ids[i*near] != found[0].id {
				t.Fatalf("context %d: found cluster %d first, want its own, %d", i, nb.ids[i*near], found[0].id)
			}
		}
		p := nb.partition(ascending(tr.n), temperature, opt.Clusters)
		if p.unit != spreadUnit {
			t.Fatalf("found %d parts of a context, want %d", p.unit, spreadUnit)
		}
		total := make([]uint32, tr.n)
		for c := range p.clusters() {
			for j, i := range p.members(c) {
				parts := p.partsOf(c, j)
				total[i] += parts
				share, rounding := want[i][uint32(c)]*spreadUnit, 1.0
				if uint32(c) == nb.ids[int(i)*near] {
					rounding = near // it gets what the others lose
				}
				if math.Abs(float64(parts)-share) > rounding+1e-3 {
					t.Fatalf("context %d counts %d parts in cluster %d, want %.2f", i, parts, c, share)
				}
			}
		}
		for i, n := range total {
			if n != spreadUnit {
				t.Fatalf("context %d counts %d parts in all, want %d", i, n, spreadUnit)
			}
		}
	})
}

// What contexts give away is what was asked for, unless they have nobody to
// give it to.
func TestTemperatureGivesTheSpreadAskedFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr, weights, opt := drawRouted(t)
		if opt.levels().perGroup() < 3 {
			t.Skip("with fewer than three clusters half may be more than can be given")
		}
		nb, err := (&clusters{levels: opt.levels(), weights: weights}).findNeighbours(t.Context(), tr, nil)
		if err != nil {
			t.Fatal(err)
		}
		spread := rapid.Float64Range(0.01, 0.5).Draw(t, "spread")
		temperature := nb.temperature(tr, spread)
		away := 0.0
		var shares [near]float64
		for i := range tr.n {
			nb.shares(&shares, i, temperature)
			away += (1 - shares[0]) / float64(tr.n)
		}
		if math.Abs(away-spread) > 1e-6 {
			t.Fatalf("contexts give away %v, want %v", away, spread)
		}
	})
}

// A label that only contexts of the next cluster have been seen with enters
// the set of a cluster whose contexts lie close to it, and no other.
func TestSpreadSharesLabelsBetweenNeighbours(t *testing.T) {
	// Three clusters on a line of directions; label c for the contexts of cluster c.
	tr := &data{dim: 2, threads: 1, universe: 3, k: 1, report: &reporter{}}
	weights := []float32{1, 0, 0.8, 0.6, -1, 0}
	var cluster []uint32
	for c, h := range [][2]float32{{2, 0.5}, {1.8, 0.8}, {-2, 0}} {
		for range 50 {
			tr.contexts = append(tr.contexts, h[:]...)
			tr.labels = append(tr.labels, uint32(c))
			cluster = append(cluster, uint32(c))
			tr.n++
		}
	}
	opt := testOptions()
	opt.Clusters, opt.Lambda, opt.Spread, opt.Always = 3, 0.001, 0.1, nil
	nb, err := (&clusters{levels: opt.levels(), weights: weights}).findNeighbours(t.Context(), tr, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		near *neighbours
		want [][]uint32
	}{{nil, [][]uint32{{0}, {1}, {2}}}, {nb, [][]uint32{{0, 1}, {0, 1}, {2}}}} {
		r, err := rankLabels(t.Context(), tr, ascending(tr.n), &clusters{opt.levels(), weights, cluster, nil}, c.near, &opt.SetOptions)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.take(3).sets; !slices.EqualFunc(got, c.want, slices.Equal) {
			t.Errorf("spread %v: found the sets %v, want %v", c.near != nil, got, c.want)
		}
	}
}
