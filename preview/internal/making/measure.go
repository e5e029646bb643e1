package making

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/ground/parallel"
	"github.com/learning-to-screen/l2s/internal/ground/precision"
	"github.com/learning-to-screen/l2s/internal/ground/ranking"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/previewing"
	"github.com/learning-to-screen/l2s/internal/watch/evaluate"
)

const (
	// byFar is the multiple of the allowed misses at which Make gives up.
	byFar = 10
	// ownLabels is the number of labels whose own states are looked for: every other one with a state
	// tells how far searches must look, the others measure the rungs.
	ownLabels = 16000
	// leastOwn is the found share of own states below which a preview is of no use: many labels are
	// never found.
	leastOwn = 0.9
	// mostExact is the largest share of contexts that the exact layer answers, of a preview that pays.
	mostExact = 0.5
	// mostSums bounds the held-out contexts whose log-sums are computed.
	mostSums = 128
	// bestOfSums is the number of the best logits that are exact in these sums; the others are within
	// the errors of their codes.
	bestOfSums = 16
)

// exactly asks the exact layer about each of some contexts.
func (m *maker) exactly(ctx context.Context, contexts []float32, k int, req exact.Request, done func(int)) ([]exact.Prediction, []exact.Answer, error) {
	d := m.Dim
	n := len(contexts) / d
	best, answers := make([]exact.Prediction, n*k), make([]exact.Answer, n)
	err := parallel.With(ctx, 0, n, 16, done, func() *exact.Searcher { return exact.NewSearcher(m.layer) }, func(s *exact.Searcher, lo, hi int) error {
		return s.SearchBatch(best[lo*k:hi*k], answers[lo:hi], contexts[lo*d:hi*d], req)
	})
	return best, answers, err
}

// each calls work for each of some contexts, with a searcher for each goroutine, and done after
// some of them.
func (m *maker) each(ctx context.Context, model *previewing.Model, contexts []float32, done func(int), work func(s *previewing.Searcher, c int, h []float32) error) error {
	fresh := func() *previewing.Searcher { return model.Over(m.layer) }
	return parallel.With(ctx, 0, len(contexts)/m.Dim, 16, done, fresh, func(s *previewing.Searcher, lo, hi int) error {
		for c := lo; c < hi; c++ {
			if err := work(s, c, contexts[c*m.Dim:(c+1)*m.Dim]); err != nil {
				return err
			}
		}
		return nil
	})
}

// measure finds the rungs of the model on contexts that it was not made from, and on the own states
// of labels, which begin at the states that it was made from.
func (m *maker) measure(ctx context.Context, model *previewing.Model, states, held []float32) error {
	n := len(held) / m.Dim
	m.HeldOut = n
	m.Factors, m.Margins = usualFactors, usualMargins
	clear(m.Factors[m.Stages()-1:])
	clear(m.Margins[m.Stages():])
	if n == 0 {
		for i := range factors {
			x := float64(i) / float64(len(factors)-1)
			m.Rungs = append(m.Rungs, previewing.Rung{Deviations: 1 + 3.5*x, Reach: 3 + 5*x, Kept: float64(i + 1)})
		}
		m.Normal = len(m.Rungs) - 1
		return nil
	}
	p1, pk := cmp.Or(m.opt.Precision1, precision.Target1), cmp.Or(m.opt.PrecisionK, precision.TargetK)
	counted := func(from, to float64) func(int) {
		return parallel.Counter(n, func(done int) { m.opt.Progress("precision", from+(to-from)*float64(done)/float64(n)) })
	}
	places := m.places()
	ownNeeds, err := m.ownNeeds(ctx, model, states, places)
	if err != nil {
		return err
	}
	var learned, measured []previewing.Need
	for i, n := range ownNeeds {
		if i%2 == 0 {
			measured = append(measured, n)
		} else {
			learned = append(learned, n)
		}
	}
	if err := m.findSpreads(ctx, model, held, learned); err != nil {
		return err
	}
	m.findMargins(learned)
	best, _, err := m.exactly(ctx, held, m.K, exact.Request{}, counted(0.4, 0.6))
	if err != nil {
		return err
	}
	needs, err := m.survey(ctx, model, held, best, places, counted(0.6, 0.8))
	if err != nil {
		return err
	}
	m.Rungs = needs.choose(m, 1-p1, 1-pk)
	m.Normal = slices.Index(factors, 1)
	if err := m.measureSums(ctx, model, held); err != nil {
		return err
	}
	for i := range m.Rungs {
		if err := m.measureRung(ctx, model, &m.Rungs[i], held, best); err != nil {
			return err
		}
		m.opt.Progress("precision", 0.8+0.2*float64(i+1)/float64(len(m.Rungs)))
	}
	normal := m.Rungs[m.Normal]
	slices.SortStableFunc(m.Rungs, func(a, b previewing.Rung) int { return cmp.Compare(a.Kept, b.Kept) })
	// A budget names one rung: the normal one, or of equal ones the most precise, which is the last.
	slices.Reverse(m.Rungs)
	m.Rungs = slices.DeleteFunc(m.Rungs, func(r previewing.Rung) bool { return r.Kept == normal.Kept && r != normal })
	m.Rungs = slices.CompactFunc(m.Rungs, func(a, b previewing.Rung) bool { return a.Kept == b.Kept })
	slices.Reverse(m.Rungs)
	m.Rungs = ascending(m.Rungs, normal)
	m.Normal = slices.Index(m.Rungs, normal)
	m.measureOwn(measured)
	m.setNormal(p1, pk)
	return m.precise(p1, pk)
}

