package train

import (
	"math"
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s/screen"
	"pgregory.net/rapid"
)

// naiveRoute is the cluster of h by plain loops, the best of all or, with u, of those
// that the best group has; the second best, -1 where there is none; and its distance
// to that.
func naiveRoute(u, v []float32, dim int, of func(group int) []uint32, h []float32) (cluster, second int, margin float64) {
	two := func(rows []float32, some []uint32) (first, second int, margin float64) {
		first, second = -1, -1
		best, next := math.Inf(-1), math.Inf(-1)
		for _, id := range some {
			t := int(id)
			switch x := naiveDot(rows[t*dim:(t+1)*dim], h); {
			case first < 0 || x > best:
				first, second, best, next = t, first, x, best
			case second < 0 || x > next:
				second, next = t, x
			}
		}
		return first, second, best - next
	}
	if len(u) == 0 {
		return two(v, ascending(len(v)/dim))
	}
	group, _, _ := two(u, ascending(len(u)/dim))
	return two(v, of(group))
}

// equalGroups returns the clusters of a group where each has as many, of its own.
func equalGroups(per int) func(group int) []uint32 {
	return func(group int) []uint32 { return ascending((group + 1) * per)[group*per:] }
}

// groupClusters returns the clusters of a group of the screen.
func groupClusters(m *screen.Model) func(group int) []uint32 {
	lists := m.GroupClusters()
	if lists == nil {
		lists = ascending(m.Clusters())
	}
	return func(group int) []uint32 {
		own := lists
		for a, size := range m.GroupSizes() {
			if a == group {
				return own[:size]
			}
			own = own[size:]
		}
		return nil
	}
}

// The clusters of a group come from its contexts alone, and every context is
// in the cluster that a query finds.
func TestClustersOnTwoLevels(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		groups := rapid.IntRange(1, 5).Draw(rt, "groups")
		per := rapid.IntRange(1, 5).Draw(rt, "clusters of a group")
		n := rapid.IntRange(groups*per, 200).Draw(rt, "n")
		dim := rapid.IntRange(1, 9).Draw(rt, "dim")
		s := newSynthetic(t, rapid.Uint64().Draw(rt, "seed"), n, dim, 5, rapid.IntRange(1, 12).Draw(rt, "directions"), 0.5)
		tr := newTestData(t, s, 1)
		opt := testOptions()
		opt.Groups, opt.Clusters = groups, groups*per
		found, err := clusterContexts(t.Context(), tr, &opt.KMeansOptions)
		if err != nil {
			rt.Fatal(err)
		}
		cluster := found.cluster
		u, v := found.split(found.weights, dim)
		if len(u) != groups*dim || len(v) != groups*per*dim {
			rt.Fatalf("%d and %d elements, want %d and %d", len(u), len(v), groups*dim, groups*per*dim)
		}
		cosines := 0.0
		for i := range n {
			h := tr.row(uint32(i))
			want, _, _ := naiveRoute(u, v, dim, equalGroups(per), h)
			if int(cluster[i]) != want {
				rt.Fatalf("context %d is in cluster %d, a query finds %d", i, cluster[i], want)
			}
			own := v[int(cluster[i])*dim : (int(cluster[i])+1)*dim]
			cosines += naiveDot(own, h) / math.Sqrt(naiveDot(h, h))
		}
		// The last assignment follows the last figure: it can only gain.
		if mean := cosines / float64(n); mean < found.groupCosine-1e-5 {
			rt.Fatalf("the mean cosine is %v, the record says %v", mean, found.groupCosine)
		}
		if last := found.history[len(found.history)-1].Objective; per > 1 && groups == 1 && found.groupCosine < last-1e-5 {
			rt.Fatalf("more clusters fit worse: %v, one %v", found.groupCosine, last)
		}
		before := slices.Clone(cluster)
		moved, err := found.route(t.Context(), tr, nil)
		if err != nil {
			rt.Fatal(err)
		}
		if moved != 0 || !slices.Equal(before, cluster) {
			rt.Fatalf("%d contexts moved though nothing changed", moved)
		}
	})
}
