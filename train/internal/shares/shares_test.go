package shares

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
	"github.com/learning-to-screen/l2s/train/internal/corpus"
	"github.com/learning-to-screen/l2s/train/internal/traintest"
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

// A share is the probability that a draw from the two normal distributions is at least 0.
func TestShareIsThatOfTwoNormalDistributions(t *testing.T) {
	table := phiTable()
	rapid.Check(t, func(t *rapid.T) {
		mean := rapid.Float64Range(-6, 6).Draw(t, "mean")
		variance := rapid.Float64Range(0.01, 9).Draw(t, "variance")
		cdf := func(z float64) float64 { return 0.5 * math.Erfc(-z/math.Sqrt2) }
		z := mean / math.Sqrt(variance)
		want := (1-geometryWide)*cdf(z) + geometryWide*cdf(z/geometryWidth)
		if got := share(table, mean, variance); math.Abs(got-want) > 1e-4 {
			t.Fatalf("found %v, want %v", got, want)
		}
	})
}

// byGeometry are the shares in the six clusters.
func byGeometry(t testing.TB, d traintest.Data, c *corpus.Corpus, cluster []uint32) [][]Label {
	t.Helper()
	g, err := NewGeometry(t.Context(), c, d.Layer, "shares", cluster, 6)
	if err != nil {
		t.Fatal(err)
	}
	shares, err := g.Clusters(t.Context(), 20)
	if err != nil {
		t.Fatal(err)
	}
	return shares
}

// With few contexts the geometric shares are near the counts of many contexts, also for labels that
// the few contexts do not have; counts alone are not.
func TestGeometricSharesForeseeCounts(t *testing.T) {
	const k, taken = 5, 25
	few, cluster := traintest.Clusters(t, 6*20, 3)
	many, all := traintest.Clusters(t, 6*3000, 4)
	c := few.Corpus(t, k)
	geometric := byGeometry(t, few, c, cluster)
	counted, err := ByCounts(t.Context(), c, corpus.NewPartition(cluster, 6))
	if err != nil {
		t.Fatal(err)
	}
	truth := map[[2]uint32]float64{}
	manyCorpus := many.Corpus(t, k)
	for i := range uint32(many.N) {
		for _, s := range manyCorpus.LabelsOf(i) {
			truth[[2]uint32{all[i], s}] += 1.0 / 3000
		}
	}
	// The mean share of the labels that the best ones of a cluster miss.
	miss := func(shares [][]Label) float64 {
		held := 0.0
		for t, list := range shares {
			list = slices.Clone(list)
			slices.SortFunc(list, func(a, b Label) int { return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.ID, b.ID)) })
			for _, x := range list[:min(taken, len(list))] {
				held += truth[[2]uint32{uint32(t), x.ID}]
			}
		}
		return 1 - held/(6*k)
	}
	if g, n := miss(geometric), miss(counted); g > 0.6*n {
		t.Errorf("labels missed: %.4f by geometry, %.4f by counts; want less than .6 of them", g, n)
	}
	sum, unmet := 0.0, 0.0
	for t, list := range geometric {
		for _, x := range list {
			sum += x.Share / 6
			if !slices.ContainsFunc(counted[t], func(y Label) bool { return y.ID == x.ID }) {
				unmet += x.Share / 6
			}
		}
	}
	if sum < 0.8*k || sum > 1.2*k {
		t.Errorf("the shares of a cluster add up to %.3f, want about k = %d", sum, k)
	}
	if unmet < 0.05 {
		t.Errorf("labels that no context has have %.4f of the shares, want some", unmet)
	}
}

// Any number of threads gives the same shares, at every level.
func TestGeometricSharesHaveTheSameBits(t *testing.T) {
	d, cluster := traintest.Clusters(t, 6*90, 5)
	var first [][]Label
	for _, threads := range []int{1, 3} {
		simdtest.EachLevel(t, func(t *testing.T) {
			c := d.Corpus(t, 5)
			c.Threads = threads
			shares := byGeometry(t, d, c, cluster)
			if first == nil {
				first = shares
			}
			if !slices.EqualFunc(shares, first, slices.Equal) {
				t.Errorf("%d threads: found other shares, expected the same", threads)
			}
		})
	}
}

