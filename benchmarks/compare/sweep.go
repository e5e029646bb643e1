package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/learning-to-screen/l2s/benchmarks/internal/methods"
	"github.com/learning-to-screen/l2s/benchmarks/internal/points"
	"github.com/learning-to-screen/l2s/benchmarks/internal/report"
)

// sweep is the part of the comparison that a run takes.
type sweep struct {
	name            string
	train, test     int // contexts, at most; 0 for all
	precision       int // contexts of the precisions, out of the test contexts
	words           int // of the text of the perplexities; 0 for all
	rounds          int
	cold, mib       int           // rounds with cold caches, and the MiB read before each of their queries
	block           time.Duration // of a turn
	screens, rivals func(labels int) []methods.Method
}

var sweeps = map[string]sweep{
	points.Quick: {
		name: points.Quick, train: 40_000, test: 5_000, precision: 1_000, words: 5_000, rounds: 7, cold: 3, block: 4 * time.Millisecond,
		screens: quickScreens, rivals: quickRivals,
	},
	points.Reduced: {
		name: points.Reduced, train: 300_000, test: 20_000, precision: 4_000, rounds: 15, cold: 7, block: 8 * time.Millisecond,
		screens: screens, rivals: rivals,
	},
	points.Full: {
		name: points.Full, train: 0, test: 20_000, precision: 10_000, rounds: 31, cold: 15, block: 20 * time.Millisecond,
		screens: screens, rivals: fullRivals,
	},
}

// methods returns the constructions of a sweep for a layer and a number of contexts to learn from,
// the dense scan first.
func (s sweep) methods(labels, contexts int) []methods.Method {
	list := []methods.Method{methods.Dense{}}
	if methods.Sgemv != nil {
		list = append(list, methods.OpenBLAS{})
	}
	list = append(list, methods.Certified{})
	for _, m := range append(s.screens(labels), s.rivals(labels)...) {
		if m, ok := fit(m, labels, contexts); ok {
			list = append(list, m)
		}
	}
	return list
}

// The least number of contexts to learn from for each cluster of a screen, and
// of labels for each leaf of a tree.
const (
	contextsPerCluster = 20
	labelsPerLeaf      = 4
)

// fit leaves out the settings that make no sense for the numbers of labels and of contexts to learn
// from, such as budgets that are most of a small layer, and reports whether there is any left.
func fit(m methods.Method, labels, contexts int) (methods.Method, bool) {
	switch m := m.(type) {
	case methods.L2S:
		return m, m.Budget <= float64(labels)/2 && m.Clusters*contextsPerCluster <= contexts
	case methods.PCAMIPS:
		return m, labels >= labelsPerLeaf<<m.Depth
	}
	return m, true
}

func quickScreens(int) []methods.Method {
	return append(flat(100, 150), methods.L2S{})
}

func screens(int) []methods.Method {
	return slices.Concat([]methods.Method{methods.L2S{}}, flat(50, 300), flat(100, 250), flat(200, 150), flat(250, 100))
}

// flatForms are the screens of clusters alone, with lists by counts.
var flatForms = []methods.Form{methods.Gumbel, methods.Expected, methods.KMeans}

func flat(clusters int, budget float64) (list []methods.Method) {
	for _, form := range flatForms {
		list = append(list, methods.L2S{Form: form, Clusters: clusters, Budget: budget})
	}
	return list
}

// The rivals' budgets grow with the layer.

func quickRivals(labels int) []methods.Method {
	return []methods.Method{
		methods.FGD{M: 16, EfConstruction: 100},
		methods.IPNSW{M: 16, EfConstruction: 100},
		methods.SVDSoftmax{Width: 32},
		methods.WeightedSVD{Width: 48, Factors: []float64{0.1, 0.2, 0.3}},
		methods.WeightedSVD{Width: 64, Factors: []float64{0.1, 0.2, 0.3}},
		methods.WeightedSVD{Width: 96, Factors: []float64{0.1, 0.2, 0.3}},
		methods.AdaptiveSoftmax{Cutoffs: ascending(labels/20, labels/4)},
		methods.Frequency{Sizes: geometric(labels/200, labels/2, 2.5)},
		methods.GreedyMIPS{Budgets: geometric(labels/16, labels/2, 2)},
		methods.PCAMIPS{Depth: 6, Distances: []int{0, 1, 2, 3}},
		methods.LSHMIPS{Tables: 16, Bits: 8, Probes: []int{1, 4, 16, 64}},
	}
}

// viewFactors are the factors of intervals of previews.
var viewFactors = []float64{0.05, 0.1, 0.15, 0.2, 0.3, 0.4}

