package train

import (
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/search/router"
	"github.com/learning-to-screen/l2s/train/internal/learn"
	"github.com/learning-to-screen/l2s/train/internal/record"
	"github.com/learning-to-screen/l2s/train/internal/tail"
)

// Options are the options of a run. They are used unchanged, and a zero is a zero: start from
// [DefaultOptions] and change some fields. A record has them as one JSON object, with the decisions
// of the run: a run with the options of a record and the same contexts gives the same screen,
// except for the decisions and warnings in its record, since it decides nothing.
type Options struct {
	// Clusters is r, the number of rows of V: from 1 to the number of contexts. 0: the run decides
	// the form of the screen, which is Clusters, Iterations and Shells, by the number of contexts.
	// Shells are then not used, and Iterations only with contexts enough to learn from.
	Clusters int `json:"clusters"`
	// Iterations is T, the number of alternations of learning, at most a million. 0 keeps the
	// clusters of k-means.
	Iterations int `json:"iterations"`
	// Shells, unless empty, lists shares of the contexts of training, descending: the contexts of
	// each cluster are cut into shells by their distance from its vector, so that these shares are
	// outside the first shell, the second, and so on. Each shell has lists of its own. Shells need
	// Geometry. Each share is above 0 and below 1.
	Shells []float64 `json:"shells,omitempty"`

	// K is the number of labels of each context: its K largest logits.
	K int `json:"k"`
	// Budget is B, the mean number of candidates of the contexts of training that requests
	// get that name none (L-bar <= B, Equation 7). 0: the smallest of the ladder that
	// reaches the target on held-out contexts; if none does, the smallest beyond which larger
	// ones hardly gain, with a warning in the record.
	Budget float64 `json:"budget"`
	// Target is the precision P@K that decides Budget, below 1. 0: P@1 of at least .9995
	// and P@K of at least .9980, rounded to four digits.
	Target float64 `json:"target,omitempty"`
	// Always lists the ids that every list begins with, in any order; they
	// count towards the budget.
	Always []uint32 `json:"always,omitempty"`
	// Geometry is the number of contexts that the geometric share of a label counts for, compared
	// with the contexts of a cluster. The geometric share is the probability that the label is
	// among the k best, by the mean and the spread of the contexts of the cluster. So labels that
	// no context of the cluster, or of training, has can become candidates. 0: the counts alone.
	// Not negative; 20 serves well, and the value hardly matters.
	Geometry float64 `json:"geometry"`
	// Tail, unless nil, asks for an estimate of the weight of the labels that are no
	// candidates within Budget, for log-probabilities over all labels ([FitTail]).
	Tail *TailOptions `json:"tail,omitempty"`
	// HeldOut is the number of contexts that are left out of training, to measure on:
	// whole runs of neighbours. The lists of the screen are then made again from all contexts. -1:
	// 4,000 of 40,000 contexts or more, and of fewer 2%, or 200. At most half of the contexts; 0
	// measures nothing, and the number of labels decides Budget.
	HeldOut int `json:"held_out"`
	// KMeansIterations bounds the iterations of k-means. At least 1.
	KMeansIterations int `json:"kmeans_iterations"`
	// Learning has the options of learning V.
	Learning LearningOptions `json:"learning"`
	// Seed seeds all random choices.
	Seed uint64 `json:"seed"`

	// Validation, unless nil, are contexts of other text, rows of the layer's dimension, to measure
	// on instead of HeldOut of the contexts. Contexts that are equal to a context of training are
	// left out.
	Validation []float32 `json:"-"`
	// Labels, unless nil, are the labels of the contexts as [Labels] gives them
	// for the same layer, contexts and K: N rows of K. They are used in place
	// of computing them, and only read.
	Labels []uint32 `json:"-"`
	// Checkpoint, unless empty, names the file that keeps the state of the run: after the labels,
	// after k-means and after learning, always complete. A run that finds a checkpoint of the same
	// options, layer and contexts continues from it and gives the same screen as a run without an
	// interrupt. A run with other options takes the labels, and a run with another layer, other
	// contexts or another K, or that finds a file of another kind, returns an error.
	// [RemoveCheckpoint] removes the checkpoint after use.
	Checkpoint string `json:"-"`
	// Threads is the number of goroutines that compute; 0 means
	// runtime.GOMAXPROCS(0). The result does not depend on it.
	Threads int `json:"-"`
	// AnyPrecision takes a screen whose largest budget misses the target by far, too: without it
	// that is [ErrTarget].
	AnyPrecision bool `json:"-"`
	// Progress, unless nil, gets the progress of the run.
	Progress func(Progress) `json:"-"`
}

