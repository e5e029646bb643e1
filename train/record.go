package train

import (
	"encoding/hex"

	"github.com/learning-to-screen/l2s/internal/labelfile"
)

// Record is what a run leaves behind about itself: everything needed to repeat
// it with the same contexts, and the figures of its course. It stands in the
// screen file as JSON. It holds no times, no SIMD level and no number of
// threads, so that equal runs give equal files.
type Record struct {
	// Options are the options of the run, without Threads and Progress.
	Options Options `json:"options"`
	// Contexts is N, the number of contexts.
	Contexts int `json:"contexts"`
	// ContextsDigest names the contexts, by their numbers and their order.
	ContextsDigest string `json:"contexts_digest"`
	// ContextsSample are the 1,024 smallest of the CRC-64s (ECMA) of the contexts, as
	// little-endian float32, each once: little-endian words, ascending. They show which of
	// other contexts are among them: see [Record.TrainedOn].
	ContextsSample []byte `json:"contexts_sample,omitempty"`
	// HeldOut is the number of contexts of the slice that chose the best
	// alternation. 0: the contexts of training did.
	HeldOut int `json:"held_out"`
	// KMeans holds the iterations of spherical k-means.
	KMeans []KMeansIteration `json:"kmeans"`
	// GroupCosine is the mean cosine of a context to the vector of its cluster
	// after k-means within the groups, of which KMeans tells. 0 if the
	// screen is flat.
	GroupCosine float64 `json:"group_cosine,omitempty"`
	// Scale is the factor by which the unit vectors of k-means were multiplied
	// before learning. 0 if there was no learning.
	// On two levels it is the scale of the groups, and GroupScale the scale of
	// the clusters within them.
	Scale      float64 `json:"scale,omitempty"`
	GroupScale float64 `json:"group_scale,omitempty"`
	// Alternations holds the state after k-means, first, and after each
	// alternation. Empty if there was no learning.
	Alternations []Alternation `json:"alternations,omitempty"`
	// Best is the index in Alternations of the clusters that were kept.
	Best int `json:"best"`
	// LearnedFor is the budget for which V was learned, and the budget of
	// Alternations, if it is not the budget of the screen. 0 if it is.
	LearnedFor float64 `json:"learned_for,omitempty"`
	// MeanCandidates is L-bar of the final sets over all contexts.
	MeanCandidates float64 `json:"mean_candidates"`
	// Precision1 and PrecisionK are P@1 and P@k of the final sets on the
	// contexts of training: the share of their best labels, and of their k
	// labels, that are in the set of their cluster.
	Precision1 float64 `json:"precision_1"`
	PrecisionK float64 `json:"precision_k"`
	// Unseen are the figures on the held-out slice of a screen that is made as this
	// one is, but without the slice. Nil if Options.Measure did not ask for them,
	// or nothing was held out. Learning chose the alternation that does best on the
	// same slice, which flatters them a little.
	Unseen *Unseen `json:"unseen,omitempty"`
}

// Unseen are figures on contexts that a screen was not trained on.
type Unseen struct {
	Contexts       int     `json:"contexts"`
	MeanCandidates float64 `json:"mean_candidates"`
	Precision1     float64 `json:"precision_1"`
	PrecisionK     float64 `json:"precision_k"`
	// Deviation is the standard error of PrecisionK, over runs of neighbouring
	// contexts, which are not independent.
	Deviation float64 `json:"deviation"`
}

// newRecord begins the record of a run over n contexts.
func newRecord(opt *Options, n int, digest labelfile.Digest) *Record {
	return &Record{Options: opt.recorded(), Contexts: n, ContextsDigest: hex.EncodeToString(digest[:])}
}

// KMeansIteration are the figures of one iteration of spherical k-means.
type KMeansIteration struct {
	// Objective is the mean cosine of a context to the vector of its cluster,
	// after the vectors were updated. With mini-batches it and Moved are of
	// the contexts of this one.
	Objective float64 `json:"objective"`
	// Moved is the number of contexts that changed their cluster.
	Moved int `json:"moved"`
}

// Alternation are the figures of one alternation, all for sets counted on the
// contexts of training without the held-out slice.
type Alternation struct {
	// Loss is the mean loss (Equation 6) over the contexts learned from, at
	// the clusters sampled. 0 for k-means.
	Loss float64 `json:"loss"`
	// MeanCandidates is L-bar over the held-out slice.
	MeanCandidates float64 `json:"mean_candidates"`
	// Precision1 and PrecisionK are P@1 and P@k on the held-out slice.
	Precision1 float64 `json:"precision_1"`
	PrecisionK float64 `json:"precision_k"`
}