func rivals(labels int) []methods.Method {
	return []methods.Method{
		methods.FGD{M: 16, EfConstruction: 200},
		methods.FGD{M: 32, EfConstruction: 200},
		methods.IPNSW{M: 16, EfConstruction: 200},
		methods.IPNSW{M: 32, EfConstruction: 200},
		methods.SVDSoftmax{Width: 16},
		methods.SVDSoftmax{Width: 32},
		methods.SVDSoftmax{Width: 64},
		methods.SVDSoftmax{Width: 100},
		methods.WeightedSVD{Width: 16, Factors: viewFactors},
		methods.WeightedSVD{Width: 32, Factors: viewFactors},
		methods.WeightedSVD{Width: 48, Factors: viewFactors},
		methods.WeightedSVD{Width: 64, Factors: viewFactors},
		methods.WeightedSVD{Width: 96, Factors: viewFactors},
		methods.WeightedSVD{Width: 128, Factors: viewFactors},
		methods.AdaptiveSoftmax{Cutoffs: ascending(labels/50, labels/10)},
		methods.AdaptiveSoftmax{Cutoffs: ascending(labels/20, labels/4)},
		methods.AdaptiveSoftmax{Cutoffs: ascending(labels/10, labels/2)},
		methods.AdaptiveSoftmax{Cutoffs: ascending(labels / 5)},
		// The paper has up to four tails.
		methods.AdaptiveSoftmax{Cutoffs: ascending(labels/50, labels/10, labels/3)},
		methods.AdaptiveSoftmax{Cutoffs: ascending(labels/50, labels/15, labels/5, labels/2)},
		methods.Frequency{Sizes: geometric(labels/200, labels, 1.7)},
		methods.GreedyMIPS{Budgets: geometric(labels/100, labels, 1.7)},
		methods.PCAMIPS{Depth: 4, Distances: []int{0, 1, 2, 3}},
		methods.PCAMIPS{Depth: 6, Distances: []int{0, 1, 2, 3, 4}},
		methods.PCAMIPS{Depth: 9, Distances: []int{0, 1, 2, 3, 4}},
		methods.LSHMIPS{Tables: 8, Bits: 8, Probes: []int{1, 4, 16, 64}},
		methods.LSHMIPS{Tables: 32, Bits: 8, Probes: []int{1, 4, 16}},
		methods.LSHMIPS{Tables: 16, Bits: 12, Probes: []int{1, 16, 64, 256}},
	}
}

func fullRivals(labels int) []methods.Method {
	return append(rivals(labels),
		methods.FGD{M: 16, EfConstruction: 400},
		methods.FGD{M: 48, EfConstruction: 400},
		methods.IPNSW{M: 48, EfConstruction: 400},
		methods.SVDSoftmax{Width: 24},
		methods.SVDSoftmax{Width: 48},
		methods.PCAMIPS{Depth: 3, Distances: []int{0, 1}},
		methods.PCAMIPS{Depth: 5, Distances: []int{0, 1, 2, 3}},
		methods.PCAMIPS{Depth: 8, Distances: []int{0, 1, 2, 3, 4}},
		methods.LSHMIPS{Tables: 64, Bits: 6, Probes: []int{1, 2, 4, 8}},
		methods.LSHMIPS{Tables: 64, Bits: 10, Probes: []int{1, 4, 16, 64}},
		methods.LSHMIPS{Tables: 128, Bits: 14, Probes: []int{1, 16, 64}},
	)
}

// ascending returns the cut-offs with each raised, to the number after the previous one, if it is
// not above that.
func ascending(cutoffs ...int) []int {
	last := 0
	for i := range cutoffs {
		cutoffs[i] = max(cutoffs[i], last+1)
		last = cutoffs[i]
	}
	return cutoffs
}

// geometric returns numbers from first, at least 1, to below last, each larger than the previous
// one by the factor.
func geometric(first, last int, factor float64) []int {
	var list []int
	for x := float64(max(first, 1)); x < float64(last); x *= factor {
		if n := int(x); len(list) == 0 || n > list[len(list)-1] {
			list = append(list, n)
		}
	}
	if list == nil {
		list = []int{last}
	}
	return list
}

// rowsOfClusterTable is the number of rows that a query reads in each row of the table of clusters:
// r + B. As in the paper the budget falls as the number of clusters grows, so that the times are
// alike.
const rowsOfClusterTable = 350

// clusterTable returns the points of the table of different numbers of clusters, from the
// curve of the paper's estimator.
func clusterTable(curves []points.Point) []points.Point {
	var table []points.Point
	for _, p := range curves {
		if p.Method == (methods.L2S{Form: methods.Gumbel}).Name() && float64(p.Clusters)+p.Budget == rowsOfClusterTable {
			p.Table = points.Clusters
			table = append(table, p)
		}
	}
	slices.SortStableFunc(table, func(a, b points.Point) int { return cmp.Compare(a.Clusters, b.Clusters) })
	return table
}

// kmeansTable returns the points of the table of spherical k-means against learned clusters: the
// points of at least the lowest precision of the report whose settings differ only in the learning.
func kmeansTable(curves []points.Point) []points.Point {
	type key struct {
		clusters int
		budget   float64
	}
	of := func(p points.Point) key { return key{p.Clusters, p.Budget} }
	var table []points.Point
	forms := map[key]int{}
	for _, p := range curves {
		if p.Clusters > 0 && p.Method != (methods.L2S{}).Name() && p.P5 >= report.Levels[0] {
			forms[of(p)]++
			p.Table = points.KMeans
			table = append(table, p)
		}
	}
	table = slices.DeleteFunc(table, func(p points.Point) bool { return forms[of(p)] < len(flatForms) })
	slices.SortStableFunc(table, func(a, b points.Point) int {
		return cmp.Or(cmp.Compare(a.Clusters, b.Clusters), cmp.Compare(a.Budget, b.Budget))
	})
	return table
}
