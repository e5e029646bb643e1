package train

import (
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/screen"
)

// Options are the hyperparameters of a run. They are used exactly as they
// stand, a zero is a zero: start from [DefaultOptions] and change what is to
// differ. In a record they stand as one JSON object.
type Options struct {
	KMeansOptions
	LearningOptions
	SetOptions

	// K is the number of labels of each context: its K largest logits.
	K int
	// Tail, unless nil, asks for a regression of the weight of the labels outside the
	// candidate sets, on the contexts of training ([FitRegression]), for
	// log-probabilities over all labels at the cost of one product.
	Tail *TailOptions
	// TailContexts, unless nil, are the contexts for Tail, instead of the contexts of
	// training: N rows of the layer's dimension, which are only read. Contexts that had
	// no part in training keep the promise of the intervals, and give a log Z without
	// the bias of sets that know theirs: on the Penn Treebank perplexity was 0.7% above
	// the exact one by 200,000 contexts of training, and 0.2% by 73,760 of validation text.
	TailContexts []float32
	// Measure asks for Record.Unseen, the figures of the screen on the held-out
	// slice. K-means then leaves the slice out, and the sets are chosen twice:
	// without the slice, to be measured on it, and then on all contexts.
	Measure bool
	// Seed seeds all random choices.
	Seed uint64

	// Labels, unless nil, are the labels of the contexts as [Labels] gives them
	// for the same layer, contexts and K: N rows of K. They are used in place
	// of computing them, and only read.
	Labels []uint32
	// Checkpoint, unless empty, names the file that keeps the state of the run:
	// after the labels, after k-means and after each alternation, always
	// whole. A run that finds a checkpoint of the same options, layer and
	// contexts continues from it and gives the same screen as one that was
	// never interrupted; one that finds another, or a file of another kind,
	// refuses to start. Labels alone serve other options too, if K is the same.
	// [RemoveCheckpoint] removes it when it has served.
	Checkpoint string
	// Threads is the number of goroutines that compute; 0 means
	// runtime.GOMAXPROCS(0). The result does not depend on it.
	Threads int
	// Progress, unless nil, is told how the run goes.
	Progress func(Progress)
}

// KMeansOptions say what clusters there are and how spherical k-means finds
// them.
type KMeansOptions struct {
	// Clusters is r, the number of rows of V: from 1 to the number of contexts.
	Clusters int
	// Groups, unless 0, asks for a screen on two levels: that many groups of
	// Clusters/Groups clusters each. A query scans the vectors of the groups
	// and the vectors of the clusters of the best group, so that many small clusters
	// cost little. It divides Clusters, if Overlap is 0. 0: the flat screen of
	// the paper.
	Groups int
	// Overlap, unless 0, lets groups have lists of clusters that overlap, with a
	// cluster in that many lists on average: lists of Overlap Clusters/Groups
	// clusters. V is then the V of a flat screen, and the groups are learned as
	// a screen for V: which clusters the contexts of a group have as their
	// best. More of them find it than if each cluster is in one group. At
	// least 1, at most Groups; Groups need not divide Clusters.
	Overlap float64
	// KMeansIterations bounds the iterations of k-means. At least 1.
	KMeansIterations int
	// KMeansBatch, unless 0, is the number of contexts, drawn anew, that one
	// iteration of k-means takes instead of all, for corpora of which a part
	// tells enough. All KMeansIterations are done then. 0, or no fewer than
	// there are: all contexts. Not negative. On 929,589 contexts, with 100
	// clusters, no learning and a budget of 150, 50 iterations of 20,000 took a
	// fifth of the time of 20 over all, and lost 0.0015 of P@5.
	KMeansBatch int
}

