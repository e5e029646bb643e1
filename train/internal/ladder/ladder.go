// Package ladder makes ranked lists of candidates, and finds their budgets.
package ladder

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sort"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/parallel"
	"github.com/learning-to-screen/l2s/internal/ground/precision"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/train/internal/corpus"
	"github.com/learning-to-screen/l2s/train/internal/shares"
)

// Certain is the share of ids that every budget takes.
const Certain = math.MaxUint16

// Lists are the ranked lists of cells.
type Lists struct {
	Lists []screening.List
	total uint64 // contexts of training
	// weights[s] is the sum over the labels of share s of the contexts of their cell.
	weights []uint64
}

// New ranks the labels of each cell by their shares. The ids of always, ascending, come
// first in every list. They, and the k best others of a cell, are certain, so that no list is
// shorter than k at any budget, if its cell has k labels. sizes are the contexts of training of
// each cell.
func New(ctx context.Context, threads int, cells [][]shares.Label, sizes []uint32, always []uint32, k int) (*Lists, error) {
	l := &Lists{Lists: make([]screening.List, len(cells)), weights: make([]uint64, Certain+1)}
	err := parallel.With(ctx, threads, len(cells), 1, nil, func() *ranker { return &ranker{} }, func(r *ranker, t, _ int) error {
		l.Lists[t] = r.rank(cells[t], always, k)
		return nil
	})
	for t := range l.Lists {
		l.total += uint64(sizes[t])
		for _, s := range l.Lists[t].Shares {
			l.weights[s] += uint64(sizes[t])
		}
	}
	return l, err
}

// ranker has the memory in which one cell after the other is ranked.
type ranker struct {
	labels []shares.Label
	list   []uint64 // Certain less the share, and the id
}

func (r *ranker) rank(labels []shares.Label, always []uint32, k int) screening.List {
	labels = slices.DeleteFunc(append(r.labels[:0], labels...), func(x shares.Label) bool {
		_, found := slices.BinarySearch(always, x.ID)
		return found || ShareOf(x.Share) == 0
	})
	best := firstOf(labels, k)
	list := r.list[:0]
	for _, x := range labels {
		place := uint64(x.ID)
		if s := ShareOf(x.Share); len(best) > 0 && byShare(x, best[len(best)-1]) > 0 {
			place |= uint64(Certain-s) << 32
		}
		list = append(list, place)
	}
	slices.Sort(list)
	r.labels, r.list = labels, list
	n := len(always) + len(list)
	out := screening.List{IDs: append(make([]uint32, 0, n), always...), Shares: make([]uint16, 0, n)}
	for range always {
		out.Shares = append(out.Shares, Certain)
	}
	for _, x := range list {
		out.IDs, out.Shares = append(out.IDs, uint32(x)), append(out.Shares, Certain-uint16(x>>32))
	}
	return out
}

// byShare orders labels by falling share, of which lists have only 16 bits, and by their ids.
func byShare(a, b shares.Label) int {
	return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.ID, b.ID))
}

// firstOf are the first k of labels by byShare, or all.
func firstOf(labels []shares.Label, k int) (first []shares.Label) {
	for _, x := range labels {
		if len(first) == k {
			if byShare(x, first[k-1]) > 0 {
				continue
			}
			first = first[:k-1]
		}
		at, _ := slices.BinarySearchFunc(first, x, byShare)
		first = slices.Insert(first, at, x)
	}
	return first
}

// Threshold solves the knapsack for a budget: it returns the least share at which the labels of
// this share or a larger one are at most budget candidates on average over the contexts of
// training, and at least 1. It returns false if the certain labels alone are more. A label of share
// p in a cell of N_t contexts saves p N_t misses and costs N_t candidates, so the greedy order is
// the order of the shares.
func (l *Lists) Threshold(budget float64) (share uint16, ok bool) {
	capacity := uint64(math.MaxUint64)
	// A budget that is a quotient of counts, as Least is, fits though it is rounded.
	if x := float64(budget*float64(l.total)) * (1 + 0x1p-50); x < 1<<63 {
		capacity = uint64(x)
	}
	sum := uint64(0)
	for s := Certain; s > 0; s-- {
		if sum += l.weights[s]; sum > capacity {
			return uint16(min(s+1, Certain)), s < Certain
		}
	}
	return 1, true
}

// Least is the mean number of certain candidates.
func (l *Lists) Least() float64 { return float64(l.weights[Certain]) / float64(l.total) }

