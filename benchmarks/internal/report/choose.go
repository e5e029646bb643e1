package report

import (
	"cmp"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/benchmarks/internal/points"
)

// front returns the points that no other is at least as fast and as precise as,
// by ascending speedup: the Pareto front.
func front(all []points.Point, precision func(points.Point) float64) []points.Point {
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b points.Point) int {
		return cmp.Or(cmp.Compare(b.Speedup, a.Speedup), cmp.Compare(precision(b), precision(a)))
	})
	var kept []points.Point
	best := math.Inf(-1)
	for _, p := range sorted {
		if precision(p) > best {
			best = precision(p)
			kept = append(kept, p)
		}
	}
	slices.Reverse(kept)
	return kept
}

// nines is the scale of the precision: the number of nines, -log10(1-p), up to the largest number
// that the scale distinguishes.
func nines(p float64) float64 { return min(-math.Log10(1-p), mostNines) }

const mostNines = 4.5

// closest returns the point of the fronts whose precisions are closest to the paper's, in nines.
func closest(all []points.Point, target figures) points.Point {
	candidates := append(front(all, p1), front(all, p5)...)
	distance := func(p points.Point) float64 {
		return math.Abs(nines(p.P1)-nines(target.p1)) + math.Abs(nines(p.P5)-nines(target.p5))
	}
	return slices.MinFunc(candidates, func(a, b points.Point) int {
		return cmp.Or(cmp.Compare(distance(a), distance(b)), cmp.Compare(b.Speedup, a.Speedup))
	})
}

// fastest returns the fastest point of a P@5 of at least that, and false if there is none.
func fastest(all []points.Point, least float64) (best points.Point, ok bool) {
	for _, p := range all {
		if p.P5 >= least && (!ok || p.Speedup > best.Speedup) {
			best, ok = p, true
		}
	}
	return best, ok
}

// fastestCold is fastest by the time with cold caches, among the points that have one.
func fastestCold(all []points.Point, least float64) (best points.Point, ok bool) {
	for _, p := range all {
		if p.Cold != nil && p.P5 >= least && (!ok || p.Cold.Micros < best.Cold.Micros) {
			best, ok = p, true
		}
	}
	return best, ok
}

func p1(p points.Point) float64 { return p.P1 }
func p5(p points.Point) float64 { return p.P5 }

// byMethod returns the points of the curves by method, and the methods in the order of the report:
// the screens, the methods of the paper's Table 1, then the others as they come.
func byMethod(f *points.File) (names []string, of map[string][]points.Point) {
	of = map[string][]points.Point{}
	for _, p := range f.Of(points.Curves) {
		of[p.Method] = append(of[p.Method], p)
	}
	names = f.Methods(points.Curves)
	rank := func(name string) int {
		if i := slices.Index(order, name); i >= 0 {
			return i
		}
		return len(order)
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	return names, of
}
