package softmax

import (
	"math"

	"github.com/learning-to-screen/l2s/kernels"
)

// Prediction is one label and its logit x_s = w_s.h + b_s.
type Prediction struct {
	ID    uint32
	Logit float64
}

// before orders predictions by larger logit, ties by the lower id.
func (p Prediction) before(o Prediction) bool {
	return p.Logit > o.Logit || p.Logit == o.Logit && p.ID < o.ID
}

// maxCoarse is the share of rows that may survive the pass over 4-bit codes;
// where more do, a scan of all 8-bit codes is cheaper than a gather.
const maxCoarse = 0.25

// coarseSkips is the number of searches that go without the pass over 4-bit
// codes after one in which it was in vain: on data without structure it always
// is. The answers are the same.
const coarseSkips = 31

// maxSurvivors is the share of rows above which the dense reference scan is
// cheaper than re-scoring the survivors one by one.
const maxSurvivors = 0.5

// TopK writes the labels with the k = len(dst) largest logits to dst in
// order, and returns their number, the smaller of k and L. It is exact.
func (l *Layer) TopK(dst []Prediction, q *Query) int {
	q.check(l)
	k := min(len(dst), l.labels)
	if k == 0 {
		return 0
	}
	if !l.certifies(q) {
		return l.denseTopK(dst[:k], q)
	}
	q.lower, q.upper = grow(q.lower, l.labels), grow(q.upper, l.labels)
	if l.coarse != nil && q.skip == 0 {
		l.coarse.Bounds(q.lower, q.upper, q.vec)
		ids := q.survivors(k, q.lower, q.upper)
		if float64(len(ids)) <= maxCoarse*float64(l.labels) {
			// ids is scratch that the next pass writes to.
			q.first = append(q.first[:0], ids...)
			return l.TopKOf(dst[:k], q, q.first)
		}
		q.skip = coarseSkips
	} else if q.skip > 0 {
		q.skip--
	}
	l.codes.Bounds(q.lower, q.upper, q.vec)
	return l.finish(dst[:k], q, nil, q.lower, q.upper)
}

// TopKOf is TopK among the labels ids, which must be distinct: it returns
// the smaller of k and len(ids).
func (l *Layer) TopKOf(dst []Prediction, q *Query, ids []uint32) int {
	q.check(l)
	k := min(len(dst), len(ids))
	if k == 0 {
		return 0
	}
	if !l.certifies(q) {
		return l.rescore(dst[:k], q, ids)
	}
	q.lower, q.upper = grow(q.lower, len(ids)), grow(q.upper, len(ids))
	l.codes.GatherBounds(q.lower, q.upper, ids, q.vec)
	return l.finish(dst[:k], q, ids, q.lower, q.upper)
}

// Argmax returns the label with the largest logit, the lowest of equals.
func (l *Layer) Argmax(q *Query) uint32 {
	var best [1]Prediction
	l.TopK(best[:], q)
	return best[0].ID
}

// TopKBatch is TopK for several contexts, reading each row once for up to
// four of them, and from memory once for all. dst has k elements a query, k at most L; those of query i
// start at i*k. The answers are the same bits as those of TopK. The queries
// must be distinct.
func (l *Layer) TopKBatch(dst []Prediction, k int, qs []*Query) {
	if k > l.labels {
		panic("softmax: k is larger than the number of labels")
	}
	l.batch(dst, k, qs, nil, l.labels)
}

// TopKOfBatch is TopKOf for several contexts, as TopKBatch is TopK; k is at
// most len(ids).
func (l *Layer) TopKOfBatch(dst []Prediction, k int, qs []*Query, ids []uint32) {
	if k > len(ids) {
		panic("softmax: k is larger than the number of ids")
	}
	l.batch(dst, k, qs, ids, len(ids))
}

func (l *Layer) batch(dst []Prediction, k int, qs []*Query, ids []uint32, n int) {
	if len(dst) != k*len(qs) {
		panic("softmax: length of dst is not k times the number of queries")
	}
	certified := true
	for _, q := range qs {
		q.check(l)
		certified = certified && l.certifies(q)
	}
	if k == 0 {
		return
	}
	if !certified {
		// Rare, and no faster together.
		for i, q := range qs {
			if ids == nil {
				l.TopK(dst[i*k:(i+1)*k], q)
			} else {
				l.TopKOf(dst[i*k:(i+1)*k], q, ids)
			}
		}
		return
	}
	if tile := max(minTile, tileBytes/kernels.Int8Stride(l.dim)); n > tile && k <= maxTiledK {
		l.tiledBatch(dst, k, qs, ids, n, tile)
		return
	}
	for len(qs) > 0 {
		m := min(len(qs), kernels.BatchContexts)
		var vecs [kernels.BatchContexts]*kernels.Int8Vector
		for c, q := range qs[:m] {
			vecs[c] = q.vec
		}
		q := qs[0]
		q.lower, q.upper = grow(q.lower, m*n), grow(q.upper, m*n)
		if ids == nil {
			l.codes.BoundsBatch(q.lower, q.upper, vecs[:m])
		} else {
			l.codes.GatherBoundsBatch(q.lower, q.upper, ids, vecs[:m])
		}
		for c, qc := range qs[:m] {
			l.finish(dst[c*k:(c+1)*k], qc, ids, q.lower[c*n:(c+1)*n], q.upper[c*n:(c+1)*n])
		}
		dst, qs = dst[m*k:], qs[m:]
	}
}

