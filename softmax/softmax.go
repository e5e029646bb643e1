package softmax

import (
	"github.com/learning-to-screen/l2s/internal/exact"
	"github.com/learning-to-screen/l2s/internal/kernels"
)

// The errors of searchers that callers may want to distinguish, by errors.Is.
var (
	// ErrContext: h has another length than d, or an element that is not finite.
	ErrContext = exact.ErrContext
	// ErrRequest: the request, or the room for its answer, does not fit the layer.
	ErrRequest = exact.ErrRequest
	// ErrLayer: a screen or a preview was made for another layer.
	ErrLayer = exact.ErrLayer
)

// Prediction is one label, its ID, and its Logit: x_s = w_s.h + b_s, or what [Layer.Scaled] makes of
// it, plus the label's bias of the request if it has one.
type Prediction = exact.Prediction

// Request is a question about a context, for as many labels as the answer has room for: 1 to L, or 0
// for LogSum alone. Its fields:
//
//	Within           float64      the largest distance from the best logit; 0: any
//	LogSum           bool         the logarithm of the sum of e^x too, see [Answer]
//	ExactSum         bool         that sum by the reference arithmetic: a pass over all weights
//	Temperature      float64      T of a log-sum of e^(x/T); 0: 1. At least 1e-100
//	Budget           float64      mean number of labels that a screen looks at; 0: its own
//	Exact            bool         a screen or a preview finds the best of all labels, too
//	Among            Labels       the labels to choose among; zero: all
//	Allowed, Banned  *bitset.Set  labels that may be answered, and labels that may not; nil: no limit
//	Biases           []Bias       added to logits of labels, distinct and ascending by ID
//
// The edits, which are Allowed, Banned and Biases, take part in the search: the answer is as for
// a layer whose logits are edited so. Sets have L labels. Labels that may not be answered count
// as impossible: they are in no answer and add nothing to the sum.
type Request = exact.Request

// Bias is the number Add, finite and at most 2^100 in magnitude, for the logit of the label ID.
type Bias = exact.Bias

// Labels is a set of labels to choose among: all of a layer, which is the zero
// value, or the labels in a list.
type Labels = exact.Labels

// Only is the set of the labels ids, in any order, which must be distinct and below L: searches
// return an error for an id that is not. A label that is there twice may be answered twice. An
// empty list is the empty set. The ids are kept, not copied.
func Only(ids []uint32) Labels { return exact.Only(ids) }

// Answer is the result of a search, besides the best labels.
//
// Count is the number of labels written: k, or fewer if fewer may be answered, or are within the
// distance of the request. Source tells which labels the answer was chosen among.
//
// LogSum is -Inf unless the request wants it. Then it is the logarithm of the sum of e^x, or of
// e^(x/T) at the temperature of the request, over the labels that the answer was chosen among: the
// logarithm of a label's probability among them is its logit minus that. The sum over no labels is
// -Inf. Without ExactSum it is an estimate: labels that may be among the k largest count with
// their logits, all others with the centre of their interval, so that it depends on
// k and Within, and on nothing else. If a share p of the sum belongs to the others, and no interval of theirs is wider
// than 2e, the result is off by at most log(1 + p(exp(e) - 1)), and far less in practice.
//
// Under a soft cap ([Layer.Scaled]) a sum with biases is as with ExactSum.
type Answer = exact.Answer

// Source tells which labels an answer was chosen among.
type Source = exact.Source

const (
	FromLayer = exact.FromLayer // all labels of the request: the answer is exact
	FromSet   = exact.FromSet   // the candidates that a screen or a preview has for the context
)

// Layer is a softmax layer: weights W (labels x dim, row s is w_s) and bias b. It is immutable,
// except for its threads, and safe for use by many goroutines.
//
// [NewLayer] makes one: a zero value has no use, and its methods may panic.
type Layer exact.Layer

// NewLayer returns the layer with the weights W and the bias, one element a row of W, or nil
// for zeros. The elements are kept, not copied, and must not be changed. The search reads quantised
// rows where they are, with 16 bytes for each row besides; of others it makes codes, one to
// one and a half bytes for each weight.
//
// It returns an error if the lengths do not match, if there is no row, or if a weight or a bias is
// NaN or infinite. It reads W once, on all cores.
func NewLayer(weights kernels.Rows, bias []float32) (*Layer, error) {
	l, err := exact.NewLayer(weights, bias)
	return (*Layer)(l), err
}

func (l *Layer) layer() *exact.Layer { return (*exact.Layer)(l) }

