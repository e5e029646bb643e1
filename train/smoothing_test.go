package train

import (
	"cmp"
	"context"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func rankWith(t rapid.TB, c *counts, groups int, alpha, lambda float64, always []uint32) *ranking {
	r, err := rankSmoothed(context.Background(), c, groups, alpha, lambda, always, 2)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The order of the items is the order of the smoothed shares, each computed from
// the labels themselves.
func TestSmoothedRankingIsThatOfTheShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cluster, labels, clusters, universe, k := drawAssigned(t)
		c := countAll(t, cluster, labels, clusters, universe, k)
		groups := 0
		if rapid.Bool().Draw(t, "two levels") {
			groups = rapid.SampledFrom(divisors(clusters)).Draw(t, "groups")
		}
		alpha := rapid.Float64Range(0.01, 30).Draw(t, "alpha")
		lambda := rapid.SampledFrom([]float64{0, 0.01, 0.3}).Draw(t, "lambda")
		var always []uint32
		if rapid.Bool().Draw(t, "always") {
			always = []uint32{0}
		}

		share := func(s uint32, in func(c uint32) bool) (count, size float64) {
			for i, c := range cluster {
				if in(c) {
					size++
					if slices.Contains(labels[i*k:(i+1)*k], s) {
						count++
					}
				}
			}
			return count, size
		}
		type entry struct {
			cluster, label uint32
			p              float64
		}
		var want []entry
		for at := range uint32(clusters) {
			for s := range uint32(universe) {
				count, size := share(s, func(uint32) bool { return true })
				p := count / size
				if groups > 0 {
					per := uint32(clusters / groups)
					count, size = share(s, func(c uint32) bool { return c/per == at/per })
					p = (count + alpha*p) / (size + alpha)
				}
				count, size = share(s, func(c uint32) bool { return c == at })
				p = (count + alpha*p) / (size + alpha)
				if size > 0 && p-lambda*(1-p) > 0 && !slices.Contains(always, s) {
					want = append(want, entry{at, s, p})
				}
			}
		}
		got := rankWith(t, c, groups, alpha, lambda, always)
		if len(got.items) != len(want) || len(got.shares) != len(want) {
			t.Fatalf("found %d items and %d shares, want %d", len(got.items), len(got.shares), len(want))
		}
		byItem := func(a, b entry) int { return cmp.Or(cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.label, b.label)) }
		for i, it := range got.items {
			e := entry{it.cluster, it.label, got.shares[i]}
			j, found := slices.BinarySearchFunc(want, e, byItem)
			if !found || math.Abs(want[j].p-e.p) > 1e-12 {
				t.Fatalf("found %+v, which is not of %+v", e, want)
			}
			if i > 0 && got.shares[i] > got.shares[i-1] {
				t.Fatalf("share %v comes after %v", got.shares[i], got.shares[i-1])
			}
		}

		// Any budget is kept, and the next item would not fit.
		budget := rapid.Float64Range(float64(len(always)), float64(universe)).Draw(t, "budget")
		sets := got.take(budget)
		size, taken := 0, 0
		for _, c := range cluster {
			size += len(sets.sets[c])
		}
		for _, set := range sets.sets {
			taken += len(set) - len(always)
		}
		mean := float64(size) / float64(len(cluster))
		if mean > budget+1e-9 || math.Abs(mean-sets.mean) > 1e-9 {
			t.Fatalf("L-bar is %v, %v by the knapsack; the budget is %v", mean, sets.mean, budget)
		}
		if taken < len(got.items) {
			next := got.items[taken]
			if room := (budget - mean) * float64(len(cluster)); float64(c.sizes[next.cluster]) < room-1e-6 {
				t.Fatalf("an item of %d contexts was left out with room for %v", c.sizes[next.cluster], room)
			}
			p := got.shares[taken]
			if want := p - lambda*(1-p); math.Abs(sets.multiplier-want) > 1e-12 {
				t.Fatalf("multiplier %v, want %v", sets.multiplier, want)
			}
		}
	})
}

func divisors(n int) (d []int) {
	for i := 1; i <= n; i++ {
		if n%i == 0 {
			d = append(d, i)
		}
	}
	return d
}

// A cluster of few contexts takes the labels of its group; one of many keeps
// to its own.
func TestSmoothingBacksOffWhereContextsAreFew(t *testing.T) {
	// Label 0 in cluster 0 a hundred times, label 1 in cluster 1 twice; label 2
	// in cluster 2, of the other group, a hundred times.
	var cluster, labels []uint32
	for _, x := range []struct{ cluster, label, times uint32 }{{0, 0, 100}, {1, 1, 2}, {2, 2, 100}, {3, 2, 1}} {
		for range x.times {
			cluster, labels = append(cluster, x.cluster), append(labels, x.label)
		}
	}
	c := countAll(t, cluster, labels, 4, 3, 1)
	r := rankWith(t, c, 2, 10, 0, nil)
	share := func(cluster, label uint32) float64 {
		return r.shares[slices.IndexFunc(r.items, func(it item) bool { return it.cluster == cluster && it.label == label })]
	}
	if few, many := share(1, 0), share(0, 1); few < 0.5 || many > 0.05 {
		t.Errorf("label 0 has share %v in the small cluster, label 1 %v in the large one", few, many)
	}
	if own, other := share(1, 0), share(1, 2); other > own/5 {
		t.Errorf("share %v of the group's label, %v of the other group's", own, other)
	}
}