// precise returns an error unless the normal rung has the precision, about.
func (m *maker) precise(p1, pk float64) error {
	r := m.Rungs[m.Normal]
	if 1-r.Precision1.High > byFar*(1-p1) || 1-r.PrecisionK.High > byFar*(1-pk) {
		return fmt.Errorf("%w: found P@1 %.4f and P@%d %.4f at most on %d held-out states, expected %v and %v: take more states of such texts, or the exact search; Options.Precision1 and PrecisionK allow less", precision.ErrTarget, r.Precision1.Value, m.K, r.PrecisionK.Value, m.HeldOut, p1, pk)
	}
	if least := cmp.Or(m.opt.LeastOwn, leastOwn); m.Own > 0 && r.Own.High < least {
		return fmt.Errorf("%w: found %.4f of %d labels at most, each in a state in which it leads by %d logits, expected %.4v: take the exact search; Options.LeastOwn allows less", precision.ErrTarget, r.Own.Value, m.Own, evaluate.OwnLead, least)
	}
	if m.Labels >= LeastLabels && r.Exact > mostExact {
		return fmt.Errorf("%w: found %.0f%% of %d held-out states answered by the exact layer, since too many labels look alike, or too many have huge rows or biases, expected at most %.0f%%: take the exact search", precision.ErrTarget, 100*r.Exact, m.HeldOut, 100*mostExact)
	}
	return nil
}

// setNormal moves the normal rung, which was chosen by estimates, to the next one that has the
// precision on held-out contexts and on own states. If there is none it takes, of those from the
// normal one on, the one that has the former, or the last, and finds most own states.
func (m *maker) setNormal(p1, pk float64) {
	last := len(m.Rungs) - 1
	for m.Normal < last && (m.Rungs[m.Normal].Precision1.Value < p1 || m.Rungs[m.Normal].PrecisionK.Value < pk) {
		m.Normal++
	}
	if m.Own == 0 {
		return
	}
	for i := m.Normal; i <= last && m.Rungs[m.Normal].Own.Value < precision.TargetOwn; i++ {
		if m.Rungs[i].Own.Value > m.Rungs[m.Normal].Own.Value {
			m.Normal = i
		}
	}
}

// ownMethod finds the needs of labels in their own states. It is an evaluate.Method.
type ownMethod struct {
	*previewing.Steps
	look   *previewing.Look
	places []int
	needs  []previewing.Need // of all labels
}

// likely is a rung that finds nearly all own states.
var likely = previewing.Rung{Deviations: 3, Reach: 3}

const (
	// likelyMargin is the margin that nearly all own states need at most. More counts only if an exact
	// search has found the state.
	likelyMargin = 0.5
)

// ownSlack is added to what own states need after each stage, in spreads: states of other texts have
// another covariance, along which labels lead by other directions. leastMargins are what they need at
// least.
var (
	ownSlack     = [previewing.MostStages]float64{0.15, 0.65, 1, 1, 1}
	leastMargins = [previewing.MostStages]float64{-0.75, -0.8, -0.5, -1, -1}
	// usualMargins are the margins without own states.
	usualMargins = [previewing.MostStages]float64{1, 1.5, 0.5, 0, 0}
)

// Finds leaves the needs of the label. The label is missed if they are unlikely.
func (o *ownMethod) Finds(id uint32, h []float32) (rung int, missed bool, err error) {
	var none exact.Request
	n := previewing.Found() // of an outlier, and of one that the exact layer finds
	if at := o.places[id]; at >= 0 && o.look.Coordinates(h) {
		if o.look.First(1, &none); !math.IsInf(float64(o.look.Mark), -1) {
			n = o.look.Needs(at)
		}
	}
	o.needs[id] = n
	return 0, slices.Max(n.Margin[:]) > likelyMargin, nil
}

