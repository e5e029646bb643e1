// Package precision measures the share of the best labels that are found: P@k, with intervals.
package precision

import (
	"errors"
	"math"
	"slices"
	"sort"
)

// Estimate is a measured number with its 95% interval: 0 <= Low <= Value <= High <= 1.
type Estimate struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// The default target: the least P@1 and P@k. A precision that is printed as the target, with four
// digits, reaches it: it may be less by Printed.
const (
	Target1 = 0.9995
	TargetK = 0.998
	Printed = 0.00005
	// TargetOwn is the least found share of own states, in each of which another label leads.
	TargetOwn = 0.9999
)

// ErrTarget is the cause of the error of a screen or a preview that misses its target by far.
var ErrTarget = errors.New("the target is missed by far")

// Targets returns the least P@1 and P@k for a target of P@k, 0 for the default of both.
func Targets(target float64) (least1, leastK float64) {
	if target > 0 {
		return 0, target
	}
	return Target1, TargetK
}

// StepOf returns which of n steps, whose budgets do not descend, answers a request of a budget: the last
// whose own is not above it, or the first.
func StepOf(n int, own func(i int) float64, budget float64) int {
	return max(0, sort.Search(n, func(i int) bool { return own(i) > budget })-1)
}

// Found returns the number of the best labels that are among the labels found. Both are distinct.
func Found(found, best []uint32) (n int) {
	for _, id := range best {
		if slices.Contains(found, id) {
			n++
		}
	}
	return n
}

// Outcome holds the places of the best labels of a context in the list of its cell. The precision
// of every budget follows from them.
type Outcome struct {
	Cell int
	// Places holds, for each of the k best labels of the exact layer, the number of candidates
	// at which it is one: its place in the list, from 1 on, or MaxInt32 if it is not there.
	Places []int32
}

// Find returns the outcome of a context of a cell with this list whose best labels are these.
func Find(cell int, list, best []uint32) Outcome {
	o := Outcome{cell, make([]int32, len(best))}
	for j, id := range best {
		o.Places[j] = math.MaxInt32
		if at := slices.Index(list, id); at >= 0 {
			o.Places[j] = int32(at + 1)
		}
	}
	return o
}

// Hits returns the number of the k best labels that a searcher finds among the first n candidates
// of the cell: all if there are fewer than k, since the exact layer answers then.
func (o *Outcome) Hits(k, n int) int {
	if n < k {
		return k
	}
	return o.Among(k, n)
}

// Among returns the number of the k best labels that are among the first n candidates of the cell.
func (o *Outcome) Among(k, n int) (hits int) {
	for _, place := range o.Places[:k] {
		if int(place) <= n {
			hits++
		}
	}
	return hits
}

// Runs is the number of runs of neighbouring contexts that intervals are taken over.
const Runs = 50

// Figures are the figures of contexts at one budget: P@1, P@k, and the mean, the 99th percentile
// and the largest of the numbers of candidates.
type Figures struct {
	Precision1, PrecisionK Estimate
	Mean                   float64
	P99, Max               int
}

// Measure returns the figures of outcomes, in the order of the text, if candidates gives the number
// of candidates of a cell. All are 0 without outcomes. k is at least 1 in P@k.
func Measure(outcomes []Outcome, k int, candidates func(cell int) int) (f Figures) {
	if len(outcomes) == 0 {
		return f
	}
	sizes := make([]int, len(outcomes))
	for i, o := range outcomes {
		sizes[i] = candidates(o.Cell)
	}
	f.Precision1, f.PrecisionK = At(outcomes, sizes, 1), At(outcomes, sizes, k)
	f.Mean, f.P99, f.Max = Spread(sizes)
	return f
}

// Spread returns the mean of sizes, their 99th percentile, and the largest. It sorts them.
func Spread(sizes []int) (mean float64, p99, largest int) {
	total := 0
	for _, size := range sizes {
		total += size
	}
	slices.Sort(sizes)
	n := len(sizes)
	return float64(total) / float64(n), sizes[(99*n+99)/100-1], sizes[n-1]
}

// At is P@k of contexts with these numbers of candidates, see [Interval].
func At(outcomes []Outcome, sizes []int, k int) Estimate {
	missed := make([]int, len(outcomes))
	for i := range outcomes {
		missed[i] = k - outcomes[i].Hits(k, sizes[i])
	}
	return Interval(missed, k)
}

// Interval is P@k of contexts, in the order of the text, with these numbers of missed labels. Its
// interval is Student's, about, over runs of neighbours; with too few missed labels for that, the
// rule of three gives it: the bound at 95% after n contexts without a miss.
func Interval(missed []int, k int) Estimate {
	n := len(missed)
	runs := min(Runs, n)
	all := 0
	for _, x := range missed {
		all += x
	}
	labels := float64(n * k)
	mean := float64(all) / labels
	squares := 0.0
	for b := range runs {
		first, end, some := b*n/runs, (b+1)*n/runs, 0
		for _, x := range missed[first:end] {
			some += x
		}
		off := float64(some) - float64(mean*float64((end-first)*k))
		squares += float64(off * off)
	}
	half := 0.0
	if r := float64(runs); r > 1 {
		half = 2 * math.Sqrt(float64(squares*r/(r-1))) / labels
	}
	three := min(3/float64(n), 1)
	return Estimate{Value: 1 - mean, Low: max(0, min(1-mean-half, 1-max(mean, three))), High: min(1, 1-mean+half)}
}
