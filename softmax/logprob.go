package softmax

import "github.com/learning-to-screen/l2s/kernels"

// LogProbs writes log p_s = x_s - log sum_l e^x_l, the log-softmax over all
// labels, to dst, which has L elements. Logits are those of the reference
// arithmetic; the result has the same bits on every CPU.
func (l *Layer) LogProbs(dst []float64, q *Query) {
	if len(dst) != l.labels {
		panic("softmax: length of dst differs from the number of labels")
	}
	q.check(l)
	kernels.RefScan(dst, l.weights, l.bias, q.vec.Vector())
	normalise(dst)
}

// LogProbsOf writes the log-softmax over the labels ids alone to dst, which
// has len(ids) elements: probabilities outside the subset count as zero
// (Section 4 of the paper, beam search).
func (l *Layer) LogProbsOf(dst []float64, q *Query, ids []uint32) {
	q.check(l)
	if len(dst) != len(ids) {
		panic("softmax: length of dst differs from the number of ids")
	}
	kernels.RefGatherDot(dst, l.weights, l.bias, ids, q.vec.Vector())
	normalise(dst)
}

func normalise(logits []float64) {
	lse := kernels.LogSumExp(logits)
	for i := range logits {
		logits[i] -= lse
	}
}
