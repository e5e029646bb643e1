package screen

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/softmax"
)

// EvaluateOptions are the options of Evaluate. The zero value is ready.
type EvaluateOptions struct {
	// K lists the k of the P@k wanted, each within 1 and L. nil: 1 and 5, or
	// as many labels as there are.
	K []int
	// Threads is the number of goroutines, 0 for GOMAXPROCS. It does not
	// change the result.
	Threads int
	// Targets, unless nil, holds the label that followed each context, below 0 for
	// none: what Perplexity is of.
	Targets []int64
	// Temperature is the temperature of the probabilities of the targets, above 0 and
	// finite; 0 stands for 1. A model with a logit scale has 1/scale.
	Temperature float64
	// Searcher holds the options of the searchers that are measured.
	Searcher []Option
	// Progress, unless nil, is called with the number of contexts done and
	// the number of all contexts; at the end the two are equal. Calls do not
	// overlap, but come from several goroutines.
	Progress func(done, total int)
}

// Evaluation says how good the answers of a screen are.
type Evaluation struct {
	// Contexts is the number of contexts measured.
	Contexts int
	// Budget is the budget of the searchers.
	Budget float64
	// MeanCandidates is L-bar (Section 3 of the paper): the mean number of candidates of
	// a context. P99Candidates is the 99th percentile of these numbers, the least that 99%
	// of the contexts do not exceed, and MaxCandidates the largest: they tell of the slowest
	// queries.
	MeanCandidates               float64
	P99Candidates, MaxCandidates int
	// Pairs is the number of contexts between two clusters that have a cell together, and
	// Unmet the number of those whose clusters have none.
	Pairs, Unmet int
	// Routing is the number of vectors scanned to find the cluster of a context. Routing +
	// MeanCandidates is the mean number of rows scanned in all if the exact layer answers
	// none; for any k it is Routing + Precision.MeanScored.
	Routing int
	// Perplexity is e to the mean of -log p over the contexts with a target, p the
	// probability that the screen gives to it ([Searcher.LogProbAt]), and ExactPerplexity
	// the same with the probability by the layer. Both are 0 if there are no targets.
	Perplexity, ExactPerplexity float64
	// AtK holds one element for each k of the options, in that order.
	AtK []Precision
	// Ladder has the figures of every budget of the model on these contexts: P@1 and P@k
	// for the largest k of the options, of a searcher without Short, an exact margin and
	// Largest. The intervals are over runs of neighbouring contexts, which are not
	// independent.
	Ladder []Rung
}

// Precision is the quality of the answers with k labels.
type Precision struct {
	// K is k.
	K int
	// Precision is P@k: the mean of |A_k and S_k| / k over the contexts, where
	// A_k are the k labels that the exact layer gives and S_k those that the
	// Searcher gave (Section 4 of the paper).
	Precision float64
	// Exact is the number of contexts that the exact layer answered, see
	// Stats.Exact. Their S_k is that answer.
	Exact int
	// Short is the number of contexts answered with fewer than k labels.
	Short int
	// MeanScored is the mean number of labels that an answer was chosen
	// among: the candidates', or L if the exact layer answered. It is
	// MeanCandidates if Exact is 0.
	MeanScored float64
}

// chunk is the number of contexts that a goroutine of Evaluate takes at once.
const chunk = 64

