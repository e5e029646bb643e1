package l2s

import (
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/watch/audit"
)

// Pool answers requests for all goroutines, and changes its layer and its index while they ask. Its
// methods give the answers of a [Searcher], bit for bit.
//
// A layer with its index is a generation. A query ends with the generation that it began with, and
// a query that begins after [Pool.Swap] has returned uses the new one.
//
// A query borrows a searcher, and no lock is held while it runs. A pool makes a searcher per
// concurrent query, and keeps them, with their counts: a query allocates nothing unless it makes a
// searcher, or a searcher grows as its type describes.
//
// [NewPool] makes one: a zero value has no use, and its methods may panic.
type Pool engine.Pool

func (p *Pool) pool() *engine.Pool { return (*engine.Pool)(p) }

// NewPool returns a pool over the layer l with the index x, nil for the exact search. Errors are as
// from [NewSearcher].
func NewPool(l *Layer, x *Index, o Options) (*Pool, error) {
	p, err := engine.NewPool(l.layer(), x.index(), o.options())
	return (*Pool)(p), err
}

// Swap makes l and x the layer and the index of all queries that begin after it has returned. Before
// any query uses them, it makes the number of searchers that the pool has, at least one. The channel
// is closed when the last query with the old layer and the old index has ended. Then their memory
// can be released, as by [Layer.Close].
//
// Errors are as from [NewSearcher]. After an error the pool is as it was.
func (p *Pool) Swap(l *Layer, x *Index) (drained <-chan struct{}, err error) {
	return p.pool().Swap(l.layer(), x.index())
}

// Stats returns the counts of TopK, Search and SearchBatch since NewPool, over all generations. The
// counts never fall: the difference of two calls has the counts between them.
func (p *Pool) Stats() Stats { return Stats(p.pool().Stats()) }

// Do lends f a searcher, for as long as f runs: for several queries of one generation, and for the
// methods of a Searcher that a Pool does not have. [Searcher.Index] tells the generations apart. The
// searcher's own Stats begin at 0. A channel of Swap waits for f, so f must not wait for the
// channel.
//
// Do returns the error of f. The searcher is not used again after a panic, or after an error that is
// neither [ErrContext] nor [ErrRequest].
func (p *Pool) Do(f func(s *Searcher) error) error {
	return p.pool().Do(func(s *engine.Searcher) error { return f((*Searcher)(s)) })
}

// TopK is [Searcher.TopK].
func (p *Pool) TopK(dst []Prediction, h []float32) (n int, err error) {
	a, err := p.Search(dst, h, Request{})
	return a.Count, err
}

// Search is [Searcher.Search].
func (p *Pool) Search(dst []Prediction, h []float32, r Request) (a Answer, err error) {
	err = p.Do(func(s *Searcher) (err error) {
		a, err = s.Search(dst, h, r)
		return err
	})
	return a, err
}

// SearchBatch is [Searcher.SearchBatch]. One generation answers all contexts.
func (p *Pool) SearchBatch(dst []Prediction, answers []Answer, contexts []float32, r Request) error {
	return p.Do(func(s *Searcher) error { return s.SearchBatch(dst, answers, contexts, r) })
}

// LogProb is [Searcher.LogProb].
func (p *Pool) LogProb(h []float32, id uint32, temperature float64) (float64, error) {
	var x float64
	err := p.Do(func(s *Searcher) (err error) {
		x, err = s.LogProb(h, id, temperature)
		return err
	})
	return x, err
}

// AuditOptions are the options of [Pool.Audit]. The zero value is ready.
type AuditOptions struct {
	// Share is the part of one core that exact answers may take, at most 1. 0 means 0.02.
	Share float64
	// Alarm, unless nil, is called when an alarm begins, by the goroutine of the audit.
	Alarm func(Alarm)
}

// Audit watches whether the answers of a pool are as precise as the steps of its index promise. It
// samples queries at random, one in eight. Some samples are also answered exactly, in the
// background, one at a time, which gives P@1 and P@k. For every sample by a screen it compares the
// place of the context among the clusters with the held-out contexts of training, too. After
// [Pool.Swap] the audit watches the new index; the exact search gives it nothing to watch.
//
// Tests examine the samples one by one, and give an alarm when more labels are missed, or more
// contexts are elsewhere, than allowed. Without such a change the mean time between two alarms is
// at least a week at 1,000 queries per second, because the tests are e-detectors. They assume that,
// given the samples before it, a sample is expected to miss at most the allowed part, and is in a
// bin of the cosines at most as often as the contexts of a stretch of training.
//
// [Pool.Audit] makes one: a zero value has no use, and its methods may panic.
type Audit audit.Audit

// Alarm reports that more labels are missed, or more contexts are elsewhere, than allowed.
type Alarm struct {
	Of   string // the subject: "P@1", "P@5" for the k of the steps, or "cosine"
	Text string // the value found and the value expected
}

// AuditReport has the results of an audit since its index answers.
type AuditReport struct {
	// Sampled is the number of queries that were examined, and Audited the number of queries that
	// were also answered exactly.
	Sampled, Audited uint64
	// K is the k of PrecisionK.
	K int
	// Precision1 and PrecisionK are P@1 and P@k of the last Window audited queries, with intervals
	// over runs of neighbours, and the Expected ones are the index's at the budgets of the queries: 0
	// if nothing was held out in its making, and then there is no alarm of precision. All are 0 while
	// Window is 0.
	Window                int
	Precision1, Expected1 Estimate
	PrecisionK, ExpectedK Estimate
	// Steps has the precision that each budget of a screen would have on these queries. Nil for a
	// preview.
	Steps []Step
	// Cosines has the bins of the cosines of contexts and the vectors of their clusters, in ascending
	// order. Nil for a preview, and for a screen whose training kept none.
	Cosines []Bin
	// Alarms are the alarms that are not over: 2,000 samples of its test without it end an alarm.
	Alarms []Alarm
	// Err is the error of the last exact answer.
	Err error
}

// Bin has the shares of contexts whose cosine is from Low on and below High.
type Bin struct {
	Low, High float64
	Expected  float64 // the share of the held-out contexts of training
	Most      float64 // the largest share that a stretch of such contexts may have
	Found     float64 // the share of the last samples, some thousand
}

// Audit starts to audit the queries of the pool, in place of an audit that may be under way. The
// caller ends it with Stop. It returns an error if an option does not fit.
func (p *Pool) Audit(o AuditOptions) (*Audit, error) {
	in := audit.Options{Share: o.Share}
	if o.Alarm != nil {
		in.Alarm = func(a audit.Alarm) { o.Alarm(Alarm(a)) }
	}
	a, err := audit.Start(p.pool(), in)
	return (*Audit)(a), err
}

// Stop ends the audit, and returns when its callback is called no more. Not from the callback.
func (a *Audit) Stop() { (*audit.Audit)(a).Stop() }

// Report returns the results of the audit.
func (a *Audit) Report() AuditReport {
	in := (*audit.Audit)(a).Report()
	r := AuditReport{
		Sampled: in.Sampled, Audited: in.Audited, K: in.K, Window: in.Window, Err: in.Err,
		Precision1: Estimate(in.Precision1), Expected1: Estimate(in.Expected1),
		PrecisionK: Estimate(in.PrecisionK), ExpectedK: Estimate(in.ExpectedK),
	}
	for _, s := range in.Steps() {
		r.Steps = append(r.Steps, stepOf(s))
	}
	for _, b := range in.Bins() {
		r.Cosines = append(r.Cosines, Bin(b))
	}
	for _, x := range in.Alarms {
		r.Alarms = append(r.Alarms, Alarm(x))
	}
	return r
}
