package softmax

import "github.com/learning-to-screen/l2s/kernels"

// TopKFloat32 is TopK by a dense float32 scan, the plain form of the layer:
// logits are rounded to float32, sums are ordered as the level likes, so that
// near-ties may fall either way and levels may differ. It is the baseline of
// every speedup.
func (l *Layer) TopKFloat32(dst []Prediction, q *Query) int {
	q.check(l)
	q.lower = grow(q.lower, l.labels)
	kernels.Scan(q.lower, l.weights, l.bias, q.vec.Vector())
	return q.selectFloat32(dst, nil)
}

// TopKOfFloat32 is TopKOf by a float32 gather-dot over the labels ids, the
// paper's second step as it stands. Precision is that of TopKFloat32.
func (l *Layer) TopKOfFloat32(dst []Prediction, q *Query, ids []uint32) int {
	q.check(l)
	q.lower = grow(q.lower, len(ids))
	kernels.GatherDot(q.lower, l.weights, l.bias, ids, q.vec.Vector())
	return q.selectFloat32(dst, ids)
}

// ArgmaxFloat32 is Argmax of w_s.h in float32, without the bias, the paper's
// first step as it stands. Precision is that of TopKFloat32.
func (l *Layer) ArgmaxFloat32(q *Query) uint32 {
	q.check(l)
	t, _ := kernels.ArgmaxDot(l.weights, q.vec.Vector())
	return uint32(t)
}

// TopKLogSumExpFloat32 is TopKOfFloat32 among the labels ids, or TopKFloat32
// where ids is nil, and returns beside the number of predictions the log of the
// sum of e^x over the same labels, with their logits in float32: -Inf over none.
// Precision is that of TopKFloat32. It is the plain form of a step of beam search.
func (l *Layer) TopKLogSumExpFloat32(dst []Prediction, q *Query, ids []uint32) (n int, lse float64) {
	if ids == nil {
		n = l.TopKFloat32(dst, q)
	} else {
		n = l.TopKOfFloat32(dst, q, ids)
	}
	q.wide = grow(q.wide, len(q.lower))
	for i, x := range q.lower {
		q.wide[i] = float64(x)
	}
	return n, kernels.LogSumExp(q.wide)
}

// selectFloat32 writes the best of the scores in q.lower to dst.
func (q *Query) selectFloat32(dst []Prediction, ids []uint32) int {
	k := min(len(dst), len(q.lower))
	q.ids, q.scores = grow(q.ids, k), grow(q.scores, k)
	kernels.TopK(q.ids[:k], q.scores[:k], q.lower)
	for i := range k {
		id := q.ids[i]
		if ids != nil {
			id = ids[id]
		}
		dst[i] = Prediction{id, float64(q.scores[i])}
	}
	return k
}
