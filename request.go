package l2s

import (
	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/logsum"
)

// The errors of searches that callers may want to distinguish, by errors.Is.
var (
	// ErrContext: h has another length than d, or an element that is not finite.
	ErrContext error = exact.ErrContext
	// ErrRequest: the request, or the room for its answer, does not fit the layer.
	ErrRequest error = exact.ErrRequest
	// ErrLayer: an index was made for another layer.
	ErrLayer error = exact.ErrLayer
	// ErrNoTail: a screen without a tail was asked for a probability over all labels.
	ErrNoTail error = logsum.ErrNoTail
)

// Asker answers requests about contexts: a [Searcher], a [Pool], and the Learner of package learn.
type Asker interface {
	// Search writes the labels of the k = len(dst) largest logits to dst, best first.
	Search(dst []Prediction, h []float32, r Request) (Answer, error)
	// SearchBatch answers the same request about each of n contexts, row-major, n x d. answers has n
	// elements, and dst k for each context: the answer to context i is dst[i*k:][:answers[i].Count].
	SearchBatch(dst []Prediction, answers []Answer, contexts []float32, r Request) error
}

// Prediction is a label with its logit.
type Prediction struct {
	ID    uint32
	Logit float64 // w.h + b, or what [Layer.Scaled] makes of it, plus the label's bias of the request
}

// Request is a question about a context, for as many labels as the answer has room for: 1 to L, or
// 0 for LogSum alone. The zero value asks for the best labels of all, as the index finds them.
//
// Allowed, Banned and Biases are edits. They take part in the search: the answer is as for a layer
// whose logits are edited so. Labels that may not be answered count as impossible: they are in no
// answer and add nothing to a sum.
type Request struct {
	// Budget is the mean number of labels that an index scores in full: the step of [Index.Steps]
	// with the largest budget that is not above it, or the first one. 0 is the searcher's own. It is
	// not negative. The exact search ignores it.
	Budget float64
	// Within, unless 0, leaves out labels whose logit is below the largest by more than Within, a
	// finite number above 0: then there may be fewer than k. A truncation of samplers is such a
	// distance, min-p by p at temperature T one of -T log p; k is a bound on the answer then, which
	// may be large at no cost.
	Within float64
	// Temperature, unless 0, is the T of a log-sum of e^(x/T): finite and at least 1e-100. It changes
	// neither the labels nor their logits.
	Temperature float64
	// Exact asks for the best of all labels, as the search without an index finds them.
	Exact bool
	// LogSum asks for the logarithm of the sum of e^x too: see [Answer].
	LogSum bool
	// ExactSum, with LogSum, asks for that sum by the definition of logits: a pass over all weights,
	// several times as long as the search.
	ExactSum bool
	// Also are labels that the caller has reasons to expect, in any order: those of a dictionary, of a
	// glossary, of the text so far. They may repeat. An index looks at them besides the labels that it
	// finds, so none of them is missed; each costs about as much as a candidate: with a tenth of all
	// labels the exact search takes less. The exact search ignores them. They are below L.
	Also []uint32
	// Among are the labels to choose among. The zero value is all of them; a list is answered
	// exactly.
	Among Labels
	// Allowed, unless nil, has the labels that may be answered, and Banned, unless nil, the labels
	// that may not. Both are sets over the L labels.
	Allowed, Banned *bitset.Set
	// Biases are added to the logits of labels. They are distinct and ascending by ID.
	Biases []Bias
}

// Bias is a number that is added to the logit of a label.
type Bias struct {
	ID  uint32
	Add float32 // finite, at most 2^100 in magnitude
}

// Labels is a set of labels to choose among: all of a layer, which is the zero value, or a list,
// which [Only] makes.
type Labels struct{ set exact.Labels }

// Only is the set of the labels ids, in any order, which must be distinct and below L: searches
// return an error for an id that is not. A label that is there twice may be answered twice. An
// empty list is the empty set. The ids are kept, not copied.
func Only(ids []uint32) Labels { return Labels{exact.Only(ids)} }

// IsList reports whether the set is a list. The zero value, all labels, is none.
func (l Labels) IsList() bool { return exact.IsList(l.set) }

// Answer is the result of a search, besides the labels.
type Answer struct {
	// Count is the number of labels written: k, or fewer if fewer may be answered, or are within the
	// distance of the request.
	Count int
	// LogSum is -Inf unless the request asks for it. Then it is the logarithm of the sum of e^(x/T),
	// T the temperature of the request, over the labels that may be answered: the logarithm of a
	// label's probability is its logit, over T, minus that. The sum over no labels is -Inf. A screen
	// sums over its candidates, unless [Options.OverTail] is set; the exact search and a preview sum
	// over all labels.
	//
	// Without ExactSum it is an estimate. Labels that may be among the k largest count with their
	// logits, all others of the exact search and of a screen with the centre of an interval that has
	// their logit: if a share p of the sum belongs to these, and no interval is wider than 2eT, the
	// result is off by at most log(1 + p(exp(e) - 1)), and far less in practice. At temperatures below
	// 1/2 all labels that matter count with their logits: it is off by at most .002. A preview counts
	// the others by their previews, or by that of their panel's centre. Under a soft cap ([Layer.Scaled])
	// a sum with biases is as with ExactSum.
	LogSum float64
	// Exact reports that the answer was chosen among all labels of the request: none is missed.
	Exact bool
}

// Stats has the counts of the work of a searcher or a pool in TopK, Search and SearchBatch. A query
// counts when it has succeeded, with all its numbers at once.
type Stats struct {
	// Queries is the number of contexts answered.
	Queries uint64
	// Looked is the number of cheap looks: at vectors of clusters by a screen, at labels by a
	// preview, with codes of few bits.
	Looked uint64
	// Scored is the number of labels that answers were chosen among: the candidates of a screen,
	// before edits, with Request.Also, and the labels that a preview scores in full. A label of Also that is
	// a candidate already may count twice. An exact search that the request asks for adds nothing.
	Scored uint64
	// Exact is the number of contexts that were answered exactly, among all labels.
	Exact uint64
	// Fallback is the number of those that the request does not explain: a screen had no candidates
	// for the context, or fewer than k that may be answered, and a preview too many labels that look
	// alike, or a context unlike all that it was made from.
	Fallback uint64
	// Far is the number of contexts whose part outside the coordinates of a preview is larger than
	// in 99 of 100 held-out ones, or, of a layer with biases, which are shorter: for them the search
	// looked farther, and the exact layer gave a log-sum. If it is large, a preview made from such texts is faster.
	Far uint64
}

// Interval is an estimate of a number, Log, with an interval that contains it: Low and High are the
// ends, -Inf and +Inf if nothing is known.
type Interval struct {
	Log, Low, High float64
}