// drawCells draws contexts with labels, each in a cell.
func drawCells(t *rapid.T) (c *corpus.Corpus, cell []uint32, cells int) {
	cells = rapid.IntRange(1, 6).Draw(t, "cells")
	c = &corpus.Corpus{N: rapid.IntRange(1, 60).Draw(t, "contexts"), Labels: rapid.IntRange(1, 12).Draw(t, "labels"), Threads: 2}
	c.K = rapid.IntRange(1, min(3, c.Labels)).Draw(t, "k")
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	for range c.N {
		cell = append(cell, uint32(r.IntN(cells)))
		for _, s := range r.Perm(c.Labels)[:c.K] {
			c.Best = append(c.Best, uint32(s))
		}
	}
	return c, cell, cells
}

// naiveCount is the number of contexts of a cell that have a label, and of its contexts.
func naiveCount(c *corpus.Corpus, cell []uint32, t int, label uint32) (n, size float64) {
	for i := range c.N {
		if int(cell[i]) == t {
			size++
			if slices.Contains(c.LabelsOf(uint32(i)), label) {
				n++
			}
		}
	}
	return n, size
}

func TestCountsAreThoseOfANaiveCount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, cell, cells := drawCells(t)
		shares, err := ByCounts(context.Background(), c, corpus.NewPartition(cell, cells))
		if err != nil {
			t.Fatal(err)
		}
		for at := range cells {
			for s := range uint32(c.Labels) {
				n, size := naiveCount(c, cell, at, s)
				i := slices.IndexFunc(shares[at], func(x Label) bool { return x.ID == s })
				if (i >= 0) != (n > 0) || i >= 0 && shares[at][i].Share != n/size {
					t.Fatalf("cell %d, label %d: found %v, expected %v of %v", at, s, shares[at], n, size)
				}
			}
		}
	})
}

// A cell of a shell without contexts has the shares of its cluster, and contexts far from
// their cluster have shares that are spread over more labels.
func TestSharesInShells(t *testing.T) {
	d, cluster := traintest.Clusters(t, 6*200, 1)
	r := rand.New(rand.NewPCG(1, 3))
	shell := make([]uint32, d.N)
	for i := 0; i < d.N; i += 4 { // every fourth context is far from its centre, except in the last cluster
		if cluster[i] == 5 {
			continue
		}
		shell[i] = 1
		for j := range d.Dim {
			d.Contexts[i*d.Dim+j] += float32(1.5 * r.NormFloat64())
		}
	}
	for i := range shell {
		if cluster[i] == 5 {
			shell[i] = 0
		}
	}
	c := d.Corpus(t, 5)
	g, err := NewGeometry(t.Context(), c, d.Layer, "shares", cluster, 6)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := g.Clusters(t.Context(), 20)
	if err != nil {
		t.Fatal(err)
	}
	at := make([]uint32, d.N)
	for i := range at {
		at[i] = 6*shell[i] + cluster[i]
	}
	cells, err := g.Shells(t.Context(), at, 2, whole, 20, func(float64) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	if len(cells) != 12 || !slices.Equal(cells[11], whole[5]) {
		t.Error("a cell without contexts has other shares than its cluster")
	}
	likely := func(list []Label) (n int) {
		for _, x := range list {
			if x.Share > 0.01 {
				n++
			}
		}
		return n
	}
	for _, at := range []int{0, 2, 4} { // the clusters that have far contexts
		if near, far := likely(cells[at]), likely(cells[6+at]); far <= near {
			t.Errorf("cluster %d: %d likely labels near it, %d far: expected more", at, near, far)
		}
	}
}
