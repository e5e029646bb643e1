package l2s

import (
	"encoding/json"
	"io"

	"github.com/learning-to-screen/l2s/internal/search/engine"
)

// Index makes searches over a layer faster: a preview or a screen. It is immutable and safe for use
// by many goroutines. A nil *Index is the exact search.
//
// A preview has coordinates in which the logits of a layer differ most over contexts, and codes of
// all labels in them. A search transforms the context to these coordinates, looks at the centres of
// panels of labels, and by codes of few bits at those that may be among the best, and scores the
// labels that look best in full. How far it looks depends on the context: if it is unlike all contexts that
// the preview was made from, the search looks at more labels, up to the exact search.
//
// A screen has clusters of contexts, with a ranked list of candidates for each cell, which is a
// cluster or a part of it. A search finds the cell of the context and scores the first candidates in
// its list: as many as the budget allows.
//
// preview.Make and train.Run make one, [Load] and [Read] read one: a zero value has no use, and its
// methods may panic.
type Index engine.Index

func (x *Index) index() *engine.Index { return (*engine.Index)(x) }

// Load reads an index from a file, a preview or a screen, as the first bytes tell. The file is read
// whole and not kept open, and all of it is checked. An error names the file, the field, the value
// found and the value expected. preview/FORMAT.md and screen/FORMAT.md describe the files byte by
// byte.
func Load(path string) (*Index, error) {
	x, err := engine.Load(path)
	return (*Index)(x), err
}

// Read returns the index whose file r has the bytes of, all of them. It allocates at most a small
// multiple of their number. Errors are as from [Load], without the file, or of r.
func Read(r io.Reader) (*Index, error) {
	x, err := engine.Read(r)
	return (*Index)(x), err
}

// Save writes the index to a file, which appears under its name when it is complete: an error, or
// the end of the process in between, leaves the earlier file. Equal indexes give equal files.
func (x *Index) Save(path string) error { return x.index().Save(path) }

// WriteTo writes the bytes of the index's file to w.
func (x *Index) WriteTo(w io.Writer) (int64, error) { return x.index().WriteTo(w) }

// String returns the kind, the shape and the figures of the normal step in a line, such as
//
//	preview of 262144 labels x 640, 502.9 scored, P@1 1.0000, P@5 0.9999, finds 1.0000 (0.9994 to 1.0000) of own states
//
// and "the exact search" for nil.
func (x *Index) String() string { return x.index().String() }

// Kind returns "preview" or "screen".
func (x *Index) Kind() string { return x.index().Kind() }

// Labels returns L, the number of labels of the layer that the index is for.
func (x *Index) Labels() int { return x.index().Labels() }

// Dim returns d, the dimension of a context.
func (x *Index) Dim() int { return x.index().Dim() }

// Fingerprint returns [Layer.Fingerprint] of the layer that the index was made for; all zero if it
// is a screen for any layer of its shape. A preview of a layer with a scale or a soft cap has the
// SHA-256 of that, the scale and the cap, as little-endian 64-bit floats. A preview that was made for
// the same rows without both goes with such a layer too: it finds its best labels. Their log-sums
// then are exact, because its errors of sums are of other sums.
func (x *Index) Fingerprint() [32]byte { return x.index().Fingerprint() }

// Step is a budget of an index, with its figures on contexts that the index was not made from: all 0
// if there were none.
type Step struct {
	// Budget is the number that names the step in [Options] and [Request], above 0 and finite.
	Budget float64
	// MeanScored is the mean number of labels that a query scored in full.
	MeanScored float64
	// Precision1 is P@1, the share of contexts whose best label was found, and PrecisionK is P@k, the
	// found share of the k best labels.
	Precision1, PrecisionK Estimate
	// Own is the found share of own states, of a preview: all 0 for a screen. Held-out contexts tell how
	// often a label is missed in such texts, own states which labels are: the own state of a label is a
	// real state, moved along the covariance of states as little as possible until the label leads all
	// others by 3 logits. It counts if it is no longer than real states are. Own is of a sample of at
	// most 16,000 labels: every other state has told how far searches look, and the others are counted.
	Own Estimate
}

func stepOf(s engine.Step) Step {
	return Step{s.Budget, s.MeanScored, Estimate(s.Precision1), Estimate(s.PrecisionK), Estimate(s.Own)}
}

// Estimate is a measured number with its 95% interval: 0 <= Low <= Value <= High <= 1.
type Estimate struct {
	Value, Low, High float64
}

// Steps returns the budgets that the index knows, ascending, and which of them requests have that
// name none.
func (x *Index) Steps() (steps []Step, normal int) {
	made, normal := x.index().Steps()
	for _, s := range made {
		steps = append(steps, stepOf(s))
	}
	return steps, normal
}

// Measured returns the basis of the figures of the steps: the k of PrecisionK, and the number of
// held-out contexts, 0 if nothing was measured.
func (x *Index) Measured() (k, heldOut int) { return x.index().Measured() }

// HasTail reports whether the index estimates the weight of the labels that it does not score, for
// probabilities over all labels. A preview always does.
func (x *Index) HasTail() bool { return x.index().HasTail() }

// Record returns the training record of a screen, a JSON object, and {} for a preview. It must not
// be changed.
func (x *Index) Record() json.RawMessage { return x.index().Record() }
