package ladder

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s/train/internal/corpus"
	"github.com/learning-to-screen/l2s/train/internal/shares"
	"pgregory.net/rapid"
)

// drawLists draws cells with shares of labels.
func drawLists(t *rapid.T) (cells [][]shares.Label, sizes []uint32, always []uint32, k, labels int) {
	labels = rapid.IntRange(1, 30).Draw(t, "labels")
	k = rapid.IntRange(1, min(4, labels)).Draw(t, "k")
	always = rapid.SliceOfNDistinct(rapid.Uint32Range(0, uint32(labels-1)), 0, min(3, labels), rapid.ID[uint32]).Draw(t, "always")
	slices.Sort(always)
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	for range rapid.IntRange(1, 6).Draw(t, "cells") {
		var list []shares.Label
		for _, s := range r.Perm(labels)[:r.IntN(labels+1)] {
			p := math.Exp2(-float64(r.IntN(8))) // many are equal
			if r.IntN(2) == 0 {
				p = r.Float64()
			}
			list = append(list, shares.Label{ID: uint32(s), Share: p})
		}
		cells, sizes = append(cells, list), append(sizes, uint32(r.IntN(50)))
	}
	sizes[0]++ // there are contexts
	return cells, sizes, always, k, labels
}

func newLists(t *rapid.T, cells [][]shares.Label, sizes []uint32, always []uint32, k int) *Lists {
	l, err := New(t.Context(), 2, cells, sizes, always, k)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// The candidates of a smaller budget are the first candidates of a larger one, and a plain knapsack
// takes the same: by falling share, whole classes of equal shares, as long as the mean number of
// candidates is within the budget.
func TestABudgetIsAPrefixOfEveryLargerOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cells, sizes, always, k, labels := drawLists(t)
		l := newLists(t, cells, sizes, always, k)
		total := 0.0
		for _, n := range sizes {
			total += float64(n)
		}
		// The plain knapsack: the classes of shares of all items, the largest first.
		classes := map[uint16]float64{}
		for at, list := range l.Lists {
			for _, s := range list.Shares {
				classes[s] += float64(sizes[at])
			}
		}
		var order []uint16
		for s := range classes {
			order = append(order, s)
		}
		slices.Sort(order)
		slices.Reverse(order)
		smaller, before := rapid.Float64Range(l.Least(), float64(labels)+1).Draw(t, "smaller"), make([]int, len(cells))
		for _, budget := range []float64{smaller, rapid.Float64Range(smaller, float64(labels)+2).Draw(t, "larger")} {
			share, ok := l.Threshold(budget)
			if !ok {
				t.Fatalf("budget %v: found too small, though the certain ones are %v", budget, l.Least())
			}
			sum, least := 0.0, uint16(math.MaxUint16)
			for _, s := range order {
				if sum += classes[s]; sum > math.Floor(budget*total*(1+0x1p-50)) {
					break
				}
				least = s
			}
			mean := 0.0
			for at, list := range l.Lists {
				n := l.Count(at, share)
				want := 0
				for _, s := range list.Shares {
					if s >= least {
						want++
					}
				}
				if n != want {
					t.Fatalf("budget %v, cell %d: found %d candidates, the knapsack takes %d", budget, at, n, want)
				}
				if n < before[at] {
					t.Fatalf("budget %v, cell %d: found %d candidates, %d at a smaller budget", budget, at, n, before[at])
				}
				before[at] = n
				mean += float64(n) * float64(sizes[at]) / total
			}
			if mean > budget+1e-9 {
				t.Fatalf("found %v candidates on average, the budget is %v", mean, budget)
			}
		}
	})
}

// A list has the labels of its cell in the order of their shares, after the labels that are in
// every list; the latter and the k best are certain.
func TestListsAreInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cells, sizes, always, k, _ := drawLists(t)
		l := newLists(t, cells, sizes, always, k)
		for at, list := range l.Lists {
			if !slices.Equal(list.IDs[:len(always)], always) {
				t.Fatalf("cell %d: %v does not begin with %v", at, list.IDs, always)
			}
			others := 0
			for _, x := range cells[at] {
				if i := slices.Index(list.IDs, x.ID); i < 0 {
					t.Fatalf("cell %d: %v lacks %d", at, list.IDs, x.ID)
				} else if i >= len(always) {
					others++
					if s := list.Shares[i]; s != ShareOf(x.Share) && s != Certain {
						t.Fatalf("cell %d: label %d has share %d, expected %d", at, x.ID, s, ShareOf(x.Share))
					}
				}
			}
			if len(list.IDs) != len(always)+others || len(list.Shares) != len(list.IDs) {
				t.Fatalf("cell %d: found %d ids and %d shares, expected %d", at, len(list.IDs), len(list.Shares), len(always)+others)
			}
			if n := l.Count(at, Certain); n < len(always)+min(k, others) {
				t.Fatalf("cell %d: found %d certain labels, expected at least %d", at, n, len(always)+min(k, others))
			}
			for i := len(always) + 1; i < len(list.IDs); i++ {
				if a, b := list.Shares[i-1], list.Shares[i]; b > a || b == a && list.IDs[i] < list.IDs[i-1] {
					t.Fatalf("cell %d: label %d of share %d comes before %d of %d", at, list.IDs[i-1], a, list.IDs[i], b)
				}
			}
		}
	})
}

// drawContexts are a few contexts with k labels each, and the cells that they are in.
func drawContexts(t *rapid.T, cells, labels, k int) (c *corpus.Corpus, at []uint32) {
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "contexts"), 0))
	c = &corpus.Corpus{N: 1 + r.IntN(20), Labels: labels, K: k}
	for range c.N {
		at = append(at, uint32(r.IntN(cells)))
		for _, s := range r.Perm(labels)[:k] {
			c.Best = append(c.Best, uint32(s))
		}
	}
	return c, at
}