// Scaled returns the layer of a model that multiplies w_s.h + b_s by a scale, and maps the result x
// to c tanh(x/c) if the soft cap c is not 0: Granite, MiniCPM and Cohere's models have a scale, Gemma
// 2 has a cap. These final logits are all that its searchers know, and so are screens, previews,
// samplers and learners over it: the order, distances, biases (which are added to final logits),
// temperatures, sums and probabilities are of final logits, computed in float64 from the reference
// arithmetic. Equal final logits, as a cap may make of unequal ones, are in the order of labels.
//
// The layer shares W, b and their codes with l, whose own scale and cap it does not have: it has the
// threads of l until SetThreads of one of the two. Scaled(1, 0) has the logits w_s.h + b_s. A scale
// costs nothing. A cap costs a hyperbolic tangent for each label of a sum or of a draw that no top-k
// or min-p bounds.
//
// It returns an error if scale or softCap, unless that is 0, is not within 2^-126 and 2^126.
func (l *Layer) Scaled(scale, softCap float64) (*Layer, error) {
	of, err := l.layer().Scaled(scale, softCap)
	return (*Layer)(of), err
}

// Scale returns the scale of the logits, 1 unless the layer is of [Layer.Scaled].
func (l *Layer) Scale() float64 { return l.layer().Scale() }

// SoftCap returns the soft cap of the logits, 0 for none.
func (l *Layer) SoftCap() float64 { return l.layer().SoftCap() }

// SetThreads lets exact searches over large layers run on up to n threads, at most 256, the
// caller's among them. Before, a layer has one thread. Answers are the same. The layer owns the
// other threads, which are parked between searches and serve one search at a time: a goroutine that
// finds them busy searches alone. They end with the next SetThreads, and when the layer is
// unreachable. It must not be called while the layer is searched.
func (l *Layer) SetThreads(n int) { l.layer().SetThreads(n) }

// Labels returns L, the number of labels.
func (l *Layer) Labels() int { return l.layer().Labels() }

// Dim returns d, the dimension of a context.
func (l *Layer) Dim() int { return l.layer().Dim() }

// Weights returns W, labels x dim.
func (l *Layer) Weights() kernels.Rows { return l.layer().Weights() }

// Bias returns b, one element a label. It must not be changed.
func (l *Layer) Bias() []float32 { return l.layer().Bias() }

// Fingerprint returns a hash of the layer: its shape, W and b, for any type of W. A screen carries
// the fingerprint of the layer that it was trained for. It is computed on the first call, which
// reads all of W on all cores.
//
// It is the SHA-256 of: the number of labels and the dimension, as little-endian 64-bit
// integers; the SHA-256 of each 256 rows of W, the last of the rest; the SHA-256
// of b. Weights and bias are hashed as little-endian 32-bit floats. A scale and
// a soft cap do not change it.
func (l *Layer) Fingerprint() [32]byte { return l.layer().Fingerprint() }

// Searcher answers requests exactly, over all labels of a layer. It belongs to one goroutine; any
// number of searchers share the layer. Its memory grows to the need of the largest search; beyond
// such growth nothing is allocated.
//
// [NewSearcher] makes one, of a layer of [NewLayer]: a zero value has no use, and its methods may panic.
type Searcher exact.Searcher

// NewSearcher returns a searcher, without memory before the first search.
func NewSearcher(l *Layer) *Searcher { return (*Searcher)(exact.NewSearcher(l.layer())) }

func (s *Searcher) searcher() *exact.Searcher { return (*exact.Searcher)(s) }

// TopK writes the labels with the k = len(dst) largest logits to dst, in order,
// and returns their number, k. Errors are as from Search.
func (s *Searcher) TopK(dst []Prediction, h []float32) (n int, err error) {
	return s.searcher().TopK(dst, h)
}

// Search answers a request about the context h: the labels of the k = len(dst)
// largest logits go to dst, in order.
//
// It returns an error, and writes nothing, if h is not a context ([ErrContext])
// or if the request or the length of dst does not fit the layer ([ErrRequest]).
func (s *Searcher) Search(dst []Prediction, h []float32, req Request) (Answer, error) {
	return s.searcher().Search(dst, h, req)
}

// SearchBatch answers the same request about each of n contexts, row-major, n x d, as
// Search does, bit for bit; rows are read once for several contexts. answers has n elements, and dst has
// k elements per context: the answer to context i is dst[i*k:][:answers[i].Count]. Errors are as from Search.
func (s *Searcher) SearchBatch(dst []Prediction, answers []Answer, contexts []float32, req Request) error {
	return s.searcher().SearchBatch(dst, answers, contexts, req)
}

// Logits writes the logits of labels in the context h to dst, one per label in the order of the
// set, by the reference arithmetic. It
// returns an error if h is not a context ([ErrContext]), or if the length of dst or an id of the
// list does not fit ([ErrRequest]).
func (s *Searcher) Logits(dst []float64, h []float32, among Labels) error {
	return s.searcher().Score(dst, h, among)
}

// LogProb returns the log-probability of the label id in the context h at a temperature T, of
// probabilities in proportion to e^(x/T): its logit over T minus the log of the sum of e^(x/T) over
// all labels, both by the reference arithmetic, which reads all weights. T is 1 for the
// probabilities of the layer; it is finite and at least 1e-100.
//
// It returns an error if id is not below L, or T out of range ([ErrRequest]), or h no context
// ([ErrContext]).
func (s *Searcher) LogProb(h []float32, id uint32, temperature float64) (float64, error) {
	return s.searcher().LogProb(h, id, temperature)
}
