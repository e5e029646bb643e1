package exact

import (
	"fmt"
	"sync/atomic"

	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/ranking"
)

// Searcher is l2s.Searcher.
type Searcher struct {
	layer   *Layer
	queries []*Query // of the contexts of a batch
	one     [1]Answer

	// The number of searches that still skip the pass over 4-bit codes, and the number after the last
	// pass without a gain.
	skip, skipBackoff int
	lower, upper      []float32
	ids               []uint32 // survivors
	first             kept     // by the first pass
	chosen            []uint32 // their labels, of a list
	list              []uint32 // labels to search among
	scores            []float32
	sorter            ranking.Sorter
	logits            []float64
	label             [1]uint32             // whose logit LogitAndSum is asked for
	blocks            kernels.BlockContexts // the context of a short search
	mask              *bitset.Set

	req     Request      // of the search that is under way
	scope   scope        // of it
	groups  []group      // its contexts
	pass    pass         // over its rows
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

// TopK is l2s.Searcher.TopK.
func (s *Searcher) TopK(dst []Prediction, h []float32) (n int, err error) {
	a, err := s.Search(dst, h, Request{})
	return a.Count, err
}

// Search is l2s.Searcher.Search.
func (s *Searcher) Search(dst []Prediction, h []float32, req Request) (Answer, error) {
	if err := s.SearchBatch(dst, s.one[:], h, req); err != nil {
		return Answer{}, err
	}
	return s.one[0], nil
}

// SearchBatch is l2s.Searcher.SearchBatch.
func (s *Searcher) SearchBatch(dst []Prediction, answers []Answer, contexts []float32, req Request) error {
	d, n := s.layer.Dim(), len(answers)
	if n != 1 && len(contexts) != n*d {
		return Invalid(ErrContext, "l2s: contexts: found %d elements, expected %d for each of %d answers", len(contexts), d, n)
	}
	for i := range n {
		h := contexts // a single one is refused in the words of a query
		if n > 1 {
			h = contexts[i*d : (i+1)*d]
		}
		if _, err := s.set(i, h); err != nil {
			if n > 1 {
				err = fmt.Errorf("l2s: contexts: row %d: %w", i, err)
			}
			return err
		}
	}
	if err := req.Among.check(s.layer.Labels()); err != nil {
		return err
	}
	return s.Find(dst, answers, s.queries[:n], &req)
}

// set gives the context h to query i.
func (s *Searcher) set(i int, h []float32) (*Query, error) {
	for len(s.queries) <= i {
		s.queries = append(s.queries, NewQuery(s.layer.Dim()))
	}
	return s.queries[i], s.queries[i].Set(h)
}

// Logits writes the logits of the labels to dst, one per label in the order of the
// set, by the reference arithmetic. It returns an error if the query has no
// context of the layer or if the lengths differ.
func (s *Searcher) Logits(dst []float64, q *Query, among Labels) error {
	p, err := s.begin(&Request{Among: among, LogSum: true}, 0, q)
	if err != nil {
		return err
	}
	defer s.end()
	if len(dst) != p.n {
		return Invalid(ErrRequest, "l2s: logits: found room for %d, expected one for each of %d labels", len(dst), p.n)
	}
	s.layer.logits(dst, q, p)
	return nil
}

// Layer returns the searcher's layer.
func (s *Searcher) Layer() *Layer { return s.layer }

// Bounds returns an interval for the logit of every label, in the order of the set: lower[i] <= x_i
// <= upper[i] holds for the logits of the reference arithmetic. The intervals have the same bits on
// every CPU. They are scratch of the searcher, valid until the next search; the caller may change
// them. There are none (nil) for a layer without codes, and for a context whose elements are too
// large or too small for them. It returns an error if the query has no context of the layer. It
// panics if a list has an id that is not below L.
func (s *Searcher) Bounds(q *Query, among Labels) (lower, upper []float32, err error) {
	_, err = s.begin(&Request{Among: among, LogSum: true}, 0, q)
	defer s.end()
	if err != nil || len(s.groups) == 0 {
		return nil, nil, err
	}
	s.scan(s.groups, pass{whole: true})
	x := s.all(0)
	if !s.layer.final.bounds(x.lower, x.upper) {
		return nil, nil, nil
	}
	return x.lower, x.upper, nil
}

// Score is l2s.Searcher.Logits.
func (s *Searcher) Score(dst []float64, h []float32, among Labels) error {
	q, err := s.set(0, h)
	if err != nil {
		return err
	}
	if err := among.check(s.layer.Labels()); err != nil {
		return err
	}
	return s.Logits(dst, q, among)
}

// LogProb is l2s.Searcher.LogProb.
func (s *Searcher) LogProb(h []float32, id uint32, temperature float64) (float64, error) {
	if temperature == 0 {
		return 0, Invalid(ErrRequest, "l2s: temperature: found 0, expected a finite number of at least %v", MinTemperature)
	}
	q, err := s.set(0, h)
	if err != nil {
		return 0, err
	}
	logit, sum, err := s.LogitAndSum(q, id, &Request{LogSum: true, ExactSum: true, Temperature: temperature})
	return logit/temperature - sum, err
}
