package screen

import (
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
)

// batch is the scratch of TopKBatch. It grows to the largest batch and stays.
type batch struct {
	clusters []int // of each context
	rows     []int // scanned to find them
	order    []int // the contexts, grouped by cluster
	keys     []uint64
	counts   []int

	queries []*softmax.Query     // for contexts that are answered together
	answers []softmax.Prediction // to them
	sums    [kernels.BatchContexts]float64
}

// TopKBatch answers n contexts at once, row-major, n x d. dst has n*k
// elements; the answer to context i, the same that TopK gives bit for bit, is
// dst[i*k : i*k+counts[i]]. Each count is k, unless Short was given and the
// set of the context's cluster holds fewer labels; what lies behind a short
// answer is left as it is. counts is valid until the next call.
//
// Contexts are answered cluster by cluster, several at a time, so that rows
// are read once for all of them. That pays where several contexts fall into
// one cluster: beam search, and services that gather requests. With Float32
// they only share the cache, and with margins (see Config) they are answered
// one by one.
//
// It returns an error, and writes nothing, where k is not within 1 and L,
// where the lengths do not fit each other, or where an element of a context is
// NaN or infinite.
func (s *Searcher) TopKBatch(dst []softmax.Prediction, k int, contexts []float32) (counts []int, err error) {
	return s.answerBatch(dst, nil, k, contexts)
}

