package train

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Every context is in the cluster that a query finds, which is its best of all where
// the list of its group has that, and the lists are no longer than asked for on
// average over the contexts.
func TestGroupsThatOverlap(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		groups := rapid.IntRange(1, 5).Draw(rt, "groups")
		clusters := rapid.IntRange(groups, 20).Draw(rt, "clusters")
		n := rapid.IntRange(clusters, 400).Draw(rt, "n")
		dim := rapid.IntRange(1, 9).Draw(rt, "dim")
		s := newSynthetic(t, rapid.Uint64().Draw(rt, "seed"), n, dim, 5, rapid.IntRange(1, 30).Draw(rt, "directions"), 0.5)
		tr := newTestData(t, s, 1)
		opt := testOptions()
		opt.Groups, opt.Clusters = groups, clusters
		opt.Overlap = rapid.Float64Range(1, float64(groups)).Draw(rt, "overlap")
		found, err := clusterContexts(t.Context(), tr, &opt.KMeansOptions)
		if err != nil {
			rt.Fatal(err)
		}
		c := &found.clusters
		best := slices.Clone(c.cluster)
		if err := findGroups(t.Context(), tr, c, &opt); err != nil {
			rt.Fatal(err)
		}
		u, v, sizes, lists := c.routing(dim)
		starts := []int{0}
		for _, size := range sizes {
			starts = append(starts, starts[len(starts)-1]+size)
		}
		of := func(group int) []uint32 { return lists[starts[group]:starts[group+1]] }
		length := 0
		for i := range n {
			h := tr.row(uint32(i))
			want, _, _ := naiveRoute(u, v, dim, of, h)
			if int(c.cluster[i]) != want {
				rt.Fatalf("context %d is in cluster %d, a query finds %d", i, c.cluster[i], want)
			}
			group, _, _ := naiveRoute(nil, u, dim, nil, h)
			if found := c.cluster[i] == best[i]; found != slices.Contains(of(group), best[i]) {
				rt.Fatalf("context %d: cluster %d, the best is %d; its group has %v", i, c.cluster[i], best[i], of(group))
			}
			length += sizes[group]
		}
		if len(sizes) < groups {
			return // contexts of a group that has no clusters go to others, whose lists may be longer
		}
		if mean, most := float64(length)/float64(n), opt.Overlap*float64(clusters)/float64(groups); mean > most+1e-9 {
			rt.Fatalf("lists of %v clusters on average, expected at most %v", mean, most)
		}
	})
}

// More contexts find their best cluster through lists that overlap than through lists
// that hold each cluster once.
func TestOverlapLeadsMoreContextsToTheirBest(t *testing.T) {
	s := newSynthetic(t, 3, 4000, 8, 5, 60, 1)
	tr := newTestData(t, s, 1)
	share := func(overlap float64) float64 {
		opt := testOptions()
		opt.Groups, opt.Clusters, opt.Overlap = 6, 40, overlap
		found, err := clusterContexts(t.Context(), tr, &opt.KMeansOptions)
		if err != nil {
			t.Fatal(err)
		}
		best := slices.Clone(found.cluster)
		if err := findGroups(t.Context(), tr, &found.clusters, &opt); err != nil {
			t.Fatal(err)
		}
		led := 0
		for i, c := range found.cluster {
			if c == best[i] {
				led++
			}
		}
		return float64(led) / float64(len(best))
	}
	once, twice := share(1), share(2)
	t.Logf("led to their best: %.4f by lists that hold a cluster once, %.4f by lists of twice the length", once, twice)
	if twice < once+0.1 || twice < 0.9 {
		t.Errorf("found shares of %v and %v, expected the second above 0.9 and well above the first", once, twice)
	}
}
