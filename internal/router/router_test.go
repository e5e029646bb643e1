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

// neighbours are the numbers from first on, before end.
func neighbours(first, end int) (ids []uint32) {
	for i := first; i < end; i++ {
		ids = append(ids, uint32(i))
	}
	return ids
}

// ranked returns the rows of x by descending product with h, ties by the lower row.
func ranked(x []float32, rows []uint32, h []float32) []softmax.Prediction {
	var p []softmax.Prediction
	for _, i := range rows {
		p = append(p, softmax.Prediction{ID: i, Logit: kernels.RefDot(x[int(i)*len(h):(int(i)+1)*len(h)], h)})
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
		// What clusters the groups have, and what a router is told of them.
		var of [][]uint32
		var sizes []int
		var lists []uint32
		clusters := 0
		switch overlap := rapid.Bool().Draw(t, "overlap"); {
		case groups == 0:
			clusters = 1 + r.IntN(30)
			of = [][]uint32{neighbours(0, clusters)}
		case overlap:
			clusters = 1 + r.IntN(30)
			for range groups {
				var list []uint32
				for i := range clusters {
					if r.IntN(3) == 0 {
						list = append(list, uint32(i))
					}
				}
				if list == nil {
					list = []uint32{uint32(r.IntN(clusters))}
				}
				of, sizes, lists = append(of, list), append(sizes, len(list)), append(lists, list...)
			}
		default:
			for range groups {
				size := 1 + r.IntN(6)
				of, sizes = append(of, neighbours(clusters, clusters+size)), append(sizes, size)
				clusters += size
			}
		}
		v, u, contexts := numbers(clusters*d), numbers(groups*d), numbers(n*d)
		by, err := New(v, u, sizes, lists, d)
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
				best = ranked(u, neighbours(0, groups), h)
				group = int(best[0].ID)
				rows = groups + sizes[group]
			}
			want := ranked(v, of[group], h)
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
		lists            []uint32
		want             string
	}{
		{"no cluster", nil, nil, nil, nil, "clusters: found 0 elements, expected a positive multiple of dim 2"},
		{"part of a cluster", x(3), nil, nil, nil, "clusters: found 3 elements, expected a positive multiple of dim 2"},
		{"a cluster that is not finite", nan, nil, nil, nil, "clusters: found NaN at row 1, column 1, expected finite numbers"},
		{"part of a group", x(4), x(3), []int{1, 1}, nil, "groups: found 3 elements, expected a positive multiple of dim 2"},
		{"sizes without groups", x(4), nil, []int{2}, nil, "groups: found 0 elements, expected a positive multiple of dim 2"},
		{"a group that is not finite", x(4), nan, []int{1, 1}, nil, "groups: found NaN at row 1, column 1, expected finite numbers"},
		{"groups without sizes", x(4), x(2), nil, nil, "group sizes: found 0, expected one for each of 1 groups"},
		{"an empty group", x(4), x(4), []int{0, 2}, nil, "group sizes: group 0: found 0 clusters, expected 1 to the 2 that are left of 2"},
		{"too many clusters", x(4), x(4), []int{1, 2}, nil, "group sizes: group 1: found 2 clusters, expected 1 to the 1 that are left of 2"},
		{"too few clusters", x(6), x(4), []int{1, 1}, nil, "group sizes: found 2 clusters in all, expected 3"},
		{"lists without groups", x(4), nil, nil, []uint32{0}, "group clusters: found 1 without groups, expected none"},
		{"no list", x(4), x(4), []int{1, 1}, []uint32{}, "group sizes: group 0: found 1 clusters, expected 1 to the 0 that are left of 0 in the lists"},
		{"an empty list", x(4), x(4), []int{2, 0}, []uint32{0, 1}, "group sizes: group 1: found 0 clusters, expected 1 to the 0 that are left of 2 in the lists"},
		{"a list too long", x(4), x(4), []int{1, 3}, []uint32{0, 0, 1}, "group sizes: group 1: found 3 clusters, expected 1 to the 2 that are left of 3 in the lists"},
		{"lists that are longer", x(4), x(4), []int{1, 1}, []uint32{0, 0, 1}, "group sizes: found 2 clusters in all, expected the 3 of the lists"},
		{"a cluster beyond", x(4), x(4), []int{1, 2}, []uint32{0, 1, 2}, "group clusters: group 1: found cluster 2 at position 1, expected below 2"},
		{"a cluster twice", x(4), x(4), []int{1, 2}, []uint32{0, 1, 1}, "group clusters: group 1: found cluster 1 after 1 at position 1, expected ascending, distinct clusters"},
		{"clusters out of order", x(4), x(4), []int{2, 1}, []uint32{1, 0, 1}, "group clusters: group 0: found cluster 0 after 1 at position 1, expected ascending, distinct clusters"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := New(c.clusters, c.groups, c.sizes, c.lists, 2); err == nil || !strings.Contains(err.Error(), c.want) {
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
	for _, c := range []struct {
		name  string
		sizes []int
		lists []uint32
	}{
		{"flat", nil, nil},
		{"groups", []int{10, 30, 24}, nil},
		{"groups that overlap", []int{20, 50}, slices.Concat(neighbours(5, 25), neighbours(14, 64))},
	} {
		by, err := New(numbers(64*d), numbers(len(c.sizes)*d), c.sizes, c.lists, d)
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
			t.Errorf("%s: found %v allocations, want 0", c.name, n)
		}
	}
}
