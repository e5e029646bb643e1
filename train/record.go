package train

import (
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