// LearningOptions are the options of learning V from the result of k-means, by Adam (Kingma and Ba
// 2015; beta1 0.9, beta2 0.999, epsilon 1e-8).
type LearningOptions struct {
	// Budget is the B that V is learned for; the vectors serve other budgets as
	// well. 0: 2.2 times the root of the number of labels.
	Budget float64 `json:"budget,omitempty"`
	// Lambda is the cost of a candidate that is not among the labels
	// (Equation 6), where a label that is missed costs 1. Not negative.
	Lambda float64 `json:"lambda"`
	// Estimator is the way the gradient of the expected loss with respect to V is
	// estimated, see Section 3 of the paper. "expected" takes the expectation over the clusters,
	// sum_t P(t|h) l_t, in closed form: the loss is linear in the one-hot sample, without noise.
	// "gumbel-st" draws one cluster for each context by the Gumbel trick and passes the gradient
	// straight through to the relaxed sample, at temperature 1 (Equations 4 and 5). Both reach
	// about the same in the same time (benchmarks/LOG.md).
	Estimator string `json:"estimator"`
	// Gamma is the weight of max(0, L-bar - B) while V is learned
	// (Equation 8). Not negative.
	Gamma float64 `json:"gamma"`
	// Multiplier scales the price of a candidate, in addition to lambda, while V is learned: this
	// many times the Lagrange multiplier of L-bar <= B, which the knapsack gives (the value per
	// weight at which it stopped). With 1 the loss is the Lagrangian of Equation 7; a little more
	// keeps L-bar just below B, so that the steep penalty of gamma does not act, which learns best;
	// with 0 the price is gamma's alone, as in the paper. Not negative.
	Multiplier float64 `json:"multiplier"`
	// EpochFraction is the share of the contexts that one alternation learns
	// from. Above 0, at most 1000.
	EpochFraction float64 `json:"epoch_fraction"`
	// BatchSize is the number of contexts of one gradient step. At least 1.
	BatchSize int `json:"batch_size"`
	// Rate is the step size at the start; it falls linearly to 0 at the end of the last
	// alternation. Above 0.
	Rate float64 `json:"rate"`
	// Confidence sets the scale of V before learning: the mean over contexts
	// of the largest P(t|h). Above 0, below 1. The argmax of Equation 2 does
	// not see the scale of V, but the sampling does: at the scale of unit
	// vectors Gumbel noise drowns the logits.
	Confidence float64 `json:"confidence"`
}

// DefaultOptions leaves the form of the screen and its budget to the run. There is no tail:
// [DefaultTailOptions] has the options of one. The prices of learning are the paper's (Section 4:
// lambda 0.0003, gamma 10, labels from the top-5); the other settings served best on the contexts
// of a language model of the Penn Treebank.
func DefaultOptions() Options {
	return Options{
		Iterations:       20,
		K:                5,
		Geometry:         20,
		HeldOut:          -1,
		KMeansIterations: 20,
		Learning: LearningOptions{
			Lambda:        0.0003,
			Estimator:     learn.Expected,
			Gamma:         10,
			Multiplier:    1.25,
			EpochFraction: 0.2,
			BatchSize:     512,
			Rate:          0.02,
			Confidence:    0.8,
		},
		Seed: 1,
	}
}

// always returns the always-included ids, ascending and distinct.
func (o *Options) always() []uint32 {
	ids := slices.Clone(o.Always)
	slices.Sort(ids)
	return slices.Compact(ids)
}

// recorded is the form of the options that goes into a record: the ids in
// order, so that the order they were given in leaves no trace in the file, and
// nothing that plays no part.
func (o *Options) recorded() Options {
	r := *o
	r.Always = o.always()
	if len(r.Shells) == 0 {
		r.Shells = nil
	}
	r.Validation, r.Labels, r.Checkpoint, r.Threads, r.AnyPrecision, r.Progress = nil, nil, "", 0, false, nil
	return r
}

