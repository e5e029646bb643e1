package train

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/learning-to-screen/l2s/internal/labelfile"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/train/internal/kmeans"
	"github.com/learning-to-screen/l2s/train/internal/learn"
)

// Record is what a run leaves behind about itself: everything needed to repeat
// it with the same contexts, and what it went by. It stands in the
// screen file as JSON. It holds no times, no SIMD level and no number of
// threads, so that equal runs give equal files.
type Record struct {
	// Options are the options of the run, with what it has decided.
	Options Options `json:"options"`
	// Contexts is N, the number of contexts.
	Contexts int `json:"contexts"`
	// ContextsDigest names the contexts, by their numbers and their order.
	ContextsDigest string `json:"contexts_digest"`
	// HeldOut is the number of contexts that the figures of the ladder are of. LeftOut is
	// the number of contexts of Options.Validation that are not among them, since they are
	// equal to one of training.
	HeldOut int `json:"held_out"`
	LeftOut int `json:"left_out,omitempty"`
	// Geometry says how these contexts lie to their clusters, nil if none were held out.
	Geometry *screen.Geometry `json:"geometry,omitempty"`
	// KMeans holds the iterations of spherical k-means.
	KMeans []KMeansIteration `json:"kmeans"`
	// Learning is the course of learning, nil without.
	Learning *Learning `json:"learning,omitempty"`
	// Decisions says what the run has decided, and why, a line each.
	Decisions []string `json:"decisions,omitempty"`
	// Warnings says what of the run should make its user think twice, and what to do
	// about it.
	Warnings []string `json:"warnings,omitempty"`
	// TailFit says how well the tail estimates, nil without one.
	TailFit *TailFit `json:"tail_fit,omitempty"`
}

// newRecord begins the record of a run over n contexts.
func newRecord(opt *Options, n int, digest labelfile.Digest) *Record {
	return &Record{Options: opt.recorded(), Contexts: n, ContextsDigest: hex.EncodeToString(digest[:])}
}

// KMeansIteration are the figures of one iteration of spherical k-means.
type KMeansIteration struct {
	// Objective is the mean cosine of a context to the vector of its cluster,
	// after the vectors were updated.
	Objective float64 `json:"objective"`
	// Moved is the number of contexts that changed their cluster.
	Moved int `json:"moved"`
}

// Learning is how V was learned.
type Learning struct {
	// Scale is the factor by which the unit vectors of k-means were multiplied before.
	Scale float64 `json:"scale"`
	// Alternations holds the state after k-means, first, and after each
	// alternation.
	Alternations []Alternation `json:"alternations"`
	// Best is the index in Alternations of the vectors that were kept.
	Best int `json:"best"`
}

// Alternation are the figures of one alternation, for sets counted on the contexts learned
// from, of the contexts held out.
type Alternation struct {
	// Loss is the mean loss (Equation 6) over the contexts learned from, at
	// the clusters sampled. 0 for k-means.
	Loss float64 `json:"loss"`
	// MeanCandidates is L-bar.
	MeanCandidates float64 `json:"mean_candidates"`
	// Precision1 and PrecisionK are P@1 and P@k.
	Precision1 float64 `json:"precision_1"`
	PrecisionK float64 `json:"precision_k"`
}

// setKMeans and setLearning take over how V was found.
func (r *Record) setKMeans(history []kmeans.Iteration) {
	r.KMeans = make([]KMeansIteration, len(history))
	for i, x := range history {
		r.KMeans[i] = KMeansIteration(x)
	}
}

func (r *Record) setLearning(c *learn.Course) {
	if c == nil {
		return
	}
	r.Learning = &Learning{Scale: c.Scale, Best: c.Best, Alternations: make([]Alternation, len(c.Alternations))}
	for i, x := range c.Alternations {
		r.Learning.Alternations[i] = Alternation(x)
	}
}

// TrainedOn reports whether these contexts, row-major with dim elements each, are those of
// the run in their order, held-out ones included. Figures on contexts of training flatter
// a screen, and a calibration with them promises nothing. All contexts are read, on the
// given number of goroutines, 0 for all cores.
//
// Errors: contexts that are not whole rows, a NaN or Inf (the context is named), ctx cancelled.
func (r *Record) TrainedOn(ctx context.Context, contexts []float32, dim, threads int) (bool, error) {
	if dim < 1 || len(contexts)%dim != 0 {
		return false, fmt.Errorf("train: contexts: found %d values, expected rows of %d", len(contexts), dim)
	}
	if r.ContextsDigest == "" || len(contexts)/dim != r.Contexts {
		return false, nil
	}
	digest, err := labelfile.DigestOf(ctx, contexts, dim, 0, threads)
	if err != nil {
		return false, fmt.Errorf("train: contexts: %w", err)
	}
	return hex.EncodeToString(digest[:]) == r.ContextsDigest, nil
}