// Count is the number of labels of a cell that have the share or a larger one.
func (l *Lists) Count(cell int, share uint16) int {
	shares := l.Lists[cell].Shares
	return sort.Search(len(shares), func(i int) bool { return shares[i] < share })
}

// Cut ends all lists at a share.
func (l *Lists) Cut(share uint16) {
	for t := range l.Lists {
		n := l.Count(t, share)
		x := &l.Lists[t]
		x.IDs, x.Shares = slices.Clone(x.IDs[:n]), slices.Clone(x.Shares[:n])
	}
}

// Measure finds the labels of contexts, whose cells are given, in the lists.
func (l *Lists) Measure(c *corpus.Corpus, cells []uint32) []precision.Outcome {
	outcomes := make([]precision.Outcome, c.N)
	for i, cell := range cells {
		outcomes[i] = precision.Find(int(cell), l.Lists[cell].IDs, c.LabelsOf(uint32(i)))
	}
	return outcomes
}

// ShareOf returns the share of a probability as lists hold it: 65,535 for 1, 0 below 2^-31,
// between them its binary exponent and 11 bits of its mantissa in float32.
func ShareOf(p float64) uint16 {
	const unit, least = 1 << 12, 96 << 23 // least: the bits of 2^-31
	bits := math.Float32bits(float32(p))
	switch {
	case !(p >= 0x1p-31): // or NaN
		return 0
	case p >= 1:
		return math.MaxUint16
	}
	return uint16((bits-least)/unit) + 1
}

// Rung is the rung of a budget and its share with the figures of outcomes.
func (l *Lists) Rung(budget float64, share uint16, outcomes []precision.Outcome, k int) screening.Rung {
	return screening.NewRung(budget, share, precision.Measure(outcomes, k, func(cell int) int { return l.Count(cell, share) }))
}

// At returns means over outcomes, at least one, for the candidates at a share: the missed parts of
// the best labels and of all labels, and the number of candidates.
func (l *Lists) At(share uint16, outcomes []precision.Outcome) (first, all, candidates float64) {
	for _, o := range outcomes {
		n := l.Count(o.Cell, share)
		candidates += float64(n)
		first += float64(1 - o.Among(1, n))
		all += float64(len(o.Places) - o.Among(len(o.Places), n))
	}
	n := float64(len(outcomes))
	return first / n, all / (n * float64(len(outcomes[0].Places))), candidates / n
}

// rungs is the number of budgets of a ladder, at most.
const rungs = 24

// A ladder ends at the first budget that misses at most these parts of the best labels and of all,
// or at most 1.1 times the labels that the largest budget misses.
const (
	enough1 = 1e-4
	enoughK = 5e-4
	times   = 1.1
)

// Budgets returns the budgets of a ladder, ascending: round numbers in geometric steps. The first
// is least, or the number of the certain labels. The last misses hardly any label of the contexts,
// or hardly more than most does; and it is at least twice the first budget that misses no more of
// the best labels and of all than allowed1 and allowedK: a draw looks for more than the best
// labels. Without contexts there are no outcomes.
func (l *Lists) Budgets(outcomes []precision.Outcome, least, most, allowed1, allowedK float64) []float64 {
	least = RoundUp(max(least, l.Least()))
	most = max(RoundUp(most), least)
	if outcomes != nil {
		share, _ := l.Threshold(most)
		last1, lastK, _ := l.At(share, outcomes)
		enough := 0.0
		if last1 <= allowed1 && lastK <= allowedK {
			enough = most
		}
		for b := least; b < most; b *= 1.05 {
			share, _ := l.Threshold(b)
			first, all, _ := l.At(share, outcomes)
			if first <= allowed1 && all <= allowedK {
				enough = min(enough, b)
			}
			if first <= max(enough1, last1) && all <= max(enoughK, times*lastK) && b >= 2*enough {
				most = RoundUp(b)
				break
			}
		}
	}
	budgets := []float64{least}
	for i := 1; i < rungs-1; i++ {
		budgets = append(budgets, min(most, RoundUp(least*kernels.Exp(kernels.Log(most/least)*float64(i)/(rungs-1)))))
	}
	return slices.Compact(append(budgets, most))
}

// RoundUp returns the least number of two significant digits that is not below x, which
// is at least 1.
func RoundUp(x float64) float64 {
	unit := 1.0
	for x > 100*unit {
		unit *= 10
	}
	return math.Ceil(x/unit) * unit
}
