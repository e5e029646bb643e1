package train

import (
	"github.com/learning-to-screen/l2s/internal/watch/audit"
	"github.com/learning-to-screen/l2s/train/internal/kmeans"
	"github.com/learning-to-screen/l2s/train/internal/learn"
	tailfit "github.com/learning-to-screen/l2s/train/internal/tail"
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
	Geometry *Geometry `json:"geometry,omitempty"`
	// KMeans holds the iterations of spherical k-means.
	KMeans []KMeansIteration `json:"kmeans"`
	// Learning is the course of learning, nil without.
	Learning *Course `json:"learning,omitempty"`
	// Decisions has the decisions of the run with their reasons, a line each.
	Decisions []string `json:"decisions,omitempty"`
	// Warnings has reasons to doubt the result, with advice.
	Warnings []string `json:"warnings,omitempty"`
	// TailFit has the precision of the tail's estimates, nil without a tail.
	TailFit *TailFit `json:"tail_fit,omitempty"`
}

// Geometry describes the places of contexts relative to their clusters.
type Geometry struct {
	// Cosine is of the cosines of contexts and the vectors of their clusters.
	Cosine Histogram `json:"cosine"`
}

// Histogram has the shares of bins. Bin i counts the numbers from Edges[i-1] on and below Edges[i],
// the first and the last without a lower or an upper end.
type Histogram struct {
	Edges  []float64 `json:"edges"`
	Shares []float64 `json:"shares"`
	// Most are the shares that a stretch of such contexts may have: contexts of one text are alike,
	// so that the shares of a stretch differ from the shares of all.
	Most []float64 `json:"most"`
}

// KMeansIteration has the figures of one iteration of spherical k-means.
type KMeansIteration struct {
	// Objective is the mean cosine of a context to the vector of its cluster, after the
	// vectors were updated.
	Objective float64 `json:"objective"`
	// Moved is the number of contexts that changed their cluster.
	Moved int `json:"moved"`
}

// Course is how learning went.
type Course struct {
	// Scale is the factor by which the unit vectors of k-means were multiplied
	// before learning.
	Scale float64 `json:"scale"`
	// Alternations has the state after k-means, first, and after each alternation.
	Alternations []Alternation `json:"alternations"`
	// Best is the index in Alternations of the vectors that were taken.
	Best int `json:"best"`
}

// Alternation has the figures of one alternation on the held-out contexts, with sets by
// the counts of the others: L-bar, P@1 and P@k.
type Alternation struct {
	// Loss is the mean loss (Equation 6) over the contexts learned from, at
	// the clusters sampled. 0 for k-means.
	Loss           float64 `json:"loss"`
	MeanCandidates float64 `json:"mean_candidates"`
	Precision1     float64 `json:"precision_1"`
	PrecisionK     float64 `json:"precision_k"`
}

// TailFit has the precision of a tail's estimates, on the contexts held out of it.
type TailFit struct {
	// Fitted is the number of contexts that the coefficients come from, HeldOut the number
	// of contexts that the intervals and the figures come from.
	Fitted  int `json:"fitted_contexts"`
	HeldOut int `json:"held_out_contexts"`
	// Ridge is the weight of the squares of a cluster's own slopes.
	Ridge float64 `json:"ridge"`
	// Errors are the errors at each temperature.
	Errors []TailError `json:"errors"`
}

// TailError has root mean squares of errors over the contexts held out, at one temperature: for the
// log of the tail, and for the log of the sum over all labels.
type TailError struct {
	Temperature float64 `json:"temperature"`
	Tail        float64 `json:"log_tail"`
	LogZ        float64 `json:"log_z"`
}

// The stages have their own types of these figures.

func geometryOfRecord(g *audit.Geometry) *Geometry {
	if g == nil {
		return nil
	}
	return &Geometry{Histogram(g.Cosine)}
}

func courseOf(c *learn.Course) *Course {
	if c == nil {
		return nil
	}
	return &Course{c.Scale, each(c.Alternations, func(a learn.Alternation) Alternation { return Alternation(a) }), c.Best}
}

func iterationsOf(list []kmeans.Iteration) []KMeansIteration {
	return each(list, func(i kmeans.Iteration) KMeansIteration { return KMeansIteration(i) })
}

func fitOf(f *tailfit.Fit) *TailFit {
	if f == nil {
		return nil
	}
	return &TailFit{f.Fitted, f.HeldOut, f.Ridge, each(f.Errors, func(e tailfit.Error) TailError { return TailError(e) })}
}

// each converts the elements of a list, and keeps nil.
func each[To, From any](list []From, convert func(From) To) []To {
	if list == nil {
		return nil
	}
	out := make([]To, len(list))
	for i, x := range list {
		out[i] = convert(x)
	}
	return out
}
