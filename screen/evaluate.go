package screen

import (
	"context"
	"errors"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/watch/evaluate"
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
	// Searcher has the options of the searchers that are measured.
	Searcher l2s.Options
	// Progress, unless nil, is called with the number of finished contexts and of all; at the end
	// the two are equal. Calls do not overlap, and come from several goroutines.
	Progress func(done, total int)
}

// Evaluation has the precision of the answers by a screen.
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
	// the screen gives to it (l2s.Searcher.LogProb), and ExactPerplexity the same with the
	// probability of the layer. Both are 0 if there are no targets.
	Perplexity, ExactPerplexity float64
	// AtK holds one element for each k of the options, in that order.
	AtK []Precision
	// Steps has the figures of every budget of the screen on these contexts: P@1 and P@k
	// for the largest k. The intervals are over runs of neighbouring contexts.
	Steps []l2s.Step
}

// Precision is the quality of the answers with K labels.
type Precision struct {
	K int
	// Precision is P@K: the mean of |A_K and S_K| / K over the contexts, where A_K are the K labels
	// that the exact layer gives and S_K the labels that a searcher gave (Section 4 of the paper).
	Precision float64
	// Exact is the number of contexts that the exact layer answered, whose S_K is that answer.
	Exact int
	// MeanScored is the mean number of labels that an answer was chosen among: the number of
	// candidates, or L if the exact layer answered.
	MeanScored float64
}

// Evaluate measures the screen x against its layer l on contexts that it was not trained on,
// row-major, n x d, n >= 1.
//
// It returns an error if l2s.NewSearcher does, if x is no screen, if an option or a context
// is wrong, or if ctx ends before the work does.
func Evaluate(ctx context.Context, l *l2s.Layer, x *l2s.Index, contexts []float32, opt EvaluateOptions) (e *Evaluation, err error) {
	layer, index := (*engine.Layer)(l), (*engine.Index)(x)
	err = layer.Work(func() error {
		if err := index.Check(layer); err != nil {
			return err
		}
		if index == nil || index.Screen() == nil {
			return errors.New("screen: index: found none, or a preview, expected a screen")
		}
		in, err := evaluate.Run(ctx, index.Screen(), layer.Exact(), contexts, evaluate.Options{
			K: opt.K, Threads: opt.Threads, Targets: opt.Targets, Temperature: opt.Temperature, Progress: opt.Progress,
			Searcher: engine.Options{Budget: opt.Searcher.Budget, OverTail: opt.Searcher.OverTail, Copies: int64(opt.Searcher.Copies)}.Screening(),
		})
		if err != nil {
			return err
		}
		e = &Evaluation{
			Contexts: in.Contexts, Budget: in.Budget, MeanCandidates: in.MeanCandidates, P99Candidates: in.P99Candidates, MaxCandidates: in.MaxCandidates,
			Routing: in.Routing, Perplexity: in.Perplexity, ExactPerplexity: in.ExactPerplexity,
		}
		for _, p := range in.AtK {
			e.AtK = append(e.AtK, Precision(p))
		}
		for _, r := range in.Ladder {
			s := engine.StepOfRung(r)
			e.Steps = append(e.Steps, l2s.Step{Budget: s.Budget, MeanScored: s.MeanScored, Precision1: l2s.Estimate(s.Precision1), PrecisionK: l2s.Estimate(s.PrecisionK)})
		}
		return nil
	})
	return e, err
}
