package softmax

import "github.com/learning-to-screen/l2s/kernels"

// Prediction is one label and its logit x_s = w_s.h + b_s.
type Prediction struct {
	ID    uint32
	Logit float64
}

// before orders predictions by larger logit, ties by the lower id.
func (p Prediction) before(o Prediction) bool {
	return p.Logit > o.Logit || p.Logit == o.Logit && p.ID < o.ID
}

// maxSurvivors is the share of rows above which re-scoring them one by one
// is dearer than the dense reference scan.
const maxSurvivors = 0.5

// TopK writes the labels with the k = len(dst) largest logits to dst in
// order, and returns their number, the smaller of k and L. It is exact.
func (l *Layer) TopK(dst []Prediction, q *Query) int {
	h := q.vector(l)
	k := min(len(dst), l.labels)
	if k == 0 {
		return 0
	}
	if ids, ok := l.survivors(k, q, nil); ok {
		q.logits = grow(q.logits, len(ids))
		kernels.RefGatherDot(q.logits, l.weights, l.bias, ids, h)
		selectTop(dst[:k], ids, q.logits)
		return k
	}
	q.logits = grow(q.logits, l.labels)
	kernels.RefScan(q.logits, l.weights, l.bias, h)
	selectTop(dst[:k], nil, q.logits)
	return k
}

// TopKOf is TopK among the labels ids, which must be distinct: it returns
// the smaller of k and len(ids).
func (l *Layer) TopKOf(dst []Prediction, q *Query, ids []uint32) int {
	h := q.vector(l)
	k := min(len(dst), len(ids))
	if k == 0 {
		return 0
	}
	if left, ok := l.survivors(k, q, ids); ok {
		ids = left
	}
	q.logits = grow(q.logits, len(ids))
	kernels.RefGatherDot(q.logits, l.weights, l.bias, ids, h)
	selectTop(dst[:k], ids, q.logits)
	return k
}

// Argmax returns the label with the largest logit, the lowest of equals.
func (l *Layer) Argmax(q *Query) uint32 {
	var best [1]Prediction
	l.TopK(best[:], q)
	return best[0].ID
}

// survivors returns the labels, of all or of ids, that the error envelope
// cannot exclude from the k largest; false where there is no envelope or
// too many survive it. The result is scratch of q.
func (l *Layer) survivors(k int, q *Query, ids []uint32) ([]uint32, bool) {
	if l.codes == nil || q.fit != kernels.Certified {
		return nil, false
	}
	n := l.labels
	if ids != nil {
		n = len(ids)
	}
	q.lower, q.upper = grow(q.lower, n), grow(q.upper, n)
	if ids == nil {
		l.codes.Bounds(q.lower, q.upper, q.vec)
	} else {
		l.codes.GatherBounds(q.lower, q.upper, ids, q.vec)
	}
	// k rows have a logit of at least the k-th largest lower end.
	q.ids, q.scores = grow(q.ids, n), grow(q.scores, n)
	kernels.TopK(q.ids[:k], q.scores[:k], q.lower)
	threshold := q.scores[k-1]
	m := kernels.SelectAtLeast(q.ids, q.upper, threshold)
	if float64(m) > maxSurvivors*float64(n) && m > k {
		return nil, false
	}
	left := q.ids[:m]
	if ids != nil {
		for j, at := range left {
			left[j] = ids[at]
		}
	}
	return left, true
}

// selectTop fills dst with the best of the labels ids, or 0, 1, ... where
// ids is nil, whose logits are given. There are at least len(dst) of them.
func selectTop(dst []Prediction, ids []uint32, logits []float64) {
	at := func(i int) Prediction {
		if ids != nil {
			return Prediction{ids[i], logits[i]}
		}
		return Prediction{uint32(i), logits[i]}
	}
	// dst is a heap with the worst prediction at the root.
	for i := range dst {
		dst[i] = at(i)
	}
	for i := len(dst)/2 - 1; i >= 0; i-- {
		siftDown(dst, i)
	}
	for i := len(dst); i < len(logits); i++ {
		if p := at(i); p.before(dst[0]) {
			dst[0] = p
			siftDown(dst, 0)
		}
	}
	for n := len(dst) - 1; n > 0; n-- {
		dst[0], dst[n] = dst[n], dst[0]
		siftDown(dst[:n], 0)
	}
}

func siftDown(heap []Prediction, i int) {
	for {
		c := 2*i + 1
		if c >= len(heap) {
			return
		}
		if c+1 < len(heap) && heap[c].before(heap[c+1]) {
			c++
		}
		if heap[c].before(heap[i]) {
			return
		}
		heap[i], heap[c] = heap[c], heap[i]
		i = c
	}
}
