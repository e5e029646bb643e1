// Package methods holds the ways to find the largest outputs of a softmax layer that the paper
// compares, each as its own paper defines it, on the kernels of l2s, one file per method.
//
// A [Method] is built once for a layer; the [Index] that this gives answers at every [Setting] of
// its query-time parameters, so that a sweep of them builds nothing again.
package methods

import (
	"context"
	"fmt"

	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// Input is the data that a method may use while it is built.
type Input struct {
	// Layer is W and b.
	Layer *exact.Layer
	// Contexts are contexts to learn from, n x d, row-major. The contexts that
	// are measured are not among them.
	Contexts []float32
	// Labels, unless nil, are the labels of Contexts as train.Labels gives them: n rows of K.
	Labels []uint32
	// K is the number of labels of a context.
	K int
	// Seed seeds all random choices.
	Seed uint64
}

// Method is a way to answer, with the parameters of its construction.
type Method interface {
	// Name is the method's name in tables and figures. Constructions that
	// differ in their parameters share it: they are points of one curve.
	Name() string
	// Params are the parameters of the construction, such as "M=16 efC=200".
	Params() string
	// Build prepares the answers. It may use all cores and is to return soon
	// after ctx ends, with ctx's error.
	Build(ctx context.Context, in *Input) (Index, error)
}

// Index is the result of a construction.
type Index interface {
	// Bytes is the memory that queries read beyond W and b, in bytes: the index, and, counted once,
	// the int8 codes of W and b if the method reads them, although it shares the codes of the
	// layer.
	Bytes() int64
	// Settings are the query-time parameters worth measuring, from the
	// cheapest to the most precise. At least one.
	Settings() []Setting
}

// Setting is an index with its query-time parameters.
type Setting interface {
	// Params are the query-time parameters, such as "ef=50", or "".
	Params() string
	// Searcher returns a searcher for one goroutine.
	Searcher() Searcher
}

// Searcher answers queries on one thread.
type Searcher interface {
	// TopK writes the labels that the method takes for the len(dst) >= 1 largest logits of the
	// context h to dst, the largest first, of equals the lower id, and returns their number: less
	// than len(dst) only if the method found no more. It does not keep h, and allocates nothing
	// after its first answers.
	TopK(dst []exact.Prediction, h []float32) int
}

// Normaliser is a Searcher that gives probabilities, for beam search.
type Normaliser interface {
	Searcher
	// TopKLogSumExp is TopK, and returns the log of the sum of e^x over all labels that the method
	// found, of which the answer is a part: -Inf if it found none. A logit less this log is the
	// log-probability of the label, normalised over the labels found. exact.Answer describes its
	// precision.
	TopKLogSumExp(dst []exact.Prediction, h []float32) (n int, lse float64)
}

// setting is a Setting by its parameters and a function.
type setting struct {
	params   string
	searcher func() Searcher
}

func (s setting) Params() string     { return s.params }
func (s setting) Searcher() Searcher { return s.searcher() }

// settings returns a setting for each value of a parameter, which format prints.
func settings[V any](format string, values []V, searcher func(V) Searcher) (list []Setting) {
	for _, v := range values {
		list = append(list, setting{fmt.Sprintf(format, v), func() Searcher { return searcher(v) }})
	}
	return list
}

// upTo returns the values that are at most n, but at least the first.
func upTo(values []int, n int) []int {
	last := 1
	for last < len(values) && values[last] <= n {
		last++
	}
	return values[:last]
}