// The figures of outcomes equal a count over the lists.
func TestOutcomes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cells, sizes, always, k, labels := drawLists(t)
		l := newLists(t, cells, sizes, always, k)
		c, at := drawContexts(t, len(cells), labels, k)
		o, share := l.Measure(c, at), uint16(rapid.IntRange(1, Certain).Draw(t, "share"))
		first, all, candidates := 0.0, 0.0, 0.0
		for i, cell := range at {
			list := l.Lists[cell].IDs[:l.Count(int(cell), share)]
			candidates += float64(len(list))
			for j, s := range c.LabelsOf(uint32(i)) {
				if !slices.Contains(list, s) {
					all++
					if j == 0 {
						first++
					}
				}
			}
		}
		n := float64(c.N)
		f, a, mean := l.At(share, o)
		if f != first/n || a != all/(n*float64(k)) || math.Abs(mean-candidates/n) > 1e-9 {
			t.Fatalf("found %v, %v and %v candidates, expected %v, %v and %v", f, a, mean, first/n, all/(n*float64(k)), candidates/n)
		}
	})
}

func TestBudgetsAscendInRoundNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cells, sizes, always, k, _ := drawLists(t)
		l := newLists(t, cells, sizes, always, k)
		least := rapid.Float64Range(1, 50).Draw(t, "least")
		most := least * rapid.Float64Range(1, 100).Draw(t, "times")
		budgets := l.Budgets(nil, least, most, 0, 0)
		if len(budgets) > rungs || budgets[0] < least || budgets[0] < l.Least() || budgets[len(budgets)-1] < most && budgets[len(budgets)-1] < l.Least() {
			t.Fatalf("found %v for %v to %v, certain %v", budgets, least, most, l.Least())
		}
		for i, b := range budgets {
			if b != RoundUp(b) || i > 0 && b <= budgets[i-1] {
				t.Fatalf("found %v, expected ascending round numbers", budgets)
			}
			if _, ok := l.Threshold(b); !ok {
				t.Fatalf("found budget %v, though the certain ones are %v", b, l.Least())
			}
		}
	})
}

// A ladder ends at the largest budget, or with twice the first one that misses no more than is
// allowed.
func TestALadderGoesOnBehindTheTarget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cells, sizes, always, k, labels := drawLists(t)
		l := newLists(t, cells, sizes, always, k)
		c, at := drawContexts(t, len(cells), labels, k)
		o, least, most := l.Measure(c, at), 1.0, float64(labels)
		allowed1, allowedK := rapid.Float64Range(0, 1).Draw(t, "allowed"), rapid.Float64Range(0, 1).Draw(t, "of all")
		budgets := l.Budgets(o, least, most, allowed1, allowedK)
		last := budgets[len(budgets)-1]
		if last >= RoundUp(most) {
			return
		}
		for b := budgets[0]; b <= last; b *= 1.05 {
			share, _ := l.Threshold(b)
			if first, all, _ := l.At(share, o); first <= allowed1 && all <= allowedK {
				if last < 2*b {
					t.Fatalf("found %v, though %v misses %v and %v", budgets, b, first, all)
				}
				return
			}
		}
	})
}

func TestRoundUp(t *testing.T) {
	for x, want := range map[float64]float64{1: 1, 1.2: 2, 10: 10, 99.5: 100, 101: 110, 110: 110, 2048: 2100} {
		if got := RoundUp(x); got != want {
			t.Errorf("%v: found %v, expected %v", x, got, want)
		}
	}
}

// A share is the upper bits of a float32, as files have them.
func TestSharesByTable(t *testing.T) {
	for _, c := range []struct {
		p    float64
		want uint16
	}{
		{math.NaN(), 0}, {math.Inf(-1), 0}, {-1, 0}, {0, 0}, {1e-300, 0}, {math.Nextafter(0x1p-31, 0), 0},
		{0x1p-31, 1}, {0x1.001p-31, 1}, {0x1.002p-31, 2}, {0x1p-30, 2049}, {1e-3, 43058}, {0.01, 49726}, {0.1, 56525}, {0x1p-1, 61441}, {0.75, 62465},
		{0x1.ffep-1, 63488}, {0x1.fffp-1, 63488}, {math.Nextafter(1, 0), 63489}, // whose float32 is 1
		{1, 65535}, {2, 65535}, {math.Inf(1), 65535},
	} {
		if got := ShareOf(c.p); got != c.want {
			t.Errorf("%v: found %d, expected %d", c.p, got, c.want)
		}
	}
}

// A share does not descend, and all floats that have an exponent and 11 bits of a mantissa in
// common have one share.
func TestSharesAreTheUpperBitsOfAFloat(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		exponent, mantissa := rapid.IntRange(0, 30).Draw(t, "exponent above the exponent of 2^-31"), rapid.IntRange(0, 2047).Draw(t, "mantissa")
		low := float32(math.Ldexp(1+float64(mantissa)/2048, exponent-31))
		high := math.Nextafter32(float32(math.Ldexp(1+float64(mantissa+1)/2048, exponent-31)), 0)
		p := rapid.OneOf(rapid.Just(low), rapid.Just(high), rapid.Float32Range(low, high)).Draw(t, "p")
		share := ShareOf(float64(p))
		if want := uint16(1 + 2048*exponent + mantissa); share != want {
			t.Fatalf("%v: found %d, expected %d", p, share, want)
		}
		q := rapid.Float64Range(0, 2).Draw(t, "q")
		if other := ShareOf(q); q <= float64(p) && other > share || q >= float64(p) && other < share {
			t.Fatalf("found the shares %d of %v and %d of %v", share, p, other, q)
		}
	})
}
