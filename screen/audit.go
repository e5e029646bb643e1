package screen

import "github.com/learning-to-screen/l2s/internal/audit"

// AuditOptions are the options of Pool.Audit. The zero value is ready.
type AuditOptions struct {
	// Share is the part of one core that exact answers may take, at most 1. 0 means 0.02.
	Share float64
	// Alarm, unless nil, is called when an alarm begins, by the goroutine of the audit.
	Alarm func(Alarm)
}

// Audit watches whether the answers of a pool are as precise as the ladder of its model promises.
// It samples queries at random, one in eight. For every sample it compares the place of the context
// among the clusters with the held-out contexts of training. Some samples are also answered
// exactly, in the background, one at a time: the places of their best labels in the list of their
// cell give P@1 and P@k. After [Pool.Swap] the audit watches the new model.
//
// Tests examine the samples one by one, and give an alarm when more labels are missed, or more
// contexts are elsewhere, than allowed. Without such a change the mean time between two alarms is
// at least a week at 1,000 queries per second, because the tests are e-detectors. They assume that,
// given the samples before it, a sample is expected to miss at most the allowed part, and is in a
// bin of the geometry at most as often as the contexts of a stretch of training.
//
// [Pool.Audit] makes one: a zero value has no use, and its methods may panic.
type Audit audit.Audit

// Alarm reports that more labels are missed, or more contexts are elsewhere, than allowed. Of is
// its subject: "P@1", "P@5" for the k of the ladder, or "cosine". Text describes the value
// found and the value expected.
type Alarm = audit.Alarm

// Geometry has a histogram of contexts: Cosine, of the cosines with the vectors of their clusters.
// It has Edges and Shares of bins, and in Most the largest shares that a stretch of such contexts
// may have, since contexts of one text are alike. Training keeps the geometry of held-out contexts
// in the record of the model, for [Pool.Audit].
type Geometry = audit.Geometry

// AuditReport has the results of an audit.
type AuditReport struct {
	// Sampled is the number of queries of this model whose context was examined, and Audited the
	// number of queries that were also answered exactly.
	Sampled, Audited uint64
	// K is the k of PrecisionK.
	K int
	// Precision1 and PrecisionK are P@1 and P@k of the last Window audited queries, with intervals
	// over runs of neighbours, and the Expected ones are the ladder's at the budgets of the
	// queries: 0 if nothing was held out in training, and then there is no alarm of precision.
	Window                int
	Precision1, Expected1 Estimate
	PrecisionK, ExpectedK Estimate
	// Ladder has the precision that each budget would have on these queries.
	Ladder []Rung
	// Geometry is the geometry of training, nil if the model has none; Cosine has the shares of its
	// bins among the last samples, some thousand.
	Geometry *Geometry
	Cosine   []float64
	// Alarms are the alarms that are not over: 2,000 samples of its test without it end an alarm.
	Alarms []Alarm
	// Err is the error of the last exact answer.
	Err error
}

// Audit starts to audit the queries of the pool, in place of an audit that may be under way. The
// caller ends it with Stop. It returns an error if an option does not fit.
func (p *Pool) Audit(o AuditOptions) (*Audit, error) {
	a, err := audit.Start(p.pool(), audit.Options(o))
	return (*Audit)(a), err
}

// Stop ends the audit, and returns when its callback is called no more. Not from the callback.
func (a *Audit) Stop() { (*audit.Audit)(a).Stop() }

// Report returns the results of the audit.
func (a *Audit) Report() AuditReport { return AuditReport((*audit.Audit)(a).Report()) }
