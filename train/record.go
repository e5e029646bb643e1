package train

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/learning-to-screen/l2s/internal/kernels"
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
	// the number of those held out, or of Options.Validation, that are not among them, since
	// they are equal to one that training learns from.
	HeldOut int `json:"held_out"`
	LeftOut int `json:"left_out,omitempty"`
	// Geometry says how the contexts that were held out lie to their clusters, with those that are
	// left out, or those of Options.Validation without them. Nil if none were measured on.
	Geometry *screen.Geometry `json:"geometry,omitempty"`
	// KMeans holds the iterations of spherical k-means.
	KMeans []kmeans.Iteration `json:"kmeans"`
	// Learning is the course of learning, nil without.
	Learning *learn.Course `json:"learning,omitempty"`
	// Decisions says what the run has decided, and why, a line each.
	Decisions []string `json:"decisions,omitempty"`
	// Warnings says what of the run should make its user think twice, and what to do
	// about it.
	Warnings []string `json:"warnings,omitempty"`
	// TailFit says how well the tail estimates, nil without one.
	TailFit *TailFit `json:"tail_fit,omitempty"`
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
	digest, err := labelfile.DigestOf(ctx, kernels.Float32Rows(contexts, dim), 0, threads)
	if err != nil {
		return false, fmt.Errorf("train: contexts: %w", err)
	}
	return hex.EncodeToString(digest[:]) == r.ContextsDigest, nil
}
