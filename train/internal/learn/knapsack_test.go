package learn

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s/train/internal/shares"
	"pgregory.net/rapid"
)

// naiveCounts counts n_ts one by one.
func naiveCounts(cluster []uint32, labels []uint32, k int) map[[2]uint32]uint32 {
	n := map[[2]uint32]uint32{}
	for i, t := range cluster {
		for _, s := range labels[i*k : (i+1)*k] {
			n[[2]uint32{t, s}]++
		}
	}
	return n
}

// drawAssigned draws contexts with distinct labels, each in a cluster.
func drawAssigned(t *rapid.T) (cluster, labels []uint32, clusters, universe, k int) {
	clusters = rapid.IntRange(1, 4).Draw(t, "clusters")
	universe = rapid.IntRange(1, 9).Draw(t, "universe")
	k = rapid.IntRange(1, min(3, universe)).Draw(t, "k")
	n := rapid.IntRange(1, 40).Draw(t, "n")
	random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	for range n {
		cluster = append(cluster, uint32(random.IntN(clusters)))
		for _, s := range random.Perm(universe)[:k] {
			labels = append(labels, uint32(s))
		}
	}
	return cluster, labels, clusters, universe, k
}

// counted are contexts by cluster, and the counts of their labels.
type counted struct {
	sizes []uint32
	items []labelCount
}

type labelCount struct{ cluster, label, count uint32 }

func countAll(cluster, labels []uint32, clusters, k int) *counted {
	c := &counted{sizes: make([]uint32, clusters)}
	for _, t := range cluster {
		c.sizes[t]++
	}
	for at, n := range naiveCounts(cluster, labels, k) {
		c.items = append(c.items, labelCount{at[0], at[1], n})
	}
	slices.SortFunc(c.items, func(a, b labelCount) int {
		return cmp.Or(cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.label, b.label))
	})
	return c
}

func (c *counted) total() (n int) {
	for _, size := range c.sizes {
		n += int(size)
	}
	return n
}

func (c *counted) rank(lambda float64, always []uint32) *ranking {
	list := make([][]shares.Label, len(c.sizes))
	for _, it := range c.items {
		list[it.cluster] = append(list[it.cluster], shares.Label{ID: it.label, Share: float64(it.count) / float64(c.sizes[it.cluster])})
	}
	return rank(list, c.sizes, lambda, always)
}

// itemValue is n_ts - lambda (N_t - n_ts), by Equation 6.
func itemValue(it labelCount, size uint32, lambda float64) float64 {
	return float64(it.count) - lambda*float64(size-it.count)
}

// setValue returns the loss that the sets save compared with empty sets, as value, and N L-bar, as
// weight.
func setValue(c *counted, sets [][]uint32, lambda float64) (value float64, weight uint64) {
	n := map[[2]uint32]uint32{}
	for _, it := range c.items {
		n[[2]uint32{it.cluster, it.label}] = it.count
	}
	for t, set := range sets {
		for _, s := range set {
			value += itemValue(labelCount{uint32(t), s, n[[2]uint32{uint32(t), s}]}, c.sizes[t], lambda)
			weight += uint64(c.sizes[t])
		}
	}
	return value, weight
}

// The best sets are found by trying all subsets of the items. The greedy
// solution may miss them by less than the first item that did not fit.
func TestKnapsackIsOptimalUpToOneItem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cluster, labels, clusters, universe, k := drawAssigned(t)
		c := countAll(cluster, labels, clusters, k)
		if len(c.items) > 12 {
			c.items = c.items[:12]
		}
		lambda := rapid.SampledFrom([]float64{0, 0.0003, 0.1, 0.5}).Draw(t, "lambda")
		budget := rapid.Float64Range(0, float64(universe)+1).Draw(t, "budget")
		ranked := c.rank(lambda, nil)
		got := ranked.take(budget)
		value, weight := setValue(c, got.sets, lambda)
		if float64(weight) > budget*float64(c.total()) {
			t.Fatalf("weight %d exceeds the budget %v for %d contexts", weight, budget, c.total())
		}
		if mean := float64(weight) / float64(c.total()); mean != got.mean {
			t.Fatalf("found L-bar %v, want %v", got.mean, mean)
		}
		best := 0.0
		for subset := range 1 << len(c.items) {
			var v float64
			var w uint64
			for j, it := range c.items {
				if subset>>j&1 != 0 {
					v += itemValue(it, c.sizes[it.cluster], lambda)
					w += uint64(c.sizes[it.cluster])
				}
			}
			if float64(w) <= budget*float64(c.total()) {
				best = max(best, v)
			}
		}
		taken := 0
		for _, set := range got.sets {
			taken += len(set)
		}
		next := 0.0
		if taken < len(ranked.items) {
			it := ranked.items[taken]
			next = it.value(lambda) * float64(c.sizes[it.cluster])
			if want := it.value(lambda); got.multiplier != want {
				t.Fatalf("found multiplier %v, want %v", got.multiplier, want)
			}
		} else if got.multiplier != 0 {
			t.Fatalf("found multiplier %v with all items taken, want 0", got.multiplier)
		}
		if value+next < best-1e-9 || (taken == len(ranked.items) && math.Abs(value-best) > 1e-9) {
			t.Fatalf("value %v, next item %v, optimum %v", value, next, best)
		}
	})
}

