package screen

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/learning-to-screen/l2s/internal/exact"
	"github.com/learning-to-screen/l2s/internal/logsum"
	"github.com/learning-to-screen/l2s/internal/precision"
	"github.com/learning-to-screen/l2s/internal/screening"
	"github.com/learning-to-screen/l2s/softmax"
)

// ErrNoTail is the error, by errors.Is, of calls that need a tail: probabilities over all labels.
var ErrNoTail = logsum.ErrNoTail

// Rung is one budget of a model, with figures on held-out contexts, all 0 without such contexts:
//
//	Budget          float64   B, above 0 and finite
//	Share           uint16    the least share of the candidates
//	MeanCandidates  float64   the mean number of candidates
//	P99Candidates   int       its 99th percentile
//	MaxCandidates   int       the largest
//	Precision1      Estimate  P@1
//	PrecisionK      Estimate  P@k
type Rung = screening.Rung

// Estimate is a measured number with its 95% interval: 0 <= Low <= Value <= High <= 1.
type Estimate = precision.Estimate

// Model is a screen: the vectors of clusters v_1, ..., v_r and for each cell its candidates, in an
// order such that every budget takes the first ones. It is immutable and safe for use by many
// goroutines.
//
// [Load], [Read] and package train make one: a zero value has no use, and its methods may panic.
type Model screening.Model

func (m *Model) model() *screening.Model { return (*screening.Model)(m) }

// Load reads a model from a file, which is read whole and not kept open. Time and memory are in
// proportion to its size: all of it is checked, and the vectors of the clusters are quantised. An
// error names the file, the field, the value found and the value expected.
func Load(path string) (*Model, error) {
	m, err := screening.Load(path)
	return (*Model)(m), err
}

// Read returns the model whose file r has the bytes of, all of them. It allocates at most a small
// multiple of their number. Errors are as from [Load], without the file, or of r.
func Read(r io.Reader) (*Model, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("screen: %w", err)
	}
	m, err := screening.Read(data)
	return (*Model)(m), err
}

// Save writes the model to a file, which appears under its name when it is complete: an error, or
// the end of the process in between, leaves the earlier file. Equal models give equal files.
func (m *Model) Save(path string) error { return m.model().Save(path) }

// WriteTo writes the bytes of the model's file to w.
func (m *Model) WriteTo(w io.Writer) (int64, error) { return m.model().WriteTo(w) }

// Dim returns d, the dimension of a context.
func (m *Model) Dim() int { return m.model().Dim() }

// Labels returns L, the number of labels of the layer that the model is for.
func (m *Model) Labels() int { return m.model().Labels() }

// Clusters returns r, the number of clusters.
func (m *Model) Clusters() int { return m.model().Clusters() }

// Budget returns the budget of requests without a budget.
func (m *Model) Budget() float64 { return m.model().Budget() }

// Ladder returns the budgets that the model knows, ascending. It must not be changed.
func (m *Model) Ladder() []Rung { return m.model().Ladder() }

// LadderOf returns the basis of the figures of the ladder: the k of PrecisionK, and the number of
// held-out contexts, 0 if nothing was measured.
func (m *Model) LadderOf() (k, heldOut int) { return m.model().Config().K, m.model().Config().HeldOut }

// HasTail reports whether the model estimates the weight of the labels that are no candidates, for
// probabilities over all labels.
func (m *Model) HasTail() bool { return m.model().Tail() != nil }

// Fingerprint returns the fingerprint of the model's layer, all zero for any layer of its shape.
func (m *Model) Fingerprint() [32]byte { return m.model().Config().Fingerprint }

// Record returns the training record, a JSON object. It must not be changed.
func (m *Model) Record() json.RawMessage { return m.model().Record() }

// Options are the options of a searcher or a pool. The zero value is ready.
type Options struct {
	// Budget, unless 0, is the budget of requests without a budget, see softmax.Request: the
	// largest of the model's ladder that is not above it, or the smallest. 0 means Model.Budget.
	Budget float64
	// OverTail makes the log-sum of an answer from candidates a sum over all labels. The model's
	// tail gives the sum of the labels that are not looked at, as for [Searcher.LogProb]. The
	// labels of the answer are the same as without the option. The exact layer gives the sum if the
	// request asks for ExactSum, has allowed labels, more than 256 banned ones, or a temperature
	// that the tail does not cover. The error is [ErrNoTail] if the model has no tail.
	OverTail bool
	// Copies, unless 0, bounds the memory in bytes that copies of the codes of candidates within
	// the budget may take, below 0 for none. If the copies of all cells together take more, there
	// are none. 0 means 256 MiB for a layer whose own codes take more than 4 MiB, and 8 MiB for a
	// smaller one.
	//
	// Copies make a query faster, most of all if its data are not in the caches, as between two
	// steps of a decoder. If the codes of the layer fit the caches and the copies are many times
	// as large as the caches, they make a query slower that follows another. All searchers of a
	// model and a layer share them. The answers are the same.
	Copies int64
}

func (o Options) options() screening.Options {
	s := screening.Options{Budget: o.Budget, Copies: o.Copies}
	if o.OverTail {
		return logsum.OverTail(s)
	}
	return s
}

// Stats has the counts of a Searcher's work in TopK, Search and SearchBatch.
type Stats struct {
	// Queries is the number of contexts answered.
	Queries uint64
	// Candidates is the sum of the numbers of their candidates, before a request edits them.
	// Candidates / Queries is L-bar, if the exact layer answered no query.
	Candidates uint64
	// Routing is the number of vectors scanned to find the clusters. (Routing + Candidates)
	// / Queries is the mean number of rows scanned, without the exact layer's.
	Routing uint64
	// Exact is the number of contexts that the exact layer answered: because the request
	// asks for it or names the labels to choose among, and Lacking times because the candidates do
	// not suffice, see [Searcher.Search].
	Exact, Lacking uint64
}