// ownNeeds returns the needs of labels that have own states, of a sample of all labels. Half of the labels
// have the covariance of all states, and the others the one of a part of the states that follow each
// other: a text to come is of one kind, as such a part is, and its covariance is another one.
func (m *maker) ownNeeds(ctx context.Context, model *previewing.Model, states []float32, places []int) (needs []previewing.Need, err error) {
	parts := append([][]float32{states}, partsOf(states, m.Dim, m.Dim)...)
	ids := make([][]uint32, len(parts))
	for i, id := range evaluate.OwnSample(m.Labels, ownLabels, 0) {
		at := 0
		if i%2 == 1 && len(parts) > 1 {
			at = 1 + i/2%(len(parts)-1)
		}
		ids[at] = append(ids[at], id)
	}
	before := 0
	for i, of := range ids {
		tell := parallel.Counter(len(of), func(done int) {
			m.opt.Progress("precision", 0.4*float64(before+done)/float64(min(m.Labels, ownLabels)))
		})
		some, err := m.ownNeedsOf(ctx, model, parts[i], of, places, tell)
		if err != nil {
			return nil, err
		}
		needs, before = append(needs, some...), before+len(of)
	}
	return needs, nil
}

// ownNeedsOf returns the needs of those of some labels that have own states by the covariance of some states.
func (m *maker) ownNeedsOf(ctx context.Context, model *previewing.Model, states []float32, ids []uint32, places []int, tell func(int)) ([]previewing.Need, error) {
	own, err := evaluate.NewOwn(ctx, m.layer, states)
	if err != nil {
		return nil, err
	}
	of := make([]previewing.Need, m.Labels)
	fresh := func() evaluate.Method {
		s := model.Over(m.layer)
		return &ownMethod{previewing.NewSteps(s, []previewing.Rung{likely}, 0), s.Look(), places, of}
	}
	outcomes, err := own.Outcomes(ctx, ids, 0, fresh, tell)
	if err != nil {
		return nil, err
	}
	var needs []previewing.Need
	for i, id := range ids {
		if outcomes[i] != evaluate.NoState {
			needs = append(needs, of[id])
		}
	}
	return needs, nil
}

// findMargins finds the margins that own states need after each stage, but for the few that may be
// missed. So every rung finds them, however far it looks. After lines nearly all are within the least reach, or the
// least deviations, so the few others do not tell how many need more.
func (m *maker) findMargins(needs []previewing.Need) {
	if len(needs) == 0 {
		return
	}
	for j := range m.Stages() {
		most := leastMargins[j]
		if j < previewing.PanelStages {
			x := make([]float64, len(needs))
			for i, n := range needs {
				x[i] = n.Margin[j]
			}
			slices.Sort(x)
			most = max(most, mostOf(x))
		} else {
			least := reaches[0]
			if j == m.Stages()-1 {
				least = deviations[0]
			}
			for _, n := range needs {
				if n.Reach[j] > least*m.OfReach(j, n.Spread) {
					most = max(most, n.Margin[j])
				}
			}
		}
		if most < math.Inf(1) {
			m.Margins[j] = most + ownSlack[j]
		}
	}
}

// The largest numbers tell how fast there are fewer of larger ones: one in so many, and a few at least.
const ofTail, leastTail = 100, 10

// mostOf returns what all but a few of such numbers, which are ascending, do not exceed, about: half of the misses
// that precision.TargetOwn allows, as there are other stages. The largest of some numbers vary by much, so it takes
// the tail for exponential: there are half as many above a number that is farther up by a fixed distance. It is no less
// than what all of these but the allowed few need: a small group of labels may need much more than all others.
func mostOf(x []float64) float64 {
	n := len(x)
	tail := min(max(n/ofTail, leastTail), (n-1)/2)
	for tail > 0 && math.IsInf(x[n-1-tail], -1) {
		tail--
	}
	if tail == 0 {
		return x[n-1]
	}
	from, mean := x[n-1-tail], 0.0
	for _, v := range x[n-tail:] {
		mean += (v - from) / float64(tail)
	}
	allowed := (1 - precision.TargetOwn) / 2 * float64(n)
	return max(from+float64(mean*max(math.Log(float64(tail)/allowed), 0)), x[n-1-int(allowed)])
}

// measureOwn finds the shares of own states that the rungs find.
func (m *maker) measureOwn(needs []previewing.Need) {
	m.Own = len(needs)
	if m.Own == 0 {
		return
	}
	for i := range m.Rungs {
		missed := make([]int, len(needs))
		for j := range needs {
			if reach, deviations := m.Takes(&needs[j]); reach > m.Rungs[i].Reach || deviations > m.Rungs[i].Deviations {
				missed[j] = 1
			}
		}
		m.Rungs[i].Own = precision.Interval(missed, 1)
	}
}