// The objective of Equation 8 on fixed assignments, sum_i (k - hits + lambda
// (|c_t(i)| - hits)) + gamma max(0, L-bar - B), is never worse for the sets
// that the knapsack gives than for the sets of any assignments before, up to one
// item, if gamma is at least the price of the budget. And it falls with the
// budget.
func TestKnapsackStepDoesNotWorsenTheObjective(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cluster, labels, clusters, universe, k := drawAssigned(t)
		n := len(cluster)
		before := make([]uint32, n) // the assignments of the alternation before
		for i := range before {
			before[i] = cluster[i]
			if rapid.Bool().Draw(t, "moved") {
				before[i] = rapid.Uint32Range(0, uint32(clusters-1)).Draw(t, "from")
			}
		}
		lambda := rapid.SampledFrom([]float64{0, 0.0003, 0.1, 0.5}).Draw(t, "lambda")
		budget := rapid.Float64Range(0, float64(universe)+1).Draw(t, "budget")
		c := countAll(cluster, labels, clusters, k)
		ranked := c.rank(lambda, nil)
		now := ranked.take(budget)
		objective := func(sets [][]uint32, gamma float64) float64 {
			sum, size := 0.0, 0
			for i, t := range cluster {
				hits := 0
				for _, y := range labels[i*k : (i+1)*k] {
					if slices.Contains(sets[t], y) {
						hits++
					}
				}
				sum += float64(k-hits) + lambda*float64(len(sets[t])-hits)
				size += len(sets[t])
			}
			return sum + gamma*max(0, float64(size)/float64(n)-budget)
		}
		old := countAll(before, labels, clusters, k).rank(lambda, nil).take(budget)
		next := 0.0 // the value of the item that did not fit
		taken := 0
		for _, set := range now.sets {
			taken += len(set)
		}
		if taken < len(ranked.items) {
			it := ranked.items[taken]
			next = it.value(lambda) * float64(c.sizes[it.cluster])
		}
		gamma := now.multiplier * float64(n)
		if got, was := objective(now.sets, gamma), objective(old.sets, gamma); got > was+next+1e-9 {
			t.Fatalf("the knapsack step lifts the objective from %v to %v, by more than an item of %v", was, got, next)
		}
		if got, more := objective(now.sets, 0), objective(ranked.take(budget+1).sets, 0); more > got+1e-9 {
			t.Fatalf("with room for one candidate more the loss is %v, was %v", more, got)
		}
	})
}

func TestKnapsackSetsAreNestedAndSorted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cluster, labels, clusters, universe, k := drawAssigned(t)
		c := countAll(cluster, labels, clusters, k)
		always := rapid.SliceOfNDistinct(rapid.Uint32Range(0, uint32(universe-1)), 0, universe, rapid.ID[uint32]).Draw(t, "always")
		slices.Sort(always)
		ranked := c.rank(0.0003, always)
		low := rapid.Float64Range(float64(len(always)), 10).Draw(t, "low")
		high := rapid.Float64Range(low, 12).Draw(t, "high")
		small, large := ranked.take(low), ranked.take(high)
		for t2 := range small.sets {
			for _, c := range []*candidateSets{small, large} {
				set := c.sets[t2]
				if !slices.IsSorted(set) || len(slices.Compact(slices.Clone(set))) != len(set) {
					t.Fatalf("cluster %d: %v is not ascending and distinct", t2, set)
				}
				for _, s := range always {
					if !slices.Contains(set, s) {
						t.Fatalf("cluster %d: %v does not hold %d, which is always included", t2, set, s)
					}
				}
			}
			for _, s := range small.sets[t2] {
				if !slices.Contains(large.sets[t2], s) {
					t.Fatalf("cluster %d: %d is taken for budget %v but not for %v", t2, s, low, high)
				}
			}
		}
	})
}

func TestKnapsackTakesNothingWorthless(t *testing.T) {
	// Of 1000 contexts one has label 1: 1 - 0.0003*999 > 0, but 1 - 0.002*999 < 0.
	cluster, labels := make([]uint32, 1000), make([]uint32, 1000)
	labels[17] = 1
	c := countAll(cluster, labels, 1, 1)
	for _, test := range []struct {
		lambda float64
		want   []uint32
	}{{0, []uint32{0, 1}}, {0.0003, []uint32{0, 1}}, {0.002, []uint32{0}}} {
		if got := c.rank(test.lambda, nil).take(100).sets[0]; !slices.Equal(got, test.want) {
			t.Errorf("lambda %v: found %v, want %v", test.lambda, got, test.want)
		}
	}
}

// 3/9, 1/3 and 2/6 are one share.
func TestEqualSharesGoByClusterAndLabel(t *testing.T) {
	c := &counted{sizes: []uint32{9, 3, 6}, items: []labelCount{{2, 5, 2}, {1, 4, 1}, {0, 7, 3}, {0, 2, 3}, {2, 1, 3}}}
	third := 1. / 3
	want := []item{{2, 1, 0.5}, {0, 2, third}, {0, 7, third}, {1, 4, third}, {2, 5, third}}
	if got := c.rank(0, nil).items; !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
}