// LearningOptions say how V is learned from where k-means leaves it.
type LearningOptions struct {
	// Iterations is T, the number of alternations. 0 keeps the clusters of
	// k-means.
	Iterations int
	// KMeansOnly stops after spherical k-means and one knapsack.
	KMeansOnly bool
	// Estimator is the gradient estimator. See [Estimator] for what they reach.
	Estimator Estimator
	// Gamma is the weight of max(0, L-bar - B) while V is learned
	// (Equation 8). Not negative.
	Gamma float64
	// Multiplier scales the price of a candidate, beside lambda, while V is
	// learned: this many times the Lagrange multiplier of L-bar <= B, which
	// the knapsack gives (the value per weight at which it stopped). With 1 the
	// loss is the Lagrangian of Equation 7; a little more keeps L-bar just
	// below B, so that the steep penalty of gamma has nothing to do, which
	// learns best; with 0 the price is gamma's alone, as in the paper. Not
	// negative.
	Multiplier float64
	// HeldOut is the share of the contexts kept out of learning to choose the
	// best alternation, and to measure the screen if [Options].Measure asks for
	// it: at least 0, below 1. If it comes to less than one context the contexts
	// of training choose, and nothing is measured.
	HeldOut float64
	// Patience, unless 0, ends learning when the figures of the held-out slice
	// have had no new best for that many alternations. The learning rate still
	// falls as it does over all Iterations, so that the run is the start of the
	// one without patience, and finds the same best unless that comes later. It
	// often does, as the rate falls, so that the default is 0, never. On the
	// contexts of a language model of the Penn Treebank 2 lost up to 0.0015 of
	// P@5; 4 stopped after 12 to 22 of 25 alternations and lost at most 0.0002.
	// Not negative.
	Patience int
	// EpochFraction is the share of the contexts that one alternation learns
	// from. Above 0; it may exceed 1.
	EpochFraction float64
	// BatchSize is the number of contexts of one gradient step. At least 1.
	BatchSize int
	// LearningRate is the step size at the start; it falls linearly to 0 at
	// the end of the last alternation. Above 0.
	LearningRate float64
	// Optimizer turns gradients into steps.
	Optimizer Optimizer
	// Momentum is the share of the last step that the next one keeps under
	// [Momentum]: at least 0, below 1. Adam does not use it.
	Momentum float64
	// Confidence sets the scale of V before learning: the mean over contexts
	// of the largest P(t|h). Above 0, below 1. The argmax of Equation 2 does
	// not see the scale of V, but the sampling does: at the scale of unit
	// vectors Gumbel noise drowns the logits.
	Confidence float64
}

// SetOptions say which candidates a cluster has.
type SetOptions struct {
	// Budget is B: the mean number of candidates a context of the training set
	// may be given (L-bar <= B, Equation 7). At least K, and at least
	// len(Always).
	Budget float64
	// Lambda is the cost of a candidate that is not among the labels
	// (Equation 6), where a label that is missed costs 1. Not negative.
	Lambda float64
	// Smoothing is alpha, the number of contexts that the label shares of what
	// a cluster is a part of (its group; all contexts) count for beside its
	// own, when its candidates are chosen. With many clusters it finds
	// candidates that no context of training with the cluster has. 0: the
	// counts as they are. Not negative; 20 serves well on two levels.
	Smoothing float64
	// Spread is the mean share of a context that counts in clusters near its
	// own when the candidates of the final sets are chosen: the four best of
	// its group, and the best of the second best group, weigh by a softmax of
	// their scores at the temperature that gives this share. With many
	// clusters it finds candidates that a cluster has met too seldom. 0: each
	// context counts in its own cluster alone. At least 0, at most 0.5; 0.3
	// serves well on two levels, and a flat screen hardly gains.
	Spread float64
	// Geometry is the number of contexts that the geometric share of a label counts
	// for beside the contexts of a cluster, when the candidates of the final sets are
	// chosen: the probability that the label is among the k best, by where the
	// contexts of the cluster lie and how far they spread. Labels that no context
	// of the cluster has, or that none of training has, can so become candidates.
	// Smoothing and Lambda play no part in these sets then: the budget alone bounds
	// them. 0: none. Not negative; 20 serves well, and what it is hardly matters.
	Geometry float64
	// ProbeShare is the share of the contexts of training, those in which the
	// lead of the best cluster over the second best is smallest, that get the
	// candidates of both, see PairWeight: it sets screen.Config.ProbeMargin. The budget
	// bounds L-bar with these sets; V is learned without them. At least 0, below 1.
	ProbeShare float64
	// PairWeight lets each pair of clusters that contexts of training have as their
	// best two, with a lead for which ProbeShare gives them both, have a candidate
	// set of its own instead of the sets of both: it is the number of contexts that
	// the mean of the shares in the two clusters counts for beside the contexts of the
	// pair. A pair that training has not met gets both sets. The file has as many
	// more ids. 0: both sets always. Not negative; 200 serves well.
	PairWeight float64
	// Shells, unless empty, lists shares of the contexts of training, descending: the
	// contexts of each cluster are cut into shells by how far they lie from its vector, so
	// that these shares lie beyond the first shell, the second, and so on. Each shell has
	// candidate sets of its own, for clusters and for pairs: it sets screen.Config.Shells.
	// Needs Geometry. Each above 0 and below 1. 0.4 and 0.1 serve well.
	Shells []float64
	// Largest, unless 0, bounds the candidates of one set, for the time of the slowest
	// queries: what a budget gives the largest sets beyond it goes to the others. A context
	// that has the sets of two clusters, see PairWeight, may have twice as many. At least
	// the largest budget. 0: the budget alone bounds the sets.
	Largest int
	// Always lists the ids that every candidate set holds, in any order; they
	// count towards the budget.
	Always []uint32
}

