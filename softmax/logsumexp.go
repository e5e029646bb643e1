package softmax

import "github.com/learning-to-screen/l2s/kernels"

// TopKLogSumExp answers each of the queries with the k labels of the largest
// logits among ids, or among all labels where ids is nil, and with the log of
// the sum of e^x over the same labels: the logarithm of a label's probability
// among them is its logit minus that. dst has k elements a query, those of
// query i start at i*k, and are the same bits as those of TopKBatch and
// TopKOfBatch. lse has one element a query. ids must be distinct, the queries
// too; k is at most the number of labels that are searched, and may be 0. The
// sum over no labels is -Inf.
//
// The sum is not that of the reference arithmetic, which would cost several
// times the search. Labels that may be among the k largest count with their
// logits, all others with the centre of the interval that the int8 codes give.
// Where a share p of the sum belongs to the others, and no interval of theirs
// is wider than 2e, the result is off by at most log(1 + p(exp(e) - 1)), about
// p*e: little where the k largest hold most of the probability. In practice
// roundings cancel and the error is far below that. It is the same bits on
// every CPU, but depends on k. LogProbs and LogProbsOf are exact.
func (l *Layer) TopKLogSumExp(dst []Prediction, lse []float64, k int, qs []*Query, ids []uint32) {
	n := l.labels
	if ids != nil {
		n = len(ids)
	}
	switch {
	case k < 0 || k > n:
		panic("softmax: k is negative or larger than the number of labels")
	case len(dst) != k*len(qs):
		panic("softmax: length of dst is not k times the number of queries")
	case len(lse) != len(qs):
		panic("softmax: length of lse differs from the number of queries")
	}
	certified := true
	for _, q := range qs {
		q.check(l)
		certified = certified && l.certifies(q)
	}
	for len(qs) > 0 {
		m := min(len(qs), kernels.BatchContexts)
		if !certified {
			m = 1
		}
		l.topKLogSumExp(dst[:k*m], lse[:m], k, qs[:m], ids, n)
		dst, lse, qs = dst[k*m:], lse[m:], qs[m:]
	}
}

// topKLogSumExp is TopKLogSumExp for as many queries as share the load of a
// row; n is the number of labels that are searched.
func (l *Layer) topKLogSumExp(dst []Prediction, lse []float64, k int, qs []*Query, ids []uint32, n int) {
	q := qs[0]
	if len(qs) == 1 && !l.certifies(q) {
		lse[0] = l.scoreAll(dst, q, ids, n)
		return
	}
	q.lower, q.upper = grow(q.lower, len(qs)*n), grow(q.upper, len(qs)*n)
	var vecs [kernels.BatchContexts]*kernels.Int8Vector
	for c, qc := range qs {
		vecs[c] = qc.vec
	}
	switch {
	case ids != nil:
		l.codes.GatherBoundsBatch(q.lower, q.upper, ids, vecs[:len(qs)])
	default:
		l.codes.BoundsBatch(q.lower, q.upper, vecs[:len(qs)])
	}
	for c, qc := range qs {
		lse[c] = l.finishLogSumExp(dst[c*k:(c+1)*k], qc, ids, q.lower[c*n:(c+1)*n], q.upper[c*n:(c+1)*n])
	}
}

// finishLogSumExp is finish, and returns the log of the sum.
func (l *Layer) finishLogSumExp(dst []Prediction, q *Query, ids []uint32, lower, upper []float32) float64 {
	var at []uint32
	if len(dst) > 0 {
		at = q.survivors(len(dst), lower, upper)
	}
	// Where more are left, all are scored: sets of all labels and the whole
	// layer must take the same decision.
	if float64(len(at)) > maxSurvivors*float64(len(lower)) {
		return l.scoreAll(dst, q, ids, len(lower))
	}
	q.wide = grow(q.wide, len(lower))
	for i, low := range lower {
		q.wide[i] = (float64(low) + float64(upper[i])) * 0.5
	}
	if len(at) > 0 {
		left := at
		if ids != nil {
			q.first = append(q.first[:0], at...)
			for j, i := range at {
				left[j] = ids[i]
			}
			at = q.first
		}
		l.rescore(dst, q, left)
		for j, i := range at {
			q.wide[i] = q.logits[j]
		}
	}
	return kernels.LogSumExp(q.wide)
}

// scoreAll fills dst with the best of the labels ids, of all n where ids is
// nil, by the reference arithmetic, and returns the log of the sum.
func (l *Layer) scoreAll(dst []Prediction, q *Query, ids []uint32, n int) float64 {
	q.logits = grow(q.logits, n)
	if ids == nil {
		kernels.RefScan(q.logits, l.weights, l.bias, q.vec.Vector())
	} else {
		kernels.RefGatherDot(q.logits, l.weights, l.bias, ids, q.vec.Vector())
	}
	selectTop(dst, ids, q.logits)
	return kernels.LogSumExp(q.logits)
}
