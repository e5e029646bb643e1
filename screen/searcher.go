package screen

import (
	"errors"
	"fmt"

	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
)

// Option changes how a Searcher answers.
type Option func(*Searcher)

// Float32 makes a Searcher compute in float32 throughout, as the paper does:
// argmax over V, gather-dot over the candidate set, and the dense scan where
// the exact layer answers. Logits are rounded to float32 and their sums are
// in the order that the CPU's level likes best, so that near-ties may fall
// either way and the last bits differ between levels. Where a logit leaves
// the range of float32 the answer is meaningless.
func Float32() Option { return func(s *Searcher) { s.float32 = true } }

// Short makes a Searcher answer with fewer than k labels where the candidate
// set holds fewer. Without it the exact layer answers then.
func Short() Option { return func(s *Searcher) { s.short = true } }

// OverTail makes TopKLogSumExp sum over all labels, those outside the candidate
// set by the model's low-rank tail, as [Searcher.LogProb] does and at its cost: a
// scan of rank x L numbers a context. The answers are those without it. NewSearcher
// returns an error where the model has no tail.
func OverTail() Option { return func(s *Searcher) { s.overTail = true } }

// Searcher answers queries with a model and its layer. It is for one
// goroutine; any number of them share the model and the layer. Its memory is
// proportional to r, to the largest candidate set and to d, and grows to L
// with the first query that the exact layer answers and with the first
// log-probability over all labels; beyond such growth nothing is allocated.
type Searcher struct {
	model          *Model
	layer          *softmax.Layer
	float32, short bool
	overTail       bool

	query  *softmax.Query
	union  []uint32  // the set of two clusters
	logits []float32 // of a candidate set, with Float32
	wide   []float64 // logits of a log-probability
	one    [1]*softmax.Query
	batch  batch
	stats  Stats
}

// Stats counts what a Searcher did in TopK and TopKBatch.
type Stats struct {
	// Queries is the number of contexts answered.
	Queries uint64
	// Probes is the number of contexts answered from the candidates of two
	// clusters, because the lead of the best was below Config.ProbeMargin.
	// Contexts that the exact layer answered are not among them.
	Probes uint64
	// Candidates is the sum of the sizes of their candidate sets, that of the
	// best cluster alone where the lead was below Config.ExactMargin.
	// Candidates / Queries is L-bar.
	Candidates uint64
	// Routing is the number of cluster and group vectors scanned to find the
	// clusters: r for each context, or with groups their number and that of
	// the clusters in the best one. (Routing + Candidates) / Queries is the
	// mean number of rows scanned in all, but for those of the exact layer.
	Routing uint64
	// Exact is the number of contexts that the exact layer answered because
	// the set held fewer than k labels, or because the lead of the best cluster
	// was below Config.ExactMargin.
	Exact uint64
	// Short is the number of contexts answered with fewer than k labels.
	Short uint64
}

// NewSearcher returns a searcher with the model m over the layer l. It
// returns an error where the shapes of the two differ, or where the model was
// made for another layer: its fingerprint is neither that of l nor all zero.
//
// The first call for a layer computes the layer's fingerprint, which reads all
// of W: some 0.3 s for 200 MB. [softmax.Layer.Fingerprint] does it beforehand.
func NewSearcher(m *Model, l *softmax.Layer, opts ...Option) (*Searcher, error) {
	if m.Dim() != l.Dim() {
		return nil, fmt.Errorf("screen: dim: found a layer of dimension %d, expected that of the model, %d", l.Dim(), m.Dim())
	}
	if m.Labels() != l.Labels() {
		return nil, fmt.Errorf("screen: labels: found a layer of %d labels, expected those of the model, %d", l.Labels(), m.Labels())
	}
	if want := m.Fingerprint(); want != [32]byte{} {
		if found := l.Fingerprint(); found != want {
			return nil, fmt.Errorf("screen: fingerprint: found layer %x, expected %x: the model was made for another layer", found, want)
		}
	}
	s := &Searcher{model: m, layer: l, query: softmax.NewQuery(m.Dim())}
	for _, o := range opts {
		o(s)
	}
	if s.overTail && m.tail == nil {
		return nil, errors.New("screen: tail: found a model without one, expected a tail for OverTail")
	}
	if err := s.warm(); err != nil {
		return nil, err
	}
	return s, nil
}