// DefaultOptions returns the options of the paper (Section 4: lambda 0.0003,
// gamma 10, labels from the top-5) for 100 clusters and a budget of 150
// candidates. The estimator and the settings of the optimiser are those that
// served best on the contexts of a language model of the Penn Treebank.
func DefaultOptions() Options {
	return Options{
		KMeansOptions: KMeansOptions{
			Clusters:         100,
			KMeansIterations: 20,
		},
		LearningOptions: LearningOptions{
			Iterations:    25,
			Estimator:     Expected,
			Gamma:         10,
			Multiplier:    1.25,
			HeldOut:       0.02,
			EpochFraction: 0.1,
			BatchSize:     512,
			LearningRate:  0.02,
			Optimizer:     Adam,
			Momentum:      0.9,
			Confidence:    0.8,
		},
		SetOptions: SetOptions{
			Budget:     150,
			Lambda:     0.0003,
			Geometry:   20,
			PairWeight: 200,
		},
		K:       5,
		Measure: true,
		Seed:    1,
	}
}

// SetLevels asks for a screen on two levels, with the given number of groups
// and of clusters in each, and sets the options that serve it best: Smoothing
// 20, Spread 0.3, and Lambda 0.00003, as the candidates that these two find are
// rarer than those that the paper's lambda lets in. Geometry stays as it is.
func (o *Options) SetLevels(groups, clusters int) {
	o.Groups, o.Clusters = groups, groups*clusters
	o.Smoothing, o.Spread, o.Lambda = 20, 0.3, 0.00003
}

// SetOverlap asks for a screen of which each of the given number of clusters is in
// the lists of two of the groups on average, and sets the options that serve it
// best: Smoothing 20 and Lambda 0.00003, as for [Options.SetLevels].
func (o *Options) SetOverlap(clusters, groups int) {
	o.Clusters, o.Groups, o.Overlap = clusters, groups, min(2, float64(groups))
	o.Smoothing, o.Lambda = 20, 0.00003
}

// levels is the shape of the clusters that k-means finds: groups that overlap are
// found for them afterwards.
func (o *KMeansOptions) levels() levels {
	if o.Overlap > 0 {
		return levels{clusters: o.Clusters}
	}
	return levels{o.Clusters, o.Groups}
}

// learns reports whether V is learned.
func (o *LearningOptions) learns() bool { return !o.KMeansOnly && o.Iterations > 0 }

// always returns the always-included ids, ascending and distinct.
func (o *SetOptions) always() []uint32 {
	ids := slices.Clone(o.Always)
	slices.Sort(ids)
	return slices.Compact(ids)
}

// check returns an error that names the first option out of its range, for n
// contexts, a layer of the given number of labels and dimension, and screens for
// these budgets beside the Budget that is learned for.
func (o *Options) check(n, labels, dim int, budgets []float64) error {
	switch {
	case o.K < 1 || o.K > labels:
		return fmt.Errorf("k: found %d, expected 1 to %d, the number of labels", o.K, labels)
	case o.Threads < 0:
		return fmt.Errorf("threads: found %d, expected at least 0", o.Threads)
	}
	if o.Tail != nil {
		if err := o.Tail.check(); err != nil {
			return err
		}
	}
	if err := o.KMeansOptions.check(n); err != nil {
		return err
	}
	if err := o.LearningOptions.check(); err != nil {
		return err
	}
	return o.SetOptions.check(o.K, labels, budgets)
}

func (o *KMeansOptions) check(n int) error {
	switch {
	case o.Clusters < 1:
		return fmt.Errorf("clusters: found %d, expected at least 1", o.Clusters)
	case o.Clusters > n:
		return fmt.Errorf("clusters: found %d, expected at most the number of contexts, %d", o.Clusters, n)
	case o.Groups < 0 || o.Groups > o.Clusters:
		return fmt.Errorf("groups: found %d, expected 0 to %d, the number of clusters", o.Groups, o.Clusters)
	case o.Overlap != 0 && !(o.Overlap >= 1 && o.Overlap <= float64(o.Groups)):
		return fmt.Errorf("overlap: found %v, expected 0, or 1 to %d, the number of groups", o.Overlap, o.Groups)
	case o.Overlap == 0 && o.Groups > 0 && o.Clusters%o.Groups != 0:
		return fmt.Errorf("clusters: found %d, expected a multiple of %d, the number of groups", o.Clusters, o.Groups)
	case o.KMeansIterations < 1:
		return fmt.Errorf("k-means iterations: found %d, expected at least 1", o.KMeansIterations)
	case o.KMeansBatch < 0:
		return fmt.Errorf("k-means batch: found %d, expected at least 0", o.KMeansBatch)
	}
	return nil
}