// Evaluate measures the model m against its layer l on contexts that it was
// not trained on, row-major, n x d, n >= 1.
//
// It returns an error if NewSearcher does, if an option or a context
// is wrong, or if ctx ends before the work does.
func Evaluate(ctx context.Context, m *Model, l *softmax.Layer, contexts []float32, opt EvaluateOptions) (*Evaluation, error) {
	d := m.Dim()
	if len(contexts) == 0 || len(contexts)%d != 0 {
		return nil, fmt.Errorf("screen: contexts: found %d elements, expected a positive multiple of dimension %d", len(contexts), d)
	}
	if opt.Threads < 0 {
		return nil, fmt.Errorf("screen: threads: found %d, expected at least 0", opt.Threads)
	}
	ks := opt.K
	if ks == nil {
		ks = slices.Compact([]int{1, min(5, m.Labels())})
	}
	for _, k := range ks {
		if k < 1 || k > m.Labels() {
			return nil, fmt.Errorf("screen: k: found %d, expected 1 to the %d labels", k, m.Labels())
		}
	}
	n := len(contexts) / d
	if opt.Targets != nil && len(opt.Targets) != n {
		return nil, fmt.Errorf("screen: targets: found %d, expected one for each of %d contexts", len(opt.Targets), n)
	}
	for i, id := range opt.Targets {
		if id >= int64(m.Labels()) {
			return nil, fmt.Errorf("screen: targets: found label %d at %d, expected one below the %d labels", id, i, m.Labels())
		}
	}
	temperature := opt.Temperature
	if temperature == 0 {
		temperature = 1
	}
	if err := checkTemperature(temperature); err != nil {
		return nil, err
	}
	chunks := (n + chunk - 1) / chunk
	logs := make([]targetLogs, chunks) // added up in order, whoever takes a chunk
	sizes := make([]int, n)
	outcomes := make([]Outcome, n)
	threads := parallel.Threads(opt.Threads, chunks)
	// All searchers are made before any work: what is wrong with model and
	// layer is known at once.
	workers := make([]*evaluation, threads)
	for i := range workers {
		s, err := NewSearcher(m, l, opt.Searcher...)
		if err != nil {
			return nil, err
		}
		workers[i] = newEvaluation(s, l, ks)
	}
	var done func(int)
	if opt.Progress != nil {
		done = parallel.Counter(n, func(done int) { opt.Progress(done, n) })
	}
	err := parallel.Each(ctx, threads, n, chunk, done, func(worker, lo, hi int) error {
		for i := lo; i < hi; i++ {
			var err error
			if sizes[i], outcomes[i], err = workers[worker].context(contexts[i*d : (i+1)*d]); err != nil {
				return fmt.Errorf("screen: contexts: row %d: %w", i, err)
			}
			if opt.Targets == nil || opt.Targets[i] < 0 {
				continue
			}
			if err := workers[worker].target(contexts[i*d:(i+1)*d], uint32(opt.Targets[i]), temperature, &logs[i/chunk]); err != nil {
				return fmt.Errorf("screen: contexts: row %d: %w", i, err)
			}
		}
		return nil
	})
	switch {
	case err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return nil, fmt.Errorf("screen: evaluate: %w", context.Cause(ctx))
	case err != nil:
		return nil, err
	}
	total := newTally(len(ks))
	for _, w := range workers {
		total.add(w.tally)
	}
	r := total.result(n, ks)
	r.Routing, r.Budget = m.Clusters(), m.ladder[slices.IndexFunc(workers[0].screened.cuts, func(cut []uint32) bool { return cut != nil })].Budget
	r.Ladder = m.Measure(outcomes, slices.Max(append([]int{1}, ks...)))
	candidates := 0
	for _, size := range sizes {
		candidates += size
	}
	r.MeanCandidates = float64(candidates) / float64(n)
	slices.Sort(sizes)
	r.P99Candidates, r.MaxCandidates = sizes[(99*n+99)/100-1], sizes[n-1]
	var sum targetLogs
	for _, l := range logs {
		sum.n, sum.screened, sum.exact = sum.n+l.n, sum.screened+l.screened, sum.exact+l.exact
	}
	if sum.n > 0 {
		r.Perplexity, r.ExactPerplexity = math.Exp(-sum.screened/float64(sum.n)), math.Exp(-sum.exact/float64(sum.n))
	}
	return r, nil
}

// targetLogs are sums of log-probabilities of targets.
type targetLogs struct {
	n               int
	screened, exact float64
}

// target adds the log-probabilities of the label id in the context h at a temperature.
func (w *evaluation) target(h []float32, id uint32, temperature float64, to *targetLogs) error {
	screened, err := w.screened.LogProbAt(h, id, temperature)
	if err != nil {
		return err
	}
	exact, err := w.full.LogProbAt(h, id, temperature)
	to.n, to.screened, to.exact = to.n+1, to.screened+screened, to.exact+exact
	return err
}