// Interval is an estimate of a number, Log, with an interval that contains it: Low and High are the
// ends, -Inf and +Inf if nothing is known.
type Interval struct {
	Log, Low, High float64
}

// Searcher answers requests with a model and its layer. It is for one goroutine; any number of
// searchers share the model and the layer. Its memory is proportional to r, to the largest number
// of candidates and to d, and to L after the first query that the exact layer answers; beyond such
// growth nothing is allocated.
//
// [NewSearcher] makes one: a zero value has no use, and its methods may panic.
type Searcher screening.Searcher

func (s *Searcher) searcher() *screening.Searcher { return (*screening.Searcher)(s) }

// NewSearcher returns a searcher with the model m over the layer l. It returns an error, for which
// errors.Is holds with [softmax.ErrLayer], if the shapes of the two differ or if the model was made for
// another layer: its fingerprint is neither the layer's nor all zero; and another error if one of
// them is nil or an option does not fit.
//
// The first call for a layer computes the layer's fingerprint, see [softmax.Layer.Fingerprint], and
// the first for a budget copies candidates (Options.Copies). Further calls take little more than
// the memory of a Searcher.
func NewSearcher(m *Model, l *softmax.Layer, o Options) (*Searcher, error) {
	s, err := screening.NewSearcher(m.model(), (*exact.Layer)(l), o.options())
	return (*Searcher)(s), err
}

// TopK writes the labels with the k = len(dst) largest logits among the candidates of h to dst, in
// order, and returns their number: k, or fewer if the layer has fewer. Errors are as from Search.
func (s *Searcher) TopK(dst []softmax.Prediction, h []float32) (n int, err error) {
	return s.searcher().TopK(dst, h)
}

// Search answers a request about the context h, as [softmax.Searcher.Search] does, but among the
// candidates that the model has for h within the budget of the request. Labels that the request
// biases are candidates, too. The exact layer answers if the request is Exact or names the labels to
// choose among, and if the candidates do not suffice: if there are none, or fewer than k = len(dst).
//
// Edits cost no precision: where a plain answer has the k best labels, an edited one has them too.
// For that the exact layer answers if edits leave the k-th label after the k-th of the candidates
// without edits, as if one of the k best is banned: the labels behind it may be no candidates. An
// answer of fewer than k labels, Within a distance, comes from candidates if these are more than the
// answer and the ladder has figures of so many labels ([Model.LadderOf]).
//
// Answer.Source tells which labels the answer was chosen among.
//
// It returns an error, and writes nothing, if h is not a context (softmax.ErrContext) or if the
// request or the length of dst does not fit the layer or the model (softmax.ErrRequest).
func (s *Searcher) Search(dst []softmax.Prediction, h []float32, req softmax.Request) (softmax.Answer, error) {
	return s.searcher().Search(dst, h, req)
}

// SearchBatch answers the same request about each of n contexts, row-major, n x d, as Search does,
// bit for bit. answers has n elements, and dst has k elements per context: the answer to context i is
// dst[i*k:][:answers[i].Count]. Errors are as from Search.
func (s *Searcher) SearchBatch(dst []softmax.Prediction, answers []softmax.Answer, contexts []float32, req softmax.Request) error {
	return s.searcher().SearchBatch(dst, answers, contexts, req)
}

// LogProb returns the log-probability of the label id for the context h at a temperature T, of
// probabilities in proportion to e^(x/T): its logit over T, which is exact, minus the log of the
// sum of e^(x/T) over all labels, which is an estimate: over the candidates that are not in the
// model's tail from the codes, but with the exact logit of the label if it is one of them
// (softmax.Answer); over the others by the tail. It is exact if there are no candidates, and
// where the tail knows no such contexts or has no coefficients for T. The result is not above 0, and has the same bits on every CPU. Probabilities need not sum to 1:
// see [Searcher.LogSum].
//
// T is of final logits, with the scale of the layer. Under a soft cap the exact layer answers.
//
// It returns [ErrNoTail] if the model has no tail, and an error if id is not below L, if T is not
// finite or below 1e-100, or if h is not a context, as TopK does.
func (s *Searcher) LogProb(h []float32, id uint32, temperature float64) (float64, error) {
	return logsum.LogProb(s.searcher(), h, id, temperature)
}

// LogSum returns the log of the sum of e^(x/T) over all labels, log Z at the temperature T, and an
// interval that contains it with the confidence, at least 0 and below 1, if the model's tail has
// half-widths at that confidence or above. The promise is for contexts drawn from the same
// distribution as the contexts that gave the half-widths. The ends are the same if the exact layer
// answers: if there are no candidates, or the tail has no coefficients for T.
//
// It returns [ErrNoTail] if the model has no tail, and an error if temperature or confidence are
// out of range, or if h is not a context.
func (s *Searcher) LogSum(h []float32, temperature, confidence float64) (Interval, error) {
	i, err := logsum.LogSum(s.searcher(), h, temperature, confidence)
	return Interval(i), err
}

// Model returns the searcher's model.
func (s *Searcher) Model() *Model { return (*Model)(s.searcher().Model()) }

// Stats returns the counts of the searcher's work so far.
func (s *Searcher) Stats() Stats { return Stats(s.searcher().Stats()) }
