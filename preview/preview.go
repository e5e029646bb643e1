package preview

import (
	"context"
	"io"

	"github.com/learning-to-screen/l2s/internal/exact"
	"github.com/learning-to-screen/l2s/internal/precision"
	"github.com/learning-to-screen/l2s/internal/previewing"
	"github.com/learning-to-screen/l2s/preview/internal/making"
	"github.com/learning-to-screen/l2s/softmax"
)

// LeastLabels is the number of labels from which on a preview pays: of fewer the exact search takes
// little time.
const LeastLabels = making.LeastLabels

// ErrTarget is the error of Make, by errors.Is, for a layer and states with which the rung of
// requests that name no budget misses more than ten times the allowed number of labels, or, of a
// layer of LeastLabels or more, leaves more than half of the contexts to the exact layer: in flat
// distributions any label may be among the best. It is train.ErrTarget too.
var ErrTarget = precision.ErrTarget

// Options are the options of Make. The zero value has the defaults.
type Options struct {
	// Coordinates is R, at most the dimension: 0 for 384. A label has 64 codes of 4 bits, for the
	// largest of them, and codes of 2 bits for the others.
	Coordinates int
	// K is the k of the second precision: 0 for 5.
	K int
	// HeldOut are states, row-major, that the rungs are measured on, in the order of their text.
	// None: every fourth run of the states that the model is made from, which it is then not made from.
	HeldOut []float32
	// Precision1 and PrecisionK are the least precision of the rung for requests that name no
	// budget: 0 for 0.9995 and 0.998. If no rung has it, requests use the rung that scores most
	// labels; Rungs returns its precision. If that one misses ten times the number, Make returns
	// [ErrTarget].
	Precision1, PrecisionK float64
	// LeastOwn is the found share of own states (see [Rung]) below which Make returns [ErrTarget]: 0
	// for .999. The rung for requests that name no budget has .9999, if any rung has: otherwise the
	// one that finds most, and Rungs returns its share.
	LeastOwn float64
	// Threads is the number of threads, 0 for all CPUs. The model does not depend on it.
	Threads int
	// Progress, unless nil, gets the stage and its finished share, 0 to 1.
	Progress func(stage string, done float64)
}

// Make makes a model of a layer from contexts of the text to come: states, row-major, n x d. Some
// 4,000 are enough for one language, and another 4,000 for each further one. It takes
// some ten seconds on all cores for 262,144 labels, and the same input gives the same model on every
// CPU. A layer of fewer than [LeastLabels] labels gets a model too, with which it is hardly faster.
//
// It returns an error if the states are fewer than 64 besides the held-out ones, or no finite rows
// of the layer's dimension, [ErrTarget] if too many labels are missed, and one that wraps ctx.Err()
// if ctx is done before.
func Make(ctx context.Context, l *softmax.Layer, states []float32, opt Options) (*Model, error) {
	m, err := making.Make(ctx, (*exact.Layer)(l), states, making.Options(opt))
	return (*Model)(m), err
}

// Model is a preview of a layer: coordinates, codes of labels, and rungs. It is immutable and safe
// for use by many goroutines.
//
// [Load], [Read] and [Make] make one: a zero value has no use, and its methods may panic.
type Model previewing.Model

func (m *Model) model() *previewing.Model { return (*previewing.Model)(m) }

func (m *Model) parts() *previewing.Parts { return m.model().Parts() }

// Load reads a model from a file, which is read whole and not kept open, and checks all of it. An
// error names the file, the field, the value found and the value expected.
func Load(path string) (*Model, error) {
	m, err := previewing.Load(path)
	return (*Model)(m), err
}

// Read returns the model whose file r has the bytes of, all of them. It allocates at most a small
// multiple of their number. Errors are as from [Load], without the file, or of r.
func Read(r io.Reader) (*Model, error) {
	m, err := previewing.Read(r)
	return (*Model)(m), err
}

// Save writes the model to a file, which appears under its name when it is complete: an error, or
// the end of the process in between, leaves the earlier file. Equal models give equal files.
func (m *Model) Save(path string) error { return m.model().Save(path) }

// WriteTo writes the bytes of the model's file to w.
func (m *Model) WriteTo(w io.Writer) (int64, error) { return m.model().WriteTo(w) }

// Labels returns the number of labels of the layer.
func (m *Model) Labels() int { return m.parts().Labels }

// Dim returns the dimension of a context.
func (m *Model) Dim() int { return m.parts().Dim }

// Fingerprint returns softmax.Layer.Fingerprint of the layer that the model was made for.
func (m *Model) Fingerprint() [32]byte { return m.parts().Fingerprint }

// Rungs returns the levels of precision, by ascending Kept, and which of them requests have that
// name no budget. They must not be changed.
func (m *Model) Rungs() (rungs []Rung, normal int) { return m.parts().Rungs, m.parts().Normal }

// RungsOf returns the basis of the figures of the rungs: the k of PrecisionK, and the number of
// held-out contexts.
func (m *Model) RungsOf() (k, heldOut int) { return m.parts().K, m.parts().HeldOut }

