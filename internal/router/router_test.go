package router

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/simdtest"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
)

// ranked returns the rows of x from first on, before end, by descending product
// with h, ties by the lower row.
func ranked(x []float32, first, end int, h []float32) []softmax.Prediction {
	var p []softmax.Prediction
	for i := first; i < end; i++ {
		p = append(p, softmax.Prediction{ID: uint32(i), Logit: kernels.RefDot(x[i*len(h):(i+1)*len(h)], h)})
	}
	slices.SortStableFunc(p, func(a, b softmax.Prediction) int {
		if a.Logit > b.Logit {
			return -1
		}
		if a.Logit < b.Logit {
			return 1
		}
		return 0
	})
	return p
}

// A router finds the best clusters of the best group, for one context as for
// many, and says how many rows it scanned.
func TestRoutesAreTheDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, n := rapid.IntRange(1, 40).Draw(t, "dim"), rapid.IntRange(1, 9).Draw(t, "contexts")
		groups := rapid.IntRange(0, 5).Draw(t, "groups")
		ties := rapid.Bool().Draw(t, "ties")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		numbers := func(n int) []float32 {
			x := make([]float32, n)
			for i := range x {
				if x[i] = float32(r.NormFloat64()); ties {
					x[i] = float32(r.IntN(3) - 1)
				}
			}
			return x
		}
		var sizes []int
		starts, clusters := []int{0}, 0
		for range groups {
			size := 1 + r.IntN(6)
			clusters += size
			sizes, starts = append(sizes, size), append(starts, clusters)
		}
		if groups == 0 {
			clusters = 1 + r.IntN(30)
			starts = append(starts, clusters)
		}
		v, u, contexts := numbers(clusters*d), numbers(groups*d), numbers(n*d)
		by, err := New(v, u, sizes, d)
		if err != nil {
			t.Fatal(err)
		}
		s := by.NewSearcher()
		k := rapid.IntRange(1, 4).Draw(t, "k")
		qs := make([]*softmax.Query, n)
		for i := range qs {
			qs[i] = softmax.NewQuery(d)
			if err := qs[i].Set(contexts[i*d : (i+1)*d]); err != nil {
				t.Fatal(err)
			}
		}
		dst, found := make([]softmax.Prediction, n*k), make([]Found, n)
		if err := s.Find(dst, found, k, qs); err != nil {
			t.Fatal(err)
		}
		for i, q := range qs {
			h := contexts[i*d : (i+1)*d]
			group, rows := 0, clusters
			best := []softmax.Prediction{{}}
			if groups > 0 {
				best = ranked(u, 0, groups, h)
				group = int(best[0].ID)
				rows = groups + sizes[group]
			}
			want := ranked(v, starts[group], starts[group+1], h)
			want = want[:min(k, len(want))]
			if got := dst[i*k:][:found[i].Count]; !slices.Equal(got, want) || found[i].Rows != rows {
				t.Fatalf("context %d: got %v of %d rows, want %v of %d", i, got, found[i].Rows, want, rows)
			}
			two := make([]softmax.Prediction, 2)
			m, err := s.BestGroups(two, q)
			if err != nil || !slices.Equal(two[:m], best[:min(2, len(best))]) {
				t.Fatalf("context %d: got groups %v, %v, want %v", i, two[:m], err, best)
			}
		}
	})
}

func TestNewRefuses(t *testing.T) {
	x := func(n int) []float32 { return make([]float32, n) }
	nan := x(4)
	nan[3] = float32(math.NaN())
	for _, c := range []struct {
		name             string
		clusters, groups []float32
		sizes            []int
		want             string
	}{
		{"no cluster", nil, nil, nil, "clusters: found 0 elements, expected a positive multiple of dim 2"},
		{"part of a cluster", x(3), nil, nil, "clusters: found 3 elements, expected a positive multiple of dim 2"},
		{"a cluster that is not finite", nan, nil, nil, "clusters: found NaN at row 1, column 1, expected finite numbers"},
		{"part of a group", x(4), x(3), []int{1, 1}, "groups: found 3 elements, expected a positive multiple of dim 2"},
		{"sizes without groups", x(4), nil, []int{2}, "groups: found 0 elements, expected a positive multiple of dim 2"},
		{"a group that is not finite", x(4), nan, []int{1, 1}, "groups: found NaN at row 1, column 1, expected finite numbers"},
		{"groups without sizes", x(4), x(2), nil, "group sizes: found 0, expected one for each of 1 groups"},
		{"an empty group", x(4), x(4), []int{0, 2}, "group sizes: group 0: found 0 clusters, expected 1 to the 2 that are left of 2"},
		{"too many clusters", x(4), x(4), []int{1, 2}, "group sizes: group 1: found 2 clusters, expected 1 to the 1 that are left of 2"},
		{"too few clusters", x(6), x(4), []int{1, 1}, "group sizes: found 2 clusters in all, expected 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := New(c.clusters, c.groups, c.sizes, 2); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestRoutingDoesNotAllocate(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	numbers := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	const d = 24
	for _, sizes := range [][]int{nil, {10, 30, 24}} {
		by, err := New(numbers(64*d), numbers(len(sizes)*d), sizes, d)
		if err != nil {
			t.Fatal(err)
		}
		s := by.NewSearcher()
		qs := []*softmax.Query{softmax.NewQuery(d), softmax.NewQuery(d)}
		dst, found := make([]softmax.Prediction, 4), make([]Found, 2)
		contexts := numbers(20 * d)
		at := 0
		query := func() {
			for _, q := range qs {
				if err := q.Set(contexts[at*d : (at+1)*d]); err != nil {
					t.Fatal(err)
				}
				at = (at + 1) % 20
			}
			if err := s.Find(dst, found, 2, qs); err != nil {
				t.Fatal(err)
			}
		}
		for range 20 {
			query()
		}
		if n := simdtest.AllocsPerRun(100, query); n != 0 {
			t.Errorf("%d groups: found %v allocations, want 0", len(sizes), n)
		}
	}
}