// warm lets the scratch of the query grow to its final size, so that already
// the first query allocates nothing. A context of zeros rules out no row of V,
// and an answer as long as the largest set rules out none of its labels: no
// later search needs more memory.
func (s *Searcher) warm() error {
	if err := s.query.Set(make([]float32, s.model.Dim())); err != nil {
		return err
	}
	s.cluster()
	if g := s.model.groups; g != nil {
		s.model.within(g.largest, s.query, s.float32)
	}
	size := s.model.LargestSet()
	if s.model.margins.probe > 0 {
		size = min(2*size, s.model.labels)
		s.union = make([]uint32, 0, size)
	}
	set := make([]uint32, size)
	for i := range set {
		set[i] = uint32(i)
	}
	all := make([]softmax.Prediction, size)
	if s.float32 {
		s.layer.TopKOfFloat32(all, s.query, set)
		s.logits = make([]float32, size)
	} else {
		s.layer.TopKOf(all, s.query, set)
	}
	return nil
}

// TopK writes the labels with the k = len(dst) largest logits within the
// candidate set of h's cluster to dst, in order, and returns their number: k,
// unless Short was given and the set holds fewer. Without Short the exact
// layer answers for a set of fewer than k labels.
//
// It returns an error, and writes nothing, where k is not within 1 and L or
// where h has a length other than d or an element that is NaN or infinite.
func (s *Searcher) TopK(dst []softmax.Prediction, h []float32) (n int, err error) {
	if err := s.checkK(len(dst)); err != nil {
		return 0, err
	}
	if err := s.query.Set(h); err != nil {
		return 0, err
	}
	return s.answer(dst, s.find()), nil
}

// Cluster returns the cluster of h, z(h) = argmax_t v_t.h (Eq. 2), the lowest
// of equals; with groups, the best cluster of the best group, likewise. It
// returns an error where h is not a context, as TopK does.
func (s *Searcher) Cluster(h []float32) (int, error) {
	if err := s.query.Set(h); err != nil {
		return 0, err
	}
	return s.cluster(), nil
}

// LogProbs returns the candidate set of h's cluster, or that of the best two
// below the probe margin, and, for each id in it, the log-softmax normalised
// over the set: labels outside count as impossible, as in the paper's beam
// search (Section 4). Both are empty where the set is. The exact margin plays
// no part.
//
// ids is ascending and belongs to the model or, with a probe margin, to the
// searcher until its next query: it must not be changed. logp uses the memory of
// dst where its capacity is large enough, which Model.LargestSet always is, twice
// that with a probe margin. It returns an error where h is not a context,
// as TopK does.
func (s *Searcher) LogProbs(dst []float64, h []float32) (ids []uint32, logp []float64, err error) {
	if err := s.query.Set(h); err != nil {
		return nil, nil, err
	}
	ids = s.findBelow(margins{probe: s.model.margins.probe}).set
	if cap(dst) < len(ids) {
		dst = make([]float64, len(ids))
	}
	logp = dst[:len(ids)]
	if !s.float32 {
		s.layer.LogProbsOf(logp, s.query, ids)
		return ids, logp, nil
	}
	logits := s.logits[:len(ids)]
	kernels.GatherDot(logits, s.layer.Weights(), s.layer.Bias(), ids, h)
	for i, x := range logits {
		logp[i] = float64(x)
	}
	lse := kernels.LogSumExp(logp)
	for i := range logp {
		logp[i] -= lse
	}
	return ids, logp, nil
}

// Stats returns what the searcher did so far. Like every method it is for
// the searcher's own goroutine.
func (s *Searcher) Stats() Stats { return s.stats }

func (s *Searcher) checkK(k int) error {
	if k < 1 || k > s.model.labels {
		return fmt.Errorf("screen: k: found %d, expected 1 to the %d labels", k, s.model.labels)
	}
	return nil
}

// cluster returns the cluster of the query's context.
func (s *Searcher) cluster() int {
	cluster, _ := s.model.route(s.query, s.float32)
	return cluster
}

// answer writes the best labels of the set found for the query's context to
// dst.
func (s *Searcher) answer(dst []softmax.Prediction, f found) int {
	exact, set := s.decide(len(dst), f, 1), f.set
	switch {
	case exact && s.float32:
		return s.layer.TopKFloat32(dst, s.query)
	case exact:
		return s.layer.TopK(dst, s.query)
	case s.float32:
		return s.layer.TopKOfFloat32(dst, s.query, set)
	}
	return s.layer.TopKOf(dst, s.query, set)
}

// decide reports whether the exact layer is to answer for k labels where
// routing found f, and counts that many contexts of it.
func (s *Searcher) decide(k int, f found, contexts int) (exact bool) {
	n := uint64(contexts)
	s.stats.Queries += n
	s.stats.Routing += n * uint64(f.rows)
	s.stats.Candidates += n * uint64(len(f.set))
	if f.exact || len(f.set) < k && !s.short {
		s.stats.Exact += n
		return true
	}
	if f.both {
		s.stats.Probes += n
	}
	if len(f.set) < k {
		s.stats.Short += n
	}
	return false
}
