package screen

import "github.com/learning-to-screen/l2s/internal/screening"

// AuditOptions are the options of Pool.Audit. The zero value is ready.
type AuditOptions struct {
	// Share is the part of one core that exact answers may take, at most 1. 0 stands for 0.02.
	Share float64
	// Alarm, unless nil, is called when an alarm begins, by the goroutine of the audit.
	Alarm func(Alarm)
}

// Audit watches whether the answers of a pool are as precise as the ladder of its model says.
// It samples queries at random, one in eight. Of every sample it looks at how the context lies to
// its clusters, beside what training kept of held-out contexts. Some are
// answered exactly as well, in the background, one at a time: where their best labels stand in the
// list of their cell gives P@1 and P@k. It goes over to the new model after [Pool.Swap].
//
// Tests look at the samples one by one, and give an alarm when more is missed, or lies elsewhere, than
// is allowed. While that is not so, the mean time between two alarms is at least a week at 1,000 queries a second, whatever is
// looked at: the tests are e-detectors. What is assumed is this: given the samples before it, a
// sample is expected to miss at most what is allowed, and lies in a bin of the geometry at
// most as often as the contexts of a stretch of training's do.
type Audit screening.Audit

// Alarm reports that more is missed, or that contexts lie elsewhere, than is allowed. Of is its
// subject: "P@1", "P@5" for the k of the ladder, "cosine" or "lead". Text has what was found and
// what was expected.
type Alarm = screening.Alarm

// Geometry holds two histograms of contexts: Cosine, of the cosines with the vectors of their
// clusters, and Lead, of the leads of the best clusters over the second best, which is empty if
// there is one cluster. Each has Edges and Shares of bins, and in Most the largest shares that a
// stretch of such contexts may have, since contexts of one text are alike. Training keeps the
// geometry of held-out contexts in the record of the model, for [Pool.Audit].
type Geometry = screening.Geometry

// AuditReport is what an audit knows.
type AuditReport struct {
	// Sampled is the number of queries of this model whose context was looked at, and Audited the
	// number of those that were answered exactly too.
	Sampled, Audited uint64
	// K is the k of PrecisionK.
	K int
	// Precision1 and PrecisionK are P@1 and P@k of the last Window audited queries, with intervals
	// over runs of neighbours, and the Expected ones are those of the ladder at the budgets that the queries
	// had: 0 if nothing was held out in training, and then there is no alarm of precision.
	Window                int
	Precision1, Expected1 Estimate
	PrecisionK, ExpectedK Estimate
	// Ladder is what each budget would give on these queries.
	Ladder []Rung
	// Geometry is that of training, nil if the model does not say it; Cosine and Lead are the shares of
	// its bins among the last samples, some thousand.
	Geometry     *Geometry
	Cosine, Lead []float64
	// Alarms are those that are not over: 2,000 samples of its test without it end an alarm.
	Alarms []Alarm
	// Err is the error of the last exact answer.
	Err error
}

// Audit starts to audit the queries of the pool, in place of an audit that may be under way. The caller
// ends it with Stop. It returns an error if an option does not fit.
func (p *Pool) Audit(o AuditOptions) (*Audit, error) {
	a, err := p.pool().Audit(screening.AuditOptions(o))
	return (*Audit)(a), err
}

func (a *Audit) audit() *screening.Audit { return (*screening.Audit)(a) }

// Stop ends the audit, and returns when its callback is called no more. Not from the callback.
func (a *Audit) Stop() { a.audit().Stop() }

// Report returns what the audit knows.
func (a *Audit) Report() AuditReport { return AuditReport(a.audit().Report()) }
