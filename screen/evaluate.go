package screen

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"

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
	// Searcher holds the options of the searchers that are measured.
	Searcher []Option
	// Progress, unless nil, is called with the number of contexts done and
	// that of all contexts; at the end the two are equal. Calls do not
	// overlap, but come from several goroutines.
	Progress func(done, total int)
}

// Evaluation says how good the answers of a screen are.
type Evaluation struct {
	// Contexts is the number of contexts measured.
	Contexts int
	// MeanCandidates is L-bar (Section 3 of the paper): the mean size of the
	// candidate set of a context's cluster, or of its two clusters, see
	// Stats.Candidates.
	MeanCandidates float64
	// Probes is the number of contexts whose candidates were those of two
	// clusters: the lead was below the probe margin, and not below the exact
	// one.
	Probes int
	// MeanRouting is the mean number of cluster and group vectors scanned to
	// find the cluster, see Stats.Routing. MeanRouting + MeanCandidates is the
	// mean number of rows scanned in all where the exact layer answers none;
	// for any k it is MeanRouting + Precision.MeanScored.
	MeanRouting float64
	// AtK holds one element for each k asked for, in that order.
	AtK []Precision
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
	// among: the candidate set's, or L where the exact layer answered. It is
	// MeanCandidates where Exact is 0.
	MeanScored float64
}

// chunk is the number of contexts that a goroutine of Evaluate takes at once.
const chunk = 64

// Evaluate measures the model m against its layer l on contexts that it was
// not trained on, row-major, n x d, n >= 1.
//
// It returns an error where NewSearcher does, where an option or a context
// is wrong, or where ctx ends before the work does.
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
	threads := opt.Threads
	if threads == 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	threads = min(threads, (n+chunk-1)/chunk)

	e := &evaluator{layer: l, contexts: contexts, n: n, ks: ks, progress: opt.Progress, total: newTally(len(ks))}
	// All searchers are made before any work: what is wrong with model and
	// layer is known at once.
	searchers := make([]*Searcher, threads)
	for i := range searchers {
		s, err := NewSearcher(m, l, opt.Searcher...)
		if err != nil {
			return nil, err
		}
		searchers[i] = s
	}
	var wg sync.WaitGroup
	for _, s := range searchers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			e.work(ctx, s)
		}()
	}
	wg.Wait()
	if e.err != nil {
		return nil, e.err
	}
	if e.done < n {
		return nil, fmt.Errorf("screen: evaluate: %w", context.Cause(ctx))
	}
	return e.result(), nil
}

// evaluator is one run of Evaluate. What follows mu is guarded by it.
type evaluator struct {
	layer    *softmax.Layer
	contexts []float32
	n        int
	ks       []int
	progress func(done, total int)

	mu    sync.Mutex
	next  int // first context that no goroutine took
	done  int // contexts finished
	total *tally
	err   error // of the lowest row that has one
	row   int   // that row
}

// tally holds counts. Sums of integers do not depend on their order, so that
// neither do the figures on the number of goroutines.
type tally struct {
	candidates, routing, probes uint64
	hits, scored                []uint64 // for each k
	exact, shortAnswers         []uint64
}

func newTally(ks int) *tally {
	return &tally{
		hits: make([]uint64, ks), scored: make([]uint64, ks),
		exact: make([]uint64, ks), shortAnswers: make([]uint64, ks),
	}
}

func (t *tally) add(o *tally) {
	t.candidates += o.candidates
	t.routing += o.routing
	t.probes += o.probes
	for i := range t.hits {
		t.hits[i] += o.hits[i]
		t.scored[i] += o.scored[i]
		t.exact[i] += o.exact[i]
		t.shortAnswers[i] += o.shortAnswers[i]
	}
}

// work takes chunks of contexts until there are no more. Chunks are taken in
// order and a chunk once taken is finished, so that of several bad rows it is
// always the lowest that is reported.
func (e *evaluator) work(ctx context.Context, s *Searcher) {
	largest := 0
	for _, k := range e.ks {
		largest = max(largest, k)
	}
	w := &evaluation{
		evaluator: e, searcher: s, query: softmax.NewQuery(s.model.Dim()), tally: newTally(len(e.ks)),
		exact: make([]softmax.Prediction, largest), answer: make([]softmax.Prediction, largest),
	}
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.total.add(w.tally)
	}()
	for ctx.Err() == nil {
		first, last := e.take()
		for i := first; i < last; i++ {
			if err := w.context(i); err != nil {
				e.fail(i, err)
				return
			}
		}
		if first == last {
			return
		}
		e.finish(last - first)
	}
}

// take returns the next chunk, empty where there is none or the run failed.
func (e *evaluator) take() (first, last int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return 0, 0
	}
	first = e.next
	last = min(first+chunk, e.n)
	e.next = last
	return first, last
}

func (e *evaluator) finish(contexts int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.done += contexts
	if e.progress != nil {
		e.progress(e.done, e.n)
	}
}

func (e *evaluator) fail(row int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil || row < e.row {
		e.err, e.row = fmt.Errorf("screen: contexts: row %d: %w", row, err), row
	}
}

func (e *evaluator) result() *Evaluation {
	n := float64(e.n)
	r := &Evaluation{Contexts: e.n, MeanCandidates: float64(e.total.candidates) / n, MeanRouting: float64(e.total.routing) / n, Probes: int(e.total.probes)}
	for i, k := range e.ks {
		r.AtK = append(r.AtK, Precision{
			K:          k,
			Precision:  float64(e.total.hits[i]) / (n * float64(k)),
			Exact:      int(e.total.exact[i]),
			Short:      int(e.total.shortAnswers[i]),
			MeanScored: float64(e.total.scored[i]) / n,
		})
	}
	return r
}

// evaluation is what one goroutine of a run has to itself.
type evaluation struct {
	*evaluator
	searcher      *Searcher
	query         *softmax.Query
	tally         *tally
	exact, answer []softmax.Prediction
	a, b          []uint32
}

// context measures the answers for context i.
func (w *evaluation) context(i int) error {
	d := w.layer.Dim()
	h := w.contexts[i*d : (i+1)*d]
	if err := w.query.Set(h); err != nil {
		return err
	}
	w.layer.TopK(w.exact, w.query)
	if err := w.searcher.query.Set(h); err != nil {
		return err
	}
	f := w.searcher.find()
	set := len(f.set)
	w.tally.candidates += uint64(set)
	w.tally.routing += uint64(f.rows)
	if f.both {
		w.tally.probes++
	}
	for j, k := range w.ks {
		before := w.searcher.Stats()
		n, err := w.searcher.TopK(w.answer[:k], h)
		if err != nil {
			return err
		}
		after := w.searcher.Stats()
		w.tally.hits[j] += uint64(w.common(w.exact[:k], w.answer[:n]))
		w.tally.exact[j] += after.Exact - before.Exact
		w.tally.shortAnswers[j] += after.Short - before.Short
		if after.Exact > before.Exact {
			w.tally.scored[j] += uint64(w.layer.Labels())
		} else {
			w.tally.scored[j] += uint64(set)
		}
	}
	return nil
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
