package l2s

import "github.com/learning-to-screen/l2s/internal/search/engine"

// Options are the options of a searcher or a pool. The zero value is ready.
type Options struct {
	// Budget, unless 0, is the budget of requests that name none: see [Request.Budget]. 0 means the
	// index's own, the normal step of [Index.Steps].
	Budget float64
	// OverTail makes the log-sum of an answer by a screen a sum over all labels, as it is without a
	// screen. The screen's tail gives the sum of the labels that are not looked at. The labels of the
	// answer are the same as without the option. The exact layer gives the sum if the request asks
	// for ExactSum, has allowed labels, more than 256 banned ones, or a temperature that the tail
	// does not cover. The error is [ErrNoTail] if the screen has no tail.
	OverTail bool
	// Copies bounds the memory for copies of the codes of a screen's candidates.
	Copies CopyLimit
}

// CopyLimit is a bound in bytes on the memory for copies of the codes of a screen's candidates
// within the budget. If the copies of all cells together take more, there are none. 0 means 256 MiB
// for a layer whose own codes take more than 4 MiB, and 8 MiB for a smaller one.
//
// Copies make a query faster, most of all if its data are not in the caches, as between two steps
// of a decoder. If the codes of the layer fit the caches and the copies are many times as large as
// the caches, they make a query slower that follows another. All searchers of a screen and a layer
// share them. The answers are the same.
type CopyLimit int64

// NoCopies allows no copies.
const NoCopies CopyLimit = -1

func (o Options) options() engine.Options {
	return engine.Options{Budget: o.Budget, OverTail: o.OverTail, Copies: int64(o.Copies)}
}

// Searcher answers requests about contexts of a layer. It is for one goroutine; any number of
// searchers share the layer and the index. Its memory grows to the need of the largest query, which
// is in proportion to L for an exact search over all labels or a preview; beyond such growth nothing
// is allocated.
//
// [NewSearcher] makes one: a zero value has no use, and its methods may panic.
type Searcher engine.Searcher

func (s *Searcher) searcher() *engine.Searcher { return (*engine.Searcher)(s) }

// NewSearcher returns a searcher over the layer l with the index x, nil for the exact search. The
// error is [ErrLayer], by errors.Is, if the index was made for another layer.
//
// The first call for an index and a layer computes the layer's fingerprint ([Layer.Fingerprint]),
// and the first for a screen and a budget copies candidates ([Options.Copies]). Further calls take
// little more than the memory of a Searcher.
func NewSearcher(l *Layer, x *Index, o Options) (*Searcher, error) {
	s, err := engine.NewSearcher(l.layer(), x.index(), o.options())
	return (*Searcher)(s), err
}

// TopK writes the labels with the k = len(dst) largest logits to dst, best first, and returns their
// number, k, or fewer if fewer may be answered. A k above the labels of the layer is an error. Errors
// are as from Search.
func (s *Searcher) TopK(dst []Prediction, h []float32) (n int, err error) {
	return s.searcher().TopK(inside(dst), h)
}

// Search answers a request about the context h: the labels of the k = len(dst) largest logits go to
// dst, best first.
//
// With an index the answer is chosen among the labels that it finds for h within the budget, and
// labels that the request biases. Edits cost no precision: where a plain answer has the k best
// labels, an edited one has them too, of a preview on average. The exact layer answers if the request
// is Exact or names the labels to choose among, and:
//
//   - for a screen if it has fewer than k candidates for h, or if edits leave the k-th label after the
//     k-th of the candidates without edits, as if one of the k best is banned: the labels behind it
//     may be no candidates;
//   - for a preview if too many labels look alike, as below many banned ones, if h is unlike all contexts that it was made from
//     and the request asks for a sum, if too few labels may be answered, if k is above 512, or if
//     the request asks for an exact sum, a sum over edited labels or under a soft cap, or one at a
//     temperature below 0.5 or above 2.
//
// Answer.Exact reports it. It returns an error, and writes nothing, if h is not a context
// ([ErrContext]) or if the request or the length of dst does not fit the layer ([ErrRequest]).
func (s *Searcher) Search(dst []Prediction, h []float32, r Request) (Answer, error) {
	q := r.inside()
	a, err := s.searcher().Search(inside(dst), h, &q)
	if err != nil {
		return Answer{}, err
	}
	return outside(a), nil
}

// SearchBatch answers the same request about each of n contexts, row-major, n x d, as Search does,
// bit for bit; an exact search reads rows once for several contexts. answers has n elements, and dst has
// k elements per context: the answer to context i is dst[i*k:][:answers[i].Count]. Errors are as
// from Search.
func (s *Searcher) SearchBatch(dst []Prediction, answers []Answer, contexts []float32, r Request) error {
	q, found := r.inside(), s.searcher().Answers(len(answers))
	if err := s.searcher().SearchBatch(inside(dst), found, contexts, &q); err != nil {
		return err
	}
	for i, a := range found {
		answers[i] = outside(a)
	}
	return nil
}

// Logits writes the logits of labels in the context h to dst, one per label in the order of the
// set, exactly, from their rows alone. It returns an error if h is not a context ([ErrContext]), or
// if the length of dst or an id of the list does not fit ([ErrRequest]).
func (s *Searcher) Logits(dst []float64, h []float32, among Labels) error {
	return s.searcher().Logits(dst, h, among.set)
}

// LogProb returns the log-probability of the label id for the context h at a temperature T, of
// probabilities in proportion to e^(x/T): its logit over T, which is exact, minus the log of the sum
// of e^(x/T) over all labels. T is finite and at least 1e-100; 1 gives the probabilities of the model.
//
// The sum is exact without an index, by a pass over all weights. An index estimates it, a screen by
// its tail, a preview as in [Answer]; then the result is not above 0, and probabilities need not sum
// to 1. It is exact where the index has no estimate for h and T.
//
// It returns [ErrNoTail] for a screen without a tail, and an error if id is not below L, or T out of
// range ([ErrRequest]), or h no context ([ErrContext]).
func (s *Searcher) LogProb(h []float32, id uint32, temperature float64) (float64, error) {
	return s.searcher().LogProb(h, id, temperature)
}

// LogSum returns the log of the sum of e^(x/T) over all labels, log Z at the temperature T, and an
// interval that contains it with the confidence, at least 0 and below 1, if a screen's tail has
// half-widths at that confidence or above. The promise is for contexts drawn from the same
// distribution as the contexts that gave the half-widths. The ends are the same if the exact layer
// answers, and infinite if a preview does.
//
// It returns [ErrNoTail] for a screen without a tail, and an error if temperature or confidence are
// out of range, or if h is not a context.
func (s *Searcher) LogSum(h []float32, temperature, confidence float64) (Interval, error) {
	x, err := s.searcher().LogSum(h, temperature, confidence)
	return Interval(x), err
}

// Index returns the searcher's index, nil for the exact search.
func (s *Searcher) Index() *Index { return (*Index)(s.searcher().Index()) }

// Stats returns the counts of the searcher's work so far.
func (s *Searcher) Stats() Stats { return Stats(s.searcher().Stats()) }
