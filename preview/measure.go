package preview

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/exact"
	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/internal/precision"
	"github.com/learning-to-screen/l2s/softmax"
)

// ErrTarget is the error of Make, by errors.Is, for a layer and states with which the rung of
// requests that name no budget misses more than ten times the allowed number of labels, or, of a
// layer of LeastLabels or more, leaves more than half of the contexts to the exact layer: in flat
// distributions any label may be among the best. It is train.ErrTarget too.
var ErrTarget = precision.ErrTarget

// byFar is the multiple of the allowed misses at which Make gives up.
const byFar = 10

// truth are the exact best labels of contexts.
func truth(ctx context.Context, l *softmax.Layer, contexts []float32, k int, done func(int)) ([]softmax.Prediction, error) {
	d := l.Dim()
	n := len(contexts) / d
	best := make([]softmax.Prediction, n*k)
	err := parallel.With(ctx, 0, n, 16, done, func() *exact.Searcher { return exact.NewSearcher((*exact.Layer)(l)) }, func(s *exact.Searcher, lo, hi int) error {
		answers := make([]softmax.Answer, hi-lo)
		return s.SearchBatch(best[lo*k:hi*k], answers, contexts[lo*d:hi*d], softmax.Request{})
	})
	return best, err
}

// measure finds the rungs of the model on contexts that it was not made from.
func (m *Model) measure(ctx context.Context, l *softmax.Layer, held []float32, opt *Options) error {
	n := len(held) / m.dim
	m.heldOut = n
	for i := range factors { // of no held-out states
		x := float64(i) / float64(len(factors)-1)
		m.rungs = append(m.rungs, Rung{Deviations: 1 + 4.5*x, Reach: 4 + 4*x, Kept: float64(i + 1)})
	}
	m.normal = len(m.rungs) - 1
	if n == 0 {
		return nil
	}
	p1, pk := cmp.Or(opt.Precision1, precision.Target1), cmp.Or(opt.PrecisionK, precision.TargetK)
	counted := func(from, to float64) func(int) {
		return parallel.Counter(n, func(done int) { opt.Progress("precision", from+(to-from)*float64(done)/float64(n)) })
	}
	best, err := truth(ctx, l, held, m.k, counted(0, 0.4))
	if err != nil {
		return err
	}
	looks, err := m.survey(ctx, l, held, best, counted(0.4, 0.7))
	if err != nil {
		return err
	}
	m.rungs = looks.choose(m, 1-p1, 1-pk)
	if err := m.measureSums(ctx, l, held); err != nil {
		return err
	}
	miss1, missK := make([]int, n), make([]int, n)
	stats := make([]Stats, n)
	for i := range m.rungs {
		x := &m.rungs[i]
		err := m.each(ctx, l, n, nil, func(s *Searcher, c int) error {
			if err := s.query[0].Set(held[c*m.dim : (c+1)*m.dim]); err != nil {
				return err
			}
			want := best[c*m.k : (c+1)*m.k]
			miss1[c] = s.leavesOut(want[:1], x)
			s.stats = Stats{}
			missK[c] = s.leavesOut(want, x)
			stats[c] = s.stats
			return nil
		})
		if err != nil {
			return err
		}
		x.Precision1, x.PrecisionK = precision.Interval(miss1, 1), precision.Interval(missK, m.k)
		var sum Stats
		for _, s := range stats {
			sum.Looked += s.Looked
			sum.Kept += s.Kept
			sum.Exact += s.Exact
		}
		x.Looked = float64(sum.Looked) / float64(n) / float64(m.labels)
		// A budget is a number to name: one decimal is enough.
		x.Kept, x.Exact = math.Round(10*float64(sum.Kept)/float64(n))/10, float64(sum.Exact)/float64(n)
		opt.Progress("precision", 0.7+0.3*float64(i+1)/float64(len(m.rungs)))
	}
	normal := m.rungs[slices.Index(factors, 1)]
	slices.SortStableFunc(m.rungs, func(a, b Rung) int { return cmp.Compare(a.Kept, b.Kept) })
	// A budget names one rung: the normal one, or of equal ones the most precise, which is the last.
	slices.Reverse(m.rungs)
	m.rungs = slices.DeleteFunc(m.rungs, func(r Rung) bool { return r.Kept == normal.Kept && r != normal })
	m.rungs = slices.CompactFunc(m.rungs, func(a, b Rung) bool { return a.Kept == b.Kept })
	slices.Reverse(m.rungs)
	m.normal = slices.Index(m.rungs, normal)
	// It was chosen by estimates: the next one that has the precision takes its place, or the last.
	for m.normal < len(m.rungs)-1 && (m.rungs[m.normal].Precision1.Value < p1 || m.rungs[m.normal].PrecisionK.Value < pk) {
		m.normal++
	}
	if r := m.rungs[m.normal]; 1-r.Precision1.High > byFar*(1-p1) || 1-r.PrecisionK.High > byFar*(1-pk) {
		return fmt.Errorf("%w: found P@1 %.4f and P@%d %.4f at most on %d held-out states, expected %v and %v: take more states of such texts, or the exact search; Options.Precision1 and PrecisionK allow less", ErrTarget, r.Precision1.Value, m.k, r.PrecisionK.Value, n, p1, pk)
	}
	if r := m.rungs[m.normal]; m.labels >= LeastLabels && r.Exact > mostExact {
		return fmt.Errorf("%w: found %.0f%% of %d held-out states answered by the exact layer, since too many labels look alike, or too many have huge rows or biases, expected at most %.0f%%: take the exact search", ErrTarget, 100*r.Exact, n, 100*mostExact)
	}
	return nil
}