// measureRung finds the figures of a rung. A search for the k best labels finds the first of them as
// often as a search for one does, unless k is above previewing.Many, and nearly so then.
func (m *maker) measureRung(ctx context.Context, model *previewing.Model, rung *previewing.Rung, held []float32, best []exact.Prediction) error {
	n := len(held) / m.Dim
	miss1, missK, stats := make([]int, n), make([]int, n), make([]previewing.Stats, n)
	err := m.each(ctx, model, held, nil, func(s *previewing.Searcher, c int, h []float32) error {
		l := s.Look()
		l.Stats = previewing.Stats{}
		miss1[c], missK[c] = leavesOut(l, h, best[c*m.K:(c+1)*m.K], rung)
		stats[c] = l.Stats
		return nil
	})
	if err != nil {
		return err
	}
	rung.Precision1, rung.PrecisionK = precision.Interval(miss1, 1), precision.Interval(missK, m.K)
	var sum previewing.Stats
	for _, s := range stats {
		sum.Looked += s.Looked
		sum.Kept += s.Kept
		sum.Exact += s.Exact
	}
	rung.Looked = float64(sum.Looked) / float64(n) / float64(m.Labels)
	// A budget is a number to name: one decimal is enough.
	rung.Kept, rung.Exact = math.Round(10*float64(sum.Kept)/float64(n))/10, float64(sum.Exact)/float64(n)
	if rung.Kept == 0 { // of a small layer, whose exact search answers all: a budget is above 0
		rung.Kept = float64(m.Labels)
	}
	return nil
}

// leavesOut returns the numbers of the best one and of the best labels of a context that a rung does
// not score in full. A search for len(best) labels finds the others: they are the best of any labels
// that include them.
func leavesOut(l *previewing.Look, h []float32, best []exact.Prediction, rung *previewing.Rung) (first, all int) {
	if !l.Find(h, len(best), &exact.Request{}, rung) {
		l.Stats.Exact++
		return 0, 0
	}
	l.Stats.Kept += uint64(len(l.IDs))
	ids := ranking.IDs(nil, best)
	return 1 - precision.Found(l.IDs, ids[:1]), len(best) - precision.Found(l.IDs, ids)
}

// measureSums finds the factor of the squared deviations, and the errors of log-sums.
func (m *maker) measureSums(ctx context.Context, model *previewing.Model, held []float32) error {
	held = sample(held, m.Dim, mostSums)
	sum := exact.Request{LogSum: true}
	_, truth, err := m.exactly(ctx, held, min(bestOfSums, m.Labels), sum, nil)
	if err != nil {
		return err
	}
	type estimate struct{ all, rest, half float64 }
	found, scale := make([]estimate, len(truth)), m.layer.Scale()
	for i := range m.Rungs {
		err := m.each(ctx, model, held, nil, func(s *previewing.Searcher, c int, h []float32) error {
			req := sum
			a, err := s.Answer(nil, h, &req, &m.Rungs[i])
			found[c] = estimate{all: a.LogSum, rest: math.Inf(-1)}
			if l := s.Look(); a.Source == exact.FromSet {
				found[c] = estimate{a.LogSum, l.Rest, l.Square() / 2 * scale * scale}
			}
			return err
		})
		if err != nil {
			return err
		}
		kept := func(c int) float64 { // the share of the sum that is not the estimate of the rest
			return math.Exp(found[c].all-truth[c].LogSum) - math.Exp(found[c].rest-truth[c].LogSum)
		}
		if i == 0 { // the rung that leaves most to the estimate
			var factors []float64
			for c, x := range found {
				if share := 1 - kept(c); x.half > 0 && share > 1e-3 {
					factors = append(factors, (math.Log(share)-(x.rest-truth[c].LogSum))/x.half)
				}
			}
			if len(factors) > 0 {
				slices.Sort(factors)
				m.Tail = min(max(factors[len(factors)/2], -2), 4)
			}
		}
		var off []float64
		for c, x := range found {
			e := x.all - truth[c].LogSum
			if i == 0 && x.half > 0 { // which was computed without the factor
				e = math.Log(kept(c) + math.Exp(x.rest-truth[c].LogSum+float64(m.Tail*x.half)))
			}
			off = append(off, math.Abs(e))
		}
		slices.Sort(off)
		m.Rungs[i].LogSumOff = off[(len(off)*95)/100]
	}
	return nil
}

// ascending leaves out rungs that look at fewer labels than one with a smaller budget, or less far, which a
// user with a larger budget does not expect: their mark is lower, so that they score more of the labels
// that they see, or the exact layer answers, which scores none of these. The normal rung stays.
func ascending(rungs []previewing.Rung, normal previewing.Rung) []previewing.Rung {
	var last previewing.Rung
	less := func(a, b previewing.Rung) bool {
		return a.Looked < b.Looked || a.Reach < b.Reach || a.Deviations < b.Deviations
	}
	return slices.DeleteFunc(rungs, func(r previewing.Rung) bool {
		if r != normal && (less(r, last) || r.Kept <= normal.Kept && less(normal, r)) {
			return true
		}
		last = r
		return false
	})
}
