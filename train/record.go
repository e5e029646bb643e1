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

// Record describes a run: everything needed to repeat it with the same contexts, and its figures.
// The screen file has it as JSON. It holds no times, no SIMD level and no number of threads, so
// that equal runs give equal files.
type Record struct {
	// Options are the options of the run, with its decisions.
	Options Options `json:"options"`
	// Contexts is N, the number of contexts.
	Contexts int `json:"contexts"`
	// ContextsDigest names the contexts, by their numbers and their order.
	ContextsDigest string `json:"contexts_digest"`
	// HeldOut is the number of contexts of the figures of the ladder. LeftOut is the number of
	// other contexts that were held out, or of Options.Validation: they are equal to a context that
	// training learns from.
	HeldOut int `json:"held_out"`
	LeftOut int `json:"left_out,omitempty"`
	// Geometry describes the places of the held-out contexts relative to their clusters, with the
	// contexts that the figures leave out, or of the contexts of Options.Validation without them.
	// Nil if none were measured.
	Geometry *screen.Geometry `json:"geometry,omitempty"`
	// KMeans holds the iterations of spherical k-means.
	KMeans []kmeans.Iteration `json:"kmeans"`
	// Learning is the course of learning, nil without.
	Learning *learn.Course `json:"learning,omitempty"`
	// Decisions has the decisions of the run with their reasons, a line each.
	Decisions []string `json:"decisions,omitempty"`
	// Warnings has reasons to doubt the result, with advice.
	Warnings []string `json:"warnings,omitempty"`
	// TailFit has the precision of the tail's estimates, nil without a tail.
	TailFit *TailFit `json:"tail_fit,omitempty"`
}

// TrainedOn reports whether these contexts, row-major with dim elements each, are the contexts of
// the run in their order, held-out ones included. Figures on contexts of training flatter a screen,
// and a calibration with them promises nothing. All contexts are read, on the given number of
// goroutines, 0 for all cores.
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