const (
	// tileBytes is the size of the codes that stay in the second-level cache
	// while the contexts of a batch pass.
	tileBytes = 1 << 17
	// minTile and maxTiledK are the sizes for which kernels.KthBound has an
	// answer.
	minTile   = 64
	maxTiledK = 16
)

// tiledBatch is batch for more rows than a tile has, among n rows. Of each tile
// it keeps the rows that may be among the best k of all, by a threshold that k
// rows so far reach, so that no more than a tile of intervals is ever held.
// The rows kept hold the k largest lower ends, and so the same survivors as all.
func (l *Layer) tiledBatch(dst []Prediction, k int, qs []*Query, ids []uint32, n, tile int) {
	for _, q := range qs {
		q.first, q.lower, q.upper, q.threshold = q.first[:0], q.lower[:0], q.upper[:0], float32(math.Inf(-1))
	}
	scratch := qs[0]
	scratch.tileLower = grow(scratch.tileLower, tile*kernels.BatchContexts)
	scratch.tileUpper = grow(scratch.tileUpper, tile*kernels.BatchContexts)
	scratch.ids = grow(scratch.ids, tile)
	for at := 0; at < n; at += tile {
		size := min(tile, n-at)
		rows := l.codes.Part(0, l.labels)
		if ids == nil {
			rows = l.codes.Part(at, at+size)
		}
		for rest := qs; len(rest) > 0; {
			m := min(len(rest), kernels.BatchContexts)
			var vecs [kernels.BatchContexts]*kernels.Int8Vector
			for c, q := range rest[:m] {
				vecs[c] = q.vec
			}
			lower, upper := scratch.tileLower[:m*size], scratch.tileUpper[:m*size]
			if ids == nil {
				rows.BoundsBatch(lower, upper, vecs[:m])
			} else {
				rows.GatherBoundsBatch(lower, upper, ids[at:at+size], vecs[:m])
			}
			for c, q := range rest[:m] {
				lower, upper := lower[c*size:(c+1)*size], upper[c*size:(c+1)*size]
				if bound, ok := kernels.KthBound(lower, k); ok {
					q.threshold = max(q.threshold, bound)
				}
				for _, j := range scratch.ids[:kernels.SelectAtLeast(scratch.ids, upper, q.threshold)] {
					id := uint32(at) + j
					if ids != nil {
						id = ids[id]
					}
					q.first, q.lower, q.upper = append(q.first, id), append(q.lower, lower[j]), append(q.upper, upper[j])
				}
			}
			rest = rest[m:]
		}
	}
	for c, q := range qs {
		part := dst[c*k : (c+1)*k]
		if ids == nil && float64(len(q.first)) > maxSurvivors*float64(n) {
			l.denseTopK(part, q)
			continue
		}
		l.finish(part, q, q.first, q.lower, q.upper)
	}
}

// certifies reports whether there are intervals for the query's logits.
func (l *Layer) certifies(q *Query) bool { return l.codes != nil && q.fit == kernels.Certified }

// finish fills dst with the best of the labels ids, of all where ids is nil,
// given the intervals of their logits: the labels that the intervals cannot
// exclude are scored by the reference arithmetic.
func (l *Layer) finish(dst []Prediction, q *Query, ids []uint32, lower, upper []float32) int {
	left := q.survivors(len(dst), lower, upper)
	if ids == nil {
		if float64(len(left)) > maxSurvivors*float64(len(lower)) {
			return l.denseTopK(dst, q)
		}
		return l.rescore(dst, q, left)
	}
	for j, at := range left {
		left[j] = ids[at]
	}
	return l.rescore(dst, q, left)
}

// survivors returns the indices of the intervals that may belong to the k
// largest logits. The result is scratch of q.
func (q *Query) survivors(k int, lower, upper []float32) []uint32 {
	n := len(lower)
	// At least k rows have a lower end of threshold or more: it is the k-th
	// largest, or a bound just below it.
	q.ids = grow(q.ids, n)
	threshold, ok := kernels.KthBound(lower, k)
	if !ok {
		q.scores = grow(q.scores, k)
		kernels.TopK(q.ids[:k], q.scores, lower)
		threshold = q.scores[k-1]
	}
	return q.ids[:kernels.SelectAtLeast(q.ids, upper, threshold)]
}

// rescore fills dst with the best of the labels ids by the reference
// arithmetic.
func (l *Layer) rescore(dst []Prediction, q *Query, ids []uint32) int {
	q.logits = grow(q.logits, len(ids))
	kernels.RefGatherDot(q.logits, l.weights, l.bias, ids, q.vec.Vector())
	selectTop(dst, ids, q.logits)
	return len(dst)
}

// denseTopK fills dst with the best of all labels by the reference
// arithmetic.
func (l *Layer) denseTopK(dst []Prediction, q *Query) int {
	q.logits = grow(q.logits, l.labels)
	kernels.RefScan(q.logits, l.weights, l.bias, q.vec.Vector())
	selectTop(dst, nil, q.logits)
	return len(dst)
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
	if len(dst) == 0 {
		return
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
