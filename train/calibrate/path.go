package calibrate

import (
	"cmp"
	"math"
	"slices"
)

// maxGrid bounds the number of margins of a kind that are tried, fewest and
// finestStep the step of the pairs tested: the next pair on the path costs less by
// this share at least.
const (
	maxGrid    = 512
	finestStep = 0.002
)

// candidate is a pair of margins with what it makes of the contexts that choose.
type candidate struct {
	point
	missed uint64
	cost   float64
}

// newPath returns pairs of margins from the safest, with which the exact layer
// answers all that it can, to the cheapest: the pairs of the grid of all quantiles of
// the leads that no other pair beats both in cost and in labels missed.
func newPath(outcomes []outcome, exactCost float64) []point {
	t := newTable(outcomes)
	margins := t.grid()
	var all []candidate
	for i, exact := range margins {
		for _, probe := range margins[i:] {
			c := t.at(exact, probe, exactCost)
			if probe == exact {
				c.probe = 0 // the exact layer comes first
			}
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.missed, b.missed), cmp.Compare(a.cost, b.cost), cmp.Compare(a.exact, b.exact), cmp.Compare(a.probe, b.probe))
	})
	path := []point{{exact: math.MaxFloat64}}
	// The ascent in missed labels passes the undominated pairs with falling cost.
	least, last := math.Inf(1), math.Inf(1)
	var cheapest point
	for _, c := range all {
		if c.cost >= least {
			continue
		}
		least, cheapest = c.cost, c.point
		if c.cost <= float64((1-finestStep)*last) {
			last = c.cost
			path = append(path, c.point)
		}
	}
	if path[len(path)-1] != cheapest {
		path = append(path, cheapest)
	}
	return path
}

// table gives the figures of a pair of margins from sums over the contexts in
// the order of their leads.
type table struct {
	leads []float64
	sums  []tableSums // over the contexts before
}

// tableSums are over some contexts, for one set and for two.
type tableSums struct{ missed, rows, exact [2]uint64 }

func newTable(outcomes []outcome) *table {
	order := slices.Clone(outcomes)
	slices.SortFunc(order, func(a, b outcome) int { return cmp.Compare(a.lead, b.lead) })
	t := &table{sums: make([]tableSums, len(order)+1)}
	for i, o := range order {
		t.leads = append(t.leads, o.lead)
		s := t.sums[i]
		for j, rows := range o.rows {
			s.missed[j] += uint64(o.missed[j])
			if rows == exactAnswer {
				s.exact[j]++
			} else {
				s.rows[j] += uint64(rows)
			}
		}
		t.sums[i+1] = s
	}
	return t
}

// grid returns the margins to try, ascending: 0, quantiles of the leads, and the
// largest number. The quantiles are of the shares (i/n)^2, finer if small: few
// contexts should need the exact layer.
func (t *table) grid() []float64 {
	n := min(maxGrid, max(32, len(t.leads)/8))
	margins := []float64{0}
	for i := range n {
		// Of n^2 parts, the first i^2.
		if at := uint64(len(t.leads)) * uint64(i*i) / uint64(n*n); at < uint64(len(t.leads)) {
			margins = append(margins, min(t.leads[at], math.MaxFloat64))
		}
	}
	return slices.Compact(append(margins, math.MaxFloat64))
}

// at gives the figures of a pair, probe >= exact.
func (t *table) at(exact, probe, exactCost float64) candidate {
	i, _ := slices.BinarySearch(t.leads, exact)
	j, _ := slices.BinarySearch(t.leads, probe)
	first, second, all := &t.sums[i], &t.sums[j], &t.sums[len(t.leads)]
	sum := func(get func(*tableSums) [2]uint64) uint64 {
		return get(second)[1] - get(first)[1] + get(all)[0] - get(second)[0]
	}
	answers := uint64(i) + sum(func(s *tableSums) [2]uint64 { return s.exact })
	return candidate{
		point:  point{probe, exact},
		missed: sum(func(s *tableSums) [2]uint64 { return s.missed }),
		cost:   float64(sum(func(s *tableSums) [2]uint64 { return s.rows })) + float64(exactCost*float64(answers)),
	}
}