// tally holds counts. Sums of integers do not depend on their order, so that
// neither do the figures on the number of goroutines.
type tally struct {
	pairs, unmet        uint64
	hits, scored        []uint64 // for each k
	exact, shortAnswers []uint64
}

func newTally(ks int) *tally {
	return &tally{
		hits: make([]uint64, ks), scored: make([]uint64, ks),
		exact: make([]uint64, ks), shortAnswers: make([]uint64, ks),
	}
}

func (t *tally) add(o *tally) {
	t.pairs += o.pairs
	t.unmet += o.unmet
	for i := range t.hits {
		t.hits[i] += o.hits[i]
		t.scored[i] += o.scored[i]
		t.exact[i] += o.exact[i]
		t.shortAnswers[i] += o.shortAnswers[i]
	}
}

// result returns the figures for n contexts, without those of their candidates.
func (t *tally) result(n int, ks []int) *Evaluation {
	per := float64(n)
	r := &Evaluation{Contexts: n, Pairs: int(t.pairs), Unmet: int(t.unmet)}
	for i, k := range ks {
		r.AtK = append(r.AtK, Precision{
			K:          k,
			Precision:  float64(t.hits[i]) / (per * float64(k)),
			Exact:      int(t.exact[i]),
			Short:      int(t.shortAnswers[i]),
			MeanScored: float64(t.scored[i]) / per,
		})
	}
	return r
}

// evaluation is what one goroutine of Evaluate has to itself.
type evaluation struct {
	screened      *Searcher
	full          *softmax.Searcher
	labels        int
	ks            []int
	tally         *tally
	exact, answer []softmax.Prediction
	a, b          []uint32
}

func newEvaluation(s *Searcher, l *softmax.Layer, ks []int) *evaluation {
	largest := slices.Max(append([]int{1}, ks...))
	return &evaluation{
		screened: s, full: softmax.NewSearcher(l), labels: l.Labels(), ks: ks, tally: newTally(len(ks)),
		exact: make([]softmax.Prediction, largest), answer: make([]softmax.Prediction, largest),
	}
}

// context measures the answers for the context h, and returns the number of its candidates and
// where its best labels stand.
func (w *evaluation) context(h []float32) (candidates int, o Outcome, err error) {
	s := w.screened
	x, err := s.locate(h, s.rung)
	if err != nil {
		return 0, o, err
	}
	switch {
	case !x.met:
		w.tally.unmet++
	case x.cell >= s.router.ClusterCells():
		w.tally.pairs++
	}
	if _, err := w.full.TopK(w.exact, h); err != nil {
		return 0, o, err
	}
	for j, k := range w.ks {
		a, err := s.Search(w.answer[:k], h, softmax.Request{K: k})
		if err != nil {
			return 0, o, err
		}
		w.tally.hits[j] += uint64(w.common(w.exact[:k], w.answer[:a.Count]))
		if a.Count < k {
			w.tally.shortAnswers[j]++
		}
		if a.Source == softmax.FromLayer {
			w.tally.exact[j]++
			w.tally.scored[j] += uint64(w.labels)
		} else {
			w.tally.scored[j] += uint64(x.n)
		}
	}
	return x.n, s.model.Outcome(x.cell, w.exact), nil
}

// common returns the number of labels that are in both.
func (w *evaluation) common(a, b []softmax.Prediction) int {
	w.a, w.b = sortedIDs(w.a, a), sortedIDs(w.b, b)
	n := 0
	for i, j := 0, 0; i < len(w.a) && j < len(w.b); {
		switch x, y := w.a[i], w.b[j]; {
		case x < y:
			i++
		case x > y:
			j++
		default:
			n, i, j = n+1, i+1, j+1
		}
	}
	return n
}

func sortedIDs(dst []uint32, p []softmax.Prediction) []uint32 {
	dst = dst[:0]
	for _, x := range p {
		dst = append(dst, x.ID)
	}
	slices.Sort(dst)
	return dst
}