// OwnStates returns the number of own states that Rung.Own was measured on.
func (m *Model) OwnStates() int { return m.parts().Own }

// Rung is a level of precision, with its figures on held-out contexts:
//
//	Deviations  float64   the largest distance of a label's preview below the mark
//	Reach       float64   the largest distance of a panel below the mark, after all stages but the last
//	Looked      float64   the mean share of the codes that was looked at
//	Kept        float64   the mean number of labels scored in full: the budget of a [softmax.Request]
//	Exact       float64   the share of contexts that were answered by the exact layer
//	Precision1  Estimate  P@1, as in package screen
//	PrecisionK  Estimate  P@k
//	Own         Estimate  the found share of own states
//	LogSumOff   float64   the largest error of 95 in 100 log-sums at temperature 1
//
// Labels that are alike share a panel of 16. A search looks at all panels by a few codes of each
// label, and in three further stages, by further codes, at the panels that may still reach the mark:
// the preview of the 40th best label of a first look, or of the k-th for k above 40. Distances are
// in spreads: deviations, in this context, of what the codes so far leave of the logits of a
// panel's labels, times the root of the spread over that of the median held-out context. A search
// that looks farther finds all that others find, and searches for up to 40 labels find the same
// ones. Kept ascends over the rungs.
type Rung = previewing.Rung

// Stats has the counts of a Searcher's work.
type Stats struct {
	// Queries is the number of contexts answered.
	Queries uint64
	// Looked is the sum of the numbers of labels whose codes were looked at, a part of the codes
	// counting as that part of a label, and Kept the sum of the numbers of labels scored in full after
	// them. Queries that the exact layer answered by request do not count.
	Looked, Kept uint64
	// Exact is the number of contexts that the exact layer answered, Crowded the contexts among
	// them that had too many labels to score in full. For the others the request asked for it, or
	// allowed too few labels.
	Exact, Crowded uint64
	// Far is the number of contexts whose part outside the codes is larger than in 99 of 100 held-out
	// ones. If it is large, as for a text of another kind than the model's, a model made from such
	// texts is faster.
	Far uint64
}

// Searcher answers requests by a model and its layer. It is for one goroutine; any number of
// searchers share the model, its codes and the layer. It takes some 20 bytes per label, and the
// memory of an exact search once there is one; beyond such growth nothing is allocated.
//
// [NewSearcher] makes one: a zero value has no use, and its methods may panic.
type Searcher previewing.Searcher

func (s *Searcher) searcher() *previewing.Searcher { return (*previewing.Searcher)(s) }

// NewSearcher returns a searcher with the model m over the layer l. It returns an error, for which
// errors.Is holds with [softmax.ErrLayer], if the model was made for another layer.
//
// The first call for a layer computes the layer's fingerprint, see [softmax.Layer.Fingerprint], on
// all cores. Further calls take little more than the memory of a Searcher.
func NewSearcher(m *Model, l *softmax.Layer) (*Searcher, error) {
	s, err := previewing.NewSearcher(m.model(), (*exact.Layer)(l))
	return (*Searcher)(s), err
}

// TopK writes the labels with the k = len(dst) largest logits that the preview leaves to dst, in
// order, and returns their number. Errors are as from Search.
func (s *Searcher) TopK(dst []softmax.Prediction, h []float32) (n int, err error) {
	return s.searcher().TopK(dst, h)
}

// Search answers a request about the context h as [softmax.Searcher.Search] does, but without
// labels whose previews are far from the best: it may miss a label, as rarely as the rungs of the
// model tell. Logits and their order are exact. The exact layer answers if the request is Exact, if
// a log-sum is at a temperature below 0.5 or above 2 or of a context far from the held-out ones, if
// a context of a layer with biases is less than half as long as these, if the request names the
// labels to choose among, if it wants an exact sum or a sum over edited labels, if too few labels
// may be answered, if k is above 512, and if too many labels look alike: Answer.Source tells so. An
// answer depends on the context, the request and the model alone.
//
// A log-sum is over all labels: exact for the labels scored in full, as in [softmax.Answer], and
// estimated for the others by their previews of the last stage that looked at them: [Rung] has the error
// on held-out contexts.
func (s *Searcher) Search(dst []softmax.Prediction, h []float32, req softmax.Request) (softmax.Answer, error) {
	return s.searcher().Search(dst, h, req)
}

// SearchBatch answers the same request about each of n contexts, row-major, n x d, as Search does,
// bit for bit. answers has n elements, and dst has k elements per context: the answer to context i is
// dst[i*k:][:answers[i].Count]. Errors are as from Search.
func (s *Searcher) SearchBatch(dst []softmax.Prediction, answers []softmax.Answer, contexts []float32, req softmax.Request) error {
	return s.searcher().SearchBatch(dst, answers, contexts, req)
}

// Model returns the searcher's model.
func (s *Searcher) Model() *Model { return (*Model)(s.searcher().Model()) }

// Stats returns the counts of the searcher's work so far.
func (s *Searcher) Stats() Stats { return Stats(s.searcher().Look().Stats) }
