package screen

import (
	"context"

	"github.com/learning-to-screen/l2s/internal/evaluate"
	"github.com/learning-to-screen/l2s/internal/exact"
	"github.com/learning-to-screen/l2s/softmax"
)

// EvaluateOptions are the options of Evaluate. The zero value is ready.
type EvaluateOptions struct {
	// K lists the k of the P@k wanted, each within 1 and L. nil: 1 and 5, or at most L.
	K []int
	// Threads is the number of goroutines, 0 for GOMAXPROCS. It changes no result.
	Threads int
	// Targets, unless nil, holds the label that followed each context, below 0 for none: Perplexity
	// is their perplexity.
	Targets []int64
	// Temperature is the temperature of the probabilities of the targets, above 0 and finite; 0
	// means 1. It is of final logits, with the scale of the layer.
	Temperature float64
	// Searcher holds the options of the searchers that are measured.
	Searcher Options
	// Progress, unless nil, is called with the number of finished contexts and of all; at the end
	// the two are equal. Calls do not overlap, and come from several goroutines.
	Progress func(done, total int)
}

// Evaluation has the precision of the answers of a screen.
type Evaluation struct {
	// Contexts is the number of contexts measured.
	Contexts int
	// Budget is the budget of the searchers.
	Budget float64
	// MeanCandidates is L-bar (Section 3 of the paper): the mean number of candidates of a context.
	// P99Candidates is the 99th percentile of these numbers, and MaxCandidates the largest: they
	// decide the slowest queries.
	MeanCandidates               float64
	P99Candidates, MaxCandidates int
	// Routing is the number of vectors scanned to find the cluster of a context. For any k Routing
	// + Precision.MeanScored is the mean number of rows scanned in all.
	Routing int
	// Perplexity is e to the mean of -log p over the contexts with a target, p the probability that
	// the screen gives to it ([Searcher.LogProb]), and ExactPerplexity the same with the
	// probability of the layer. Both are 0 if there are no targets.
	Perplexity, ExactPerplexity float64
	// AtK holds one element for each k of the options, in that order.
	AtK []Precision
	// Ladder has the figures of every budget of the model on these contexts: P@1 and P@k
	// for the largest k. The intervals are over runs of neighbouring contexts.
	Ladder []Rung
}

// Precision is the quality of the answers with K labels. Precision is P@K: the mean of |A_K and
// S_K| / K over the contexts, where A_K are the K labels that the exact layer gives and S_K the
// labels that the Searcher gave (Section 4 of the paper). Exact is the number of contexts that the
// exact layer answered, whose S_K is that answer, and MeanScored the mean number of labels that an
// answer was chosen among: the number of candidates, or L if the exact layer answered.
type Precision = evaluate.Precision

// Evaluate measures the model m against its layer l on contexts that it was
// not trained on, row-major, n x d, n >= 1.
//
// It returns an error if NewSearcher does, if an option or a context
// is wrong, or if ctx ends before the work does.
func Evaluate(ctx context.Context, m *Model, l *softmax.Layer, contexts []float32, opt EvaluateOptions) (*Evaluation, error) {
	e, err := evaluate.Run(ctx, m.model(), (*exact.Layer)(l), contexts, evaluate.Options{
		K: opt.K, Threads: opt.Threads, Targets: opt.Targets, Temperature: opt.Temperature, Searcher: opt.Searcher.options(), Progress: opt.Progress,
	})
	return (*Evaluation)(e), err
}