// mostExact is the largest share of contexts that the exact layer answers, of a preview that pays.
const mostExact = 0.5

// each calls work for each of n contexts, with a searcher for each goroutine, and done after some
// of them.
func (m *Model) each(ctx context.Context, l *softmax.Layer, n int, done func(int), work func(s *Searcher, c int) error) error {
	searchers := make([]*Searcher, parallel.Threads(parallel.Limited(ctx), n))
	for i := range searchers {
		searchers[i] = m.newSearcher(l)
	}
	return parallel.Each(ctx, len(searchers), n, 16, done, func(worker, lo, hi int) error {
		for c := lo; c < hi; c++ {
			if err := work(searchers[worker], c); err != nil {
				return err
			}
		}
		return nil
	})
}

// mostSums bounds the held-out contexts whose log-sums are computed.
const mostSums = 128

// measureSums finds the factor of the squared deviations, and the errors of log-sums.
func (m *Model) measureSums(ctx context.Context, l *softmax.Layer, held []float32) error {
	all := len(held) / m.dim
	n := min(all, mostSums)
	type sums struct{ exact, kept, rest, half float64 }
	found := make([]sums, n)
	for i := range m.rungs {
		err := m.each(ctx, l, n, nil, func(s *Searcher, c int) error {
			at := c * all / n * m.dim
			x, req := &found[c], softmax.Request{LogSum: true}
			if err := s.query[0].Set(held[at : at+m.dim]); err != nil {
				return err
			}
			if i == 0 {
				// The best logits are exact in it, and the others within the errors of their codes.
				if err := s.exact.Find(s.summed[:min(len(s.summed), m.labels)], s.one[:], s.query[:], &req); err != nil {
					return err
				}
				x.exact = s.one[0].LogSum
			}
			s.rest = math.Inf(-1)
			a, err := s.search(nil, &req, &m.rungs[i])
			if err != nil {
				return err
			}
			x.half, x.rest, x.kept = 0, s.rest, a.LogSum
			if a.Source == softmax.FromSet {
				x.half = float64(s.sigma*s.sigma) / 2
			}
			return nil
		})
		if err != nil {
			return err
		}
		if i == 0 { // the rung that leaves most to the estimate
			var factors []float64
			for _, x := range found {
				// kept is the sum with the estimate of the rest in it.
				kept := math.Exp(x.kept-x.exact) - math.Exp(x.rest-x.exact)
				if share := 1 - kept; x.half > 0 && share > 1e-3 {
					factors = append(factors, (math.Log(share)-(x.rest-x.exact))/x.half)
				}
			}
			if len(factors) > 0 {
				slices.Sort(factors)
				m.tail = min(max(factors[len(factors)/2], -2), 4)
			}
		}
		var off []float64
		for _, x := range found {
			e := x.kept - x.exact
			if i == 0 && x.half > 0 { // which was computed without the factor
				kept := math.Exp(x.kept-x.exact) - math.Exp(x.rest-x.exact)
				e = math.Log(kept + math.Exp(x.rest-x.exact+float64(m.tail*x.half)))
			}
			off = append(off, math.Abs(e))
		}
		slices.Sort(off)
		m.rungs[i].LogSumOff = off[(len(off)*95)/100]
	}
	return nil
}

// leavesOut returns the number of the best labels that a rung does not score in full. A search for
// len(best) labels finds the others: they are the best of any labels that include them.
func (s *Searcher) leavesOut(best []softmax.Prediction, rung *Rung) int {
	if !s.look(len(best), &softmax.Request{}, rung) {
		s.stats.Exact++
		return 0
	}
	s.stats.Kept += uint64(len(s.ids))
	return len(best) - precision.Found(s.ids, exact.IDs(nil, best))
}