// TopKLogSumExp is TopKBatch that also writes to lse, one element a context,
// the log of the sum of e^x over the labels that the answer was chosen among:
// the candidate set, or all labels where the exact layer answered. A logit minus
// that is the log-probability of the label, normalised inside the set: labels
// outside count as impossible, as in the paper's beam search (Section 4). Over
// an empty set, which only Short lets answer, it is -Inf. With OverTail it is the
// sum over all labels of [Searcher.LogPartition].
//
// The sum is that of softmax.Layer.TopKLogSumExp, whose error is stated there;
// LogProbs gives that of the reference arithmetic, for several times the
// time. With Float32 it is the sum over logits in float32.
func (s *Searcher) TopKLogSumExp(dst []softmax.Prediction, lse []float64, k int, contexts []float32) (counts []int, err error) {
	if n := len(contexts) / s.model.Dim(); len(lse) != n {
		return nil, fmt.Errorf("screen: lse: found %d elements, expected one for each of %d contexts", len(lse), n)
	}
	if lse == nil {
		lse = []float64{}
	}
	if !s.overTail {
		return s.answerBatch(dst, lse, k, contexts)
	}
	if counts, err = s.answerBatch(dst, nil, k, contexts); err != nil {
		return nil, err
	}
	d := s.model.Dim()
	for i := range lse {
		if lse[i], err = s.LogPartition(contexts[i*d : (i+1)*d]); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

// answerBatch is TopKLogSumExp, without the sums where lse is nil.
func (s *Searcher) answerBatch(dst []softmax.Prediction, lse []float64, k int, contexts []float32) (counts []int, err error) {
	if err := s.checkK(k); err != nil {
		return nil, err
	}
	d := s.model.Dim()
	if len(contexts)%d != 0 {
		return nil, fmt.Errorf("screen: contexts: found %d elements, expected a multiple of dimension %d", len(contexts), d)
	}
	n := len(contexts) / d
	if len(dst)%k != 0 || len(dst)/k != n {
		return nil, fmt.Errorf("screen: dst: found %d elements, expected k = %d for each of %d contexts", len(dst), k, n)
	}
	b := &s.batch
	if s.model.margins != (margins{}) {
		return s.oneByOne(dst, lse, k, contexts)
	}
	if b.queries == nil {
		for range kernels.BatchContexts {
			b.queries = append(b.queries, softmax.NewQuery(d))
		}
	}
	b.clusters, b.order, b.counts = grow(b.clusters, n), grow(b.order, n), grow(b.counts, n)
	b.rows, b.keys, b.answers = grow(b.rows, n), grow(b.keys, n), grow(b.answers, kernels.BatchContexts*k)

	if err := s.assign(contexts); err != nil {
		return nil, err
	}
	b.group()
	for start := 0; start < n; {
		t, end := b.clusters[b.order[start]], start+1
		for end < n && b.clusters[b.order[end]] == t {
			end++
		}
		group := b.order[start:end]
		f := found{set: s.model.Candidates(t), rows: b.rows[group[0]]}
		if err := s.answerGroup(dst, lse, k, contexts, group, f); err != nil {
			return nil, err
		}
		start = end
	}
	return b.counts, nil
}

// assign finds the clusters of the contexts.
func (s *Searcher) assign(contexts []float32) error {
	b := &s.batch
	if s.float32 {
		for i := range b.clusters {
			if err := setRow(s.query, contexts, s.model.Dim(), i); err != nil {
				return err
			}
			b.clusters[i], b.rows[i] = s.model.route(s.query, true)
		}
		return nil
	}
	for first := 0; first < len(b.clusters); first += len(b.queries) {
		qs := b.queries[:min(len(b.queries), len(b.clusters)-first)]
		for j, q := range qs {
			if err := setRow(q, contexts, s.model.Dim(), first+j); err != nil {
				return err
			}
		}
		best := b.answers[:len(qs)]
		if s.model.groups == nil {
			s.model.clusters.TopKBatch(best, 1, qs)
			for j, p := range best {
				b.clusters[first+j], b.rows[first+j] = int(p.ID), s.model.Clusters()
			}
			continue
		}
		s.model.groups.layer.TopKBatch(best, 1, qs)
		for j, p := range best {
			b.clusters[first+j], b.rows[first+j] = s.model.within(int(p.ID), qs[j], false)
		}
	}
	return nil
}

// group sorts the contexts by their cluster, those of one cluster ascending. It
// costs nothing for clusters that no context is in: beam search asks for few
// contexts of many clusters.
func (b *batch) group() {
	for i, t := range b.clusters {
		b.keys[i] = uint64(t)<<32 | uint64(i)
	}
	slices.Sort(b.keys)
	for j, key := range b.keys {
		b.order[j] = int(uint32(key))
	}
}

// oneByOne is answerBatch, one context after the other.
func (s *Searcher) oneByOne(dst []softmax.Prediction, lse []float64, k int, contexts []float32) (counts []int, err error) {
	b, d := &s.batch, s.model.Dim()
	b.counts = grow(b.counts, len(contexts)/d)
	// A context that is none is found before anything is written.
	for i := range b.counts {
		if err := setRow(s.query, contexts, d, i); err != nil {
			return nil, err
		}
	}
	for i := range b.counts {
		if err := setRow(s.query, contexts, d, i); err != nil {
			return nil, err
		}
		b.counts[i] = s.answerSum(dst[i*k:(i+1)*k], lse, i, s.find())
	}
	return b.counts, nil
}

// answerGroup answers those of the contexts that are listed in group, all of
// one cluster, for which routing found f.
func (s *Searcher) answerGroup(dst []softmax.Prediction, lse []float64, k int, contexts []float32, group []int, f found) error {
	b, set := &s.batch, f.set
	if s.float32 {
		for _, i := range group {
			if err := setRow(s.query, contexts, s.model.Dim(), i); err != nil {
				return err
			}
			b.counts[i] = s.answerSum(dst[i*k:(i+1)*k], lse, i, f)
		}
		return nil
	}
	// The contexts were found good by assign: setRow fails only where the
	// caller changes them meanwhile.
	exact := s.decide(k, f, len(group))
	n := k
	if !exact {
		n = min(k, len(set))
	}
	for len(group) > 0 {
		qs := b.queries[:min(len(b.queries), len(group))]
		for j, q := range qs {
			if err := setRow(q, contexts, s.model.Dim(), group[j]); err != nil {
				return err
			}
		}
		answers := b.answers[:n*len(qs)]
		switch {
		case lse != nil:
			sums := b.sums[:len(qs)]
			s.sum(answers, sums, n, qs, set, exact)
			for j, i := range group[:len(qs)] {
				lse[i] = sums[j]
			}
		case exact:
			s.layer.TopKBatch(answers, n, qs)
		default:
			s.layer.TopKOfBatch(answers, n, qs, set)
		}
		for j, i := range group[:len(qs)] {
			b.counts[i] = copy(dst[i*k:(i+1)*k], answers[j*n:(j+1)*n])
		}
		group = group[len(qs):]
	}
	return nil
}

// answerSum is answer for context i, the query's, and writes lse[i] unless lse is
// nil.
func (s *Searcher) answerSum(dst []softmax.Prediction, lse []float64, i int, f found) int {
	if lse == nil {
		return s.answer(dst, f)
	}
	exact := s.decide(len(dst), f, 1)
	n := len(dst)
	if !exact {
		n = min(n, len(f.set))
	}
	if !s.float32 {
		s.one[0] = s.query
		s.sum(dst[:n], lse[i:i+1], n, s.one[:], f.set, exact)
		return n
	}
	switch {
	case exact:
		_, lse[i] = s.layer.TopKLogSumExpFloat32(dst, s.query, nil)
	case len(f.set) == 0:
		lse[i] = math.Inf(-1)
	default:
		_, lse[i] = s.layer.TopKLogSumExpFloat32(dst[:n], s.query, f.set)
	}
	return n
}

// sum is softmax.Layer.TopKLogSumExp over all labels or over a set, which may
// be empty.
func (s *Searcher) sum(dst []softmax.Prediction, lse []float64, k int, qs []*softmax.Query, set []uint32, exact bool) {
	switch {
	case exact:
		set = nil
	case len(set) == 0:
		for i := range lse {
			lse[i] = math.Inf(-1)
		}
		return
	}
	s.layer.TopKLogSumExp(dst, lse, k, qs, set)
}

// setRow makes row i of contexts, of dimension d, the context of q.
func setRow(q *softmax.Query, contexts []float32, d, i int) error {
	if err := q.Set(contexts[i*d : (i+1)*d]); err != nil {
		return fmt.Errorf("screen: contexts: row %d: %w", i, err)
	}
	return nil
}

// grow returns a slice of n elements, s where its capacity allows.
func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