// learningBudget is the B that V is learned for.
func (o *Options) learningBudget(labels int) float64 {
	if o.Learning.Budget > 0 {
		return o.Learning.Budget
	}
	return max(2.2*math.Sqrt(float64(labels)), float64(o.K), float64(len(o.always())))
}

// Check returns an error that names the first option out of its range, for n
// contexts and a layer of the given number of labels. [Run] checks them too.
func (o *Options) Check(n, labels int) error {
	always := len(o.always())
	var c record.Options
	notNegative := func(name string, x float64) {
		c.Want(x >= 0 && !math.IsInf(x, 1), name, x, "a finite number that is not negative")
	}
	c.Want(o.Clusters >= 0 && o.Clusters <= n, "clusters", o.Clusters, "1 to the number of contexts, %d, or 0", n)
	c.Want(o.Iterations >= 0 && o.Iterations <= 1e6, "iterations", o.Iterations, "at least 0, and at most a million")
	shells := len(o.Shells)
	c.Want(shells <= router.MaxShells, "shells", fmt.Sprintf("%d shares", shells), "at most %d", router.MaxShells)
	c.Want(shells == 0 || o.Geometry != 0, "shells", fmt.Sprintf("%d with geometry 0", shells), "geometry above 0")
	c.Want(o.K >= 1 && o.K <= labels, "k", o.K, "1 to %d, the number of labels", labels)
	c.Want(o.Target >= 0 && o.Target < 1, "target", o.Target, "above 0 and below 1, or 0")
	c.Want(!math.IsNaN(o.Budget) && !math.IsInf(o.Budget, 0), "budget", o.Budget, "a finite number")
	c.Want(o.Budget <= float64(labels), "budget", o.Budget, "at most %d, the number of labels", labels)
	if o.Budget != 0 {
		c.Want(o.Budget >= float64(o.K), "budget", o.Budget, "at least k = %d candidates, or 0", o.K)
		c.Want(o.Budget >= float64(always), "budget", o.Budget, "at least %d, the number of ids always included, or 0", always)
	}
	notNegative("geometry", o.Geometry)
	c.Want(o.HeldOut >= -1 && o.HeldOut <= n/2, "held out", o.HeldOut, "at most %d, half of the contexts, or -1", n/2)
	c.Want(o.KMeansIterations >= 1, "k-means iterations", o.KMeansIterations, "at least 1")
	c.Want(o.Threads >= 0, "threads", o.Threads, "at least 0")
	for i, x := range o.Shells {
		ok := x > 0 && x < 1 && (i == 0 || x < o.Shells[i-1])
		c.Want(ok, fmt.Sprintf("shells[%d]", i), x, "descending shares above 0 and below 1")
	}
	for i, id := range o.Always {
		name, found := fmt.Sprintf("always[%d]", i), fmt.Sprintf("id %d", id)
		c.Want(int64(id) < int64(labels), name, found, "below %d, the number of labels", labels)
	}
	if o.Tail != nil && c.Err == nil {
		c.Err = (*tail.Options)(o.Tail).Check()
	}
	l, estimators := &o.Learning, []string{learn.GumbelST, learn.Expected}
	notNegative("learning: budget", l.Budget)
	notNegative("learning: lambda", l.Lambda)
	notNegative("learning: gamma", l.Gamma)
	notNegative("learning: multiplier", l.Multiplier)
	c.Want(slices.Contains(estimators, l.Estimator), "learning: estimator", l.Estimator, "one of %q", estimators)
	c.Want(l.EpochFraction > 0 && l.EpochFraction <= 1000, "learning: epoch fraction", l.EpochFraction, "a number above 0, at most 1000")
	c.Want(l.BatchSize >= 1, "learning: batch size", l.BatchSize, "at least 1")
	c.Want(l.Rate > 0 && !math.IsInf(l.Rate, 1), "learning: rate", l.Rate, "a finite number above 0")
	c.Want(l.Confidence > 0 && l.Confidence < 1, "learning: confidence", l.Confidence, "above 0 and below 1")
	return c.Err
}