func (o *LearningOptions) check() error {
	switch {
	case !finite(o.Gamma) || o.Gamma < 0:
		return fmt.Errorf("gamma: found %v, expected a finite number that is not negative", o.Gamma)
	case !finite(o.Multiplier) || o.Multiplier < 0:
		return fmt.Errorf("multiplier: found %v, expected a finite number that is not negative", o.Multiplier)
	case o.Iterations < 0:
		return fmt.Errorf("iterations: found %d, expected at least 0", o.Iterations)
	case int(o.Estimator) >= len(estimatorNames):
		return fmt.Errorf("estimator: found %v, expected one of %q", o.Estimator, estimatorNames)
	case int(o.Optimizer) >= len(optimizerNames):
		return fmt.Errorf("optimizer: found %v, expected one of %q", o.Optimizer, optimizerNames)
	case o.Patience < 0:
		return fmt.Errorf("patience: found %d, expected at least 0", o.Patience)
	case !(o.HeldOut >= 0 && o.HeldOut < 1):
		return fmt.Errorf("held out: found %v, expected at least 0 and below 1", o.HeldOut)
	case !finite(o.EpochFraction) || o.EpochFraction <= 0:
		return fmt.Errorf("epoch fraction: found %v, expected a finite number above 0", o.EpochFraction)
	case o.BatchSize < 1:
		return fmt.Errorf("batch size: found %d, expected at least 1", o.BatchSize)
	case !finite(o.LearningRate) || o.LearningRate <= 0:
		return fmt.Errorf("learning rate: found %v, expected a finite number above 0", o.LearningRate)
	case !(o.Momentum >= 0 && o.Momentum < 1):
		return fmt.Errorf("momentum: found %v, expected at least 0 and below 1", o.Momentum)
	case !(o.Confidence > 0 && o.Confidence < 1):
		return fmt.Errorf("confidence: found %v, expected above 0 and below 1", o.Confidence)
	}
	return nil
}

// check is for sets of the given labels of a layer, k for each context.
func (o *SetOptions) check(k, labels int, budgets []float64) error {
	switch {
	case !finite(o.Lambda) || o.Lambda < 0:
		return fmt.Errorf("lambda: found %v, expected a finite number that is not negative", o.Lambda)
	case !finite(o.Smoothing) || o.Smoothing < 0:
		return fmt.Errorf("smoothing: found %v, expected a finite number that is not negative", o.Smoothing)
	case !finite(o.Geometry) || o.Geometry < 0:
		return fmt.Errorf("geometry: found %v, expected a finite number that is not negative", o.Geometry)
	case !(o.Spread >= 0 && o.Spread <= 0.5):
		return fmt.Errorf("spread: found %v, expected 0 to 0.5", o.Spread)
	case !(o.ProbeShare >= 0 && o.ProbeShare < 1):
		return fmt.Errorf("probe share: found %v, expected at least 0 and below 1", o.ProbeShare)
	case !finite(o.PairWeight) || o.PairWeight < 0:
		return fmt.Errorf("pair weight: found %v, expected a finite number that is not negative", o.PairWeight)
	}
	if len(o.Shells) > screen.MaxShells {
		return fmt.Errorf("shells: found %d shares, expected at most %d", len(o.Shells), screen.MaxShells)
	}
	for i, x := range o.Shells {
		if !(x > 0 && x < 1) || i > 0 && x >= o.Shells[i-1] {
			return fmt.Errorf("shells[%d]: found %v, expected descending shares above 0 and below 1", i, x)
		}
	}
	if len(o.Shells) > 0 && o.Geometry == 0 {
		return fmt.Errorf("shells: found %d with geometry 0, expected geometry above 0", len(o.Shells))
	}
	for i, id := range o.Always {
		if int64(id) >= int64(labels) {
			return fmt.Errorf("always[%d]: found id %d, expected below %d, the number of labels", i, id, labels)
		}
	}
	for _, budget := range append([]float64{o.Budget}, budgets...) {
		always := len(o.always())
		switch {
		case !finite(budget):
			return fmt.Errorf("budget: found %v, expected a finite number", budget)
		case budget < float64(k):
			return fmt.Errorf("budget: found %v, expected at least k = %d candidates", budget, k)
		case budget < float64(always):
			return fmt.Errorf("budget: found %v, expected at least %d, the number of ids always included", budget, always)
		case o.Largest != 0 && float64(o.Largest) < budget:
			return fmt.Errorf("largest: found %d, expected 0, or at least the budget, %v", o.Largest, budget)
		}
	}
	return nil
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
