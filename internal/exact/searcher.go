package exact

import (
	"fmt"
	"math"
	"sync/atomic"

	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/kernels"
)

// Searcher is softmax.Searcher.
type Searcher struct {
	layer   *Layer
	queries []*Query // of the contexts of a batch
	one     [1]Answer

	skip, skipBackoff int // the number of searches that still skip the pass over 4-bit codes, and the number after the last pass without a gain
	lower, upper      []float32
	ids               []uint32 // survivors
	survivorRows      []uint32 // the same, as rows of the scope
	list              []uint32 // labels to search among
	scores            []float32
	order             []Prediction // all labels of a scope, to be put in order
	sorter            Sorter
	biases            []float32 // of the survivors
	logits            []float64
	label             [1]uint32             // whose logit LogitAndSum is asked for
	blocks            kernels.BlockContexts // the context of a short search
	mask              *bitset.Set

	req     Request    // of the search that is under way
	scope   scope      // of it
	groups  []prepared // its contexts
	scan    scan
	query   [1]*Query
	next    atomic.Int64 // the first row that no thread has taken
	failed  atomic.Bool  // a thread could not read its rows
	workers []worker
	share   func(worker int) // takeShare, made once
}

// NewSearcher returns a searcher, without memory before the first search.
func NewSearcher(l *Layer) *Searcher {
	s := &Searcher{layer: l}
	s.share = s.takeShare
	return s
}

// TopK is softmax.Searcher.TopK.
func (s *Searcher) TopK(dst []Prediction, h []float32) (n int, err error) {
	a, err := s.Search(dst, h, Request{})
	return a.Count, err
}

// Search is softmax.Searcher.Search.
func (s *Searcher) Search(dst []Prediction, h []float32, req Request) (Answer, error) {
	if err := s.SearchBatch(dst, s.one[:], h, req); err != nil {
		return Answer{}, err
	}
	return s.one[0], nil
}

// SearchBatch is softmax.Searcher.SearchBatch.
func (s *Searcher) SearchBatch(dst []Prediction, answers []Answer, contexts []float32, req Request) error {
	qs, err := s.set(answers, contexts)
	if err != nil {
		return err
	}
	if err := req.Among.check(s.layer.Labels()); err != nil {
		return err
	}
	return s.Find(dst, answers, qs, &req)
}

// set gives the contexts to the searcher's queries. A single one is
// refused in the words of a query.
func (s *Searcher) set(answers []Answer, contexts []float32) ([]*Query, error) {
	d, n := s.layer.Dim(), len(answers)
	for len(s.queries) < max(n, 1) {
		s.queries = append(s.queries, NewQuery(d))
	}
	if n == 1 {
		return s.queries[:1], s.queries[0].Set(contexts)
	}
	if len(contexts) != n*d {
		return nil, Invalid(ErrContext, "softmax: contexts: found %d elements, expected %d for each of %d answers", len(contexts), d, n)
	}
	for i, q := range s.queries[:n] {
		if err := q.Set(contexts[i*d : (i+1)*d]); err != nil {
			return nil, fmt.Errorf("softmax: contexts: row %d: %w", i, err)
		}
	}
	return s.queries[:n], nil
}

// findAny is Find for requests of all kinds.
func (s *Searcher) findAny(dst []Prediction, answers []Answer, qs []*Query, req *Request) error {
	if len(answers) != len(qs) {
		return Invalid(ErrRequest, "softmax: answers: found %d, expected one for each of %d contexts", len(answers), len(qs))
	}
	k, err := Each(len(dst), len(qs))
	if err != nil {
		return err
	}
	if err := req.check(s.layer.Labels(), k); err != nil {
		return err
	}
	if p := req.Among.packed; p != nil && p.hot.layer != s.layer {
		return Invalid(ErrRequest, "softmax: among: found a list that is packed for another layer, expected one of this layer")
	}
	for _, q := range qs {
		if err := q.check(s.layer); err != nil {
			return err
		}
	}
	if len(qs) == 0 {
		return nil
	}
	p := s.begin(req, k)
	defer s.end()
	for i := range answers {
		answers[i] = Answer{Count: p.k, LogSum: math.Inf(-1)}
	}
	if p.n > 0 && (p.k > 0 || req.LogSum) {
		s.find(dst, answers, qs, p)
	}
	if req.Within > 0 {
		for i := range answers {
			a := &answers[i]
			a.Count = countWithin(dst[i*k:][:a.Count], req.Within)
		}
	}
	return nil
}

// Logits writes the logits of the labels to dst, one per label in the order of the
// set, by the reference arithmetic. It returns an error if the query has no
// context of the layer or if the lengths differ.
func (s *Searcher) Logits(dst []float64, q *Query, among Labels) error {
	if err := q.check(s.layer); err != nil {
		return err
	}
	p := scope{req: &Request{Among: among}}
	if s.resolve(&p); len(dst) != p.n {
		return Invalid(ErrRequest, "softmax: logits: found room for %d, expected one for each of %d labels", len(dst), p.n)
	}
	s.layer.logits(dst, q, &p)
	return nil
}

// Bounds returns an interval for the logit of every label, in the order of the set: lower[i] <= x_i
// <= upper[i] holds for the logits of the reference arithmetic. The intervals have the same bits on
// every CPU. They are scratch of the searcher, valid until the next search; the caller may change
// them. There are none (nil) for a layer without codes, and for a context whose elements are too
// large or too small for them. It returns an error if the query has no context of the layer. It
// panics if a list has an id that is not below L.
func (s *Searcher) Bounds(q *Query, among Labels) (lower, upper []float32, err error) {
	if err := q.check(s.layer); err != nil {
		return nil, nil, err
	}
	if !s.layer.certifies(q) {
		return nil, nil, nil
	}
	p := s.begin(&Request{Among: among}, 0)
	defer s.end()
	s.prepareOne(q, p)
	s.intervals(&s.groups[0], p)
	return s.lower[:p.n], s.upper[:p.n], nil
}

// Score is softmax.Searcher.Logits.
func (s *Searcher) Score(dst []float64, h []float32, among Labels) error {
	qs, err := s.set(s.one[:], h)
	if err != nil {
		return err
	}
	if err := among.check(s.layer.Labels()); err != nil {
		return err
	}
	return s.Logits(dst, qs[0], among)
}

// LogProb is softmax.Searcher.LogProb.
func (s *Searcher) LogProb(h []float32, id uint32, temperature float64) (float64, error) {
	if temperature == 0 {
		return 0, Invalid(ErrRequest, "softmax: temperature: found 0, expected a finite number of at least %v", MinTemperature)
	}
	qs, err := s.set(s.one[:], h)
	if err != nil {
		return 0, err
	}
	logit, sum, err := s.LogitAndSum(qs[0], id, &Request{LogSum: true, ExactSum: true, Temperature: temperature})
	return logit/temperature - sum, err
}
