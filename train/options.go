package train

import (
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/learning-to-screen/l2s/softmax"
)

// Options are the hyperparameters of a run. They are used exactly as they
// stand, a zero is a zero: start from [DefaultOptions] and change what is to
// differ.
type Options struct {
	// Clusters is r, the number of rows of V: from 1 to the number of contexts.
	Clusters int `json:"clusters"`
	// Groups, unless 0, asks for a screen on two levels: that many groups of
	// Clusters/Groups clusters each. A query scans the vectors of the groups
	// and those of the clusters of the best group, so that many small clusters
	// cost little. It divides Clusters. 0: the flat screen of the paper.
	Groups int `json:"groups,omitempty"`
	// Budget is B: the mean number of candidates a context of the training set
	// may be given (L-bar <= B, Equation 7). At least K, and at least
	// len(Always).
	Budget float64 `json:"budget"`
	// K is the number of labels of each context: its K largest logits.
	K int `json:"k"`
	// Lambda is the cost of a candidate that is not among the labels
	// (Equation 6), where a label that is missed costs 1. Not negative.
	Lambda float64 `json:"lambda"`
	// Smoothing is alpha, the number of contexts that the label shares of what
	// a cluster is a part of (its group; all contexts) count for beside its
	// own, when its candidates are chosen. With many clusters it finds
	// candidates that no context of training with the cluster has. 0: the
	// counts as they are. Not negative; 20 serves well on two levels.
	Smoothing float64 `json:"smoothing,omitempty"`
	// Spread is the mean share of a context that counts in clusters near its
	// own when the candidates of the final sets are chosen: the four best of
	// its group, and the best of the second best group, weigh by a softmax of
	// their scores at the temperature that gives this share. With many
	// clusters it finds candidates that a cluster has met too seldom. 0: each
	// context counts in its own cluster alone. At least 0, at most 0.5; 0.3
	// serves well on two levels, and a flat screen hardly gains.
	Spread float64 `json:"spread,omitempty"`
	// ProbeShare is the share of the contexts of training, those in which the
	// lead of the best cluster over the second best is smallest, that get the
	// candidates of both: it sets screen.Config.ProbeMargin. The budget bounds
	// L-bar with both sets; V is learned without them. At least 0, below 1.
	ProbeShare float64 `json:"probe_share,omitempty"`
	// TailRank, unless 0, asks for a tail: a low-rank stand-in for the weights of
	// the layer, for log-probabilities of labels outside the candidate set
	// (softmax.LowRank, screen.Config.Tail). At most the dimension and the
	// number of labels. 0: none.
	TailRank int `json:"tail_rank,omitempty"`
	// Gamma is the weight of max(0, L-bar - B) while V is learned
	// (Equation 8). Not negative.
	Gamma float64 `json:"gamma"`
	// Multiplier scales the price of a candidate, beside lambda, while V is
	// learned: this many times the Lagrange multiplier of L-bar <= B, which
	// the knapsack gives (the value per weight at which it stopped). With 1 the
	// loss is the Lagrangian of Equation 7; a little more keeps L-bar just
	// below B, so that the steep penalty of gamma has nothing to do, which
	// learns best; with 0 the price is gamma's alone, as in the paper. Not
	// negative.
	Multiplier float64 `json:"multiplier"`
	// Iterations is T, the number of alternations. 0 keeps the clusters of
	// k-means.
	Iterations int `json:"iterations"`
	// KMeansOnly stops after spherical k-means and one knapsack.
	KMeansOnly bool `json:"kmeans_only"`
	// Estimator is the gradient estimator.
	Estimator Estimator `json:"estimator"`
	// Seed seeds all random choices.
	Seed uint64 `json:"seed"`
	// Always lists the ids that every candidate set holds, in any order; they
	// count towards the budget.
	Always []uint32 `json:"always,omitempty"`

	// KMeansIterations bounds the iterations of k-means. At least 1.
	KMeansIterations int `json:"kmeans_iterations"`
	// HeldOut is the share of the contexts kept out of learning to choose the
	// best alternation: at least 0, below 1. Where it comes to less than one
	// context the contexts of training choose.
	HeldOut float64 `json:"held_out"`
	// EpochFraction is the share of the contexts that one alternation learns
	// from. Above 0; it may exceed 1.
	EpochFraction float64 `json:"epoch_fraction"`
	// BatchSize is the number of contexts of one gradient step. At least 1.
	BatchSize int `json:"batch_size"`
	// LearningRate is the step size at the start; it falls linearly to 0 at
	// the end of the last alternation. Above 0.
	LearningRate float64 `json:"learning_rate"`
	// Optimizer turns gradients into steps.
	Optimizer Optimizer `json:"optimizer"`
	// Momentum is the share of the last step that the next one keeps under
	// [Momentum]: at least 0, below 1. Adam does not use it.
	Momentum float64 `json:"momentum"`
	// Confidence sets the scale of V before learning: the mean over contexts
	// of the largest P(t|h). Above 0, below 1. The argmax of Equation 2 does
	// not see the scale of V, but the sampling does: at the scale of unit
	// vectors Gumbel noise drowns the logits.
	Confidence float64 `json:"confidence"`

	// Labels, unless nil, are the labels of the contexts as [Labels] gives them
	// for the same layer, contexts and K: N rows of K. They are used in place
	// of computing them, and only read.
	Labels []uint32 `json:"-"`
	// Checkpoint, unless empty, names the file that keeps the state of the run:
	// after the labels, after k-means and after each alternation, always
	// whole. A run that finds a checkpoint of the same options, layer and
	// contexts continues from it and gives the same screen as one that was
	// never interrupted; one that finds another refuses to start.
	// [RemoveCheckpoint] removes it when it has served.
	Checkpoint string `json:"-"`
	// Threads is the number of goroutines that compute; 0 means
	// runtime.GOMAXPROCS(0). The result does not depend on it.
	Threads int `json:"-"`
	// Progress, unless nil, is told how the run goes.
	Progress func(Progress) `json:"-"`
}

// DefaultOptions returns the options of the paper (Section 4: lambda 0.0003,
// gamma 10, labels from the top-5) for 100 clusters and a budget of 150
// candidates. The settings of the optimiser are those that served best on the
// contexts of a language model of the Penn Treebank.
func DefaultOptions() Options {
	return Options{
		Clusters:         100,
		Budget:           150,
		K:                5,
		Lambda:           0.0003,
		Gamma:            10,
		Multiplier:       1.25,
		Iterations:       25,
		Estimator:        GumbelST,
		Seed:             1,
		KMeansIterations: 20,
		HeldOut:          0.02,
		EpochFraction:    0.1,
		BatchSize:        512,
		LearningRate:     0.02,
		Optimizer:        Adam,
		Momentum:         0.9,
		Confidence:       0.8,
	}
}

// SetLevels asks for a screen on two levels, with the given number of groups
// and of clusters in each, and sets the options that serve it best: Smoothing
// 20, Spread 0.3, and Lambda 0.00003, as the candidates that these two find are
// rarer than those that the paper's lambda lets in.
func (o *Options) SetLevels(groups, clusters int) {
	o.Groups, o.Clusters = groups, groups*clusters
	o.Smoothing, o.Spread, o.Lambda = 20, 0.3, 0.00003
}

// Estimator is the way the gradient of the expected loss with respect to V is
// estimated, see Section 3 of the paper.
type Estimator uint8

const (
	// GumbelST draws one cluster for each context by the Gumbel trick and
	// passes the gradient straight through to the relaxed sample, at
	// temperature 1 (Equations 4 and 5).
	GumbelST Estimator = iota
	// Expected takes the expectation over the clusters, sum_t P(t|h) l_t, in
	// closed form: the loss is linear in the one-hot sample. Without noise.
	Expected
)

var estimatorNames = []string{GumbelST: "gumbel-st", Expected: "expected"}

// String returns "gumbel-st" or "expected".
func (e Estimator) String() string { return enumName("Estimator", uint8(e), estimatorNames) }

// MarshalText returns the name, as String does. An unknown value is an error.
func (e Estimator) MarshalText() ([]byte, error) {
	return enumText("estimator", uint8(e), estimatorNames)
}

// UnmarshalText accepts the names that String returns.
func (e *Estimator) UnmarshalText(text []byte) error {
	v, err := enumValue("estimator", string(text), estimatorNames)
	if err == nil {
		*e = Estimator(v)
	}
	return err
}

// Optimizer is the rule that turns gradients into steps.
type Optimizer uint8

const (
	// Adam scales each element of the step by running moments of its gradient
	// (Kingma and Ba 2015; beta1 0.9, beta2 0.999, epsilon 1e-8).
	Adam Optimizer = iota
	// Momentum is stochastic gradient descent with heavy-ball momentum.
	Momentum
)

var optimizerNames = []string{Adam: "adam", Momentum: "momentum"}

// String returns "adam" or "momentum".
func (o Optimizer) String() string { return enumName("Optimizer", uint8(o), optimizerNames) }

// MarshalText returns the name, as String does. An unknown value is an error.
func (o Optimizer) MarshalText() ([]byte, error) {
	return enumText("optimizer", uint8(o), optimizerNames)
}

// UnmarshalText accepts the names that String returns.
func (o *Optimizer) UnmarshalText(text []byte) error {
	v, err := enumValue("optimizer", string(text), optimizerNames)
	if err == nil {
		*o = Optimizer(v)
	}
	return err
}

func enumName(kind string, v uint8, names []string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("%s(%d)", kind, v)
}

func enumText(kind string, v uint8, names []string) ([]byte, error) {
	if int(v) < len(names) {
		return []byte(names[v]), nil
	}
	return nil, fmt.Errorf("train: %s %d: want one of %q", kind, v, names)
}

func enumValue(kind, text string, names []string) (uint8, error) {
	if i := slices.Index(names, text); i >= 0 {
		return uint8(i), nil
	}
	return 0, fmt.Errorf("train: %s %q: want one of %q", kind, text, names)
}

// check returns an error that names the first option out of its range, for n
// contexts and a layer of the given number of labels and dimension.
func (o *Options) check(n, labels, dim int) error {
	finite := func(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
	switch {
	case o.Clusters < 1:
		return fmt.Errorf("train: clusters: found %d, want at least 1", o.Clusters)
	case o.Clusters > n:
		return fmt.Errorf("train: clusters: found %d, want at most the number of contexts, %d", o.Clusters, n)
	case o.Groups < 0 || o.Groups > o.Clusters:
		return fmt.Errorf("train: groups: found %d, want 0 to %d, the number of clusters", o.Groups, o.Clusters)
	case o.Groups > 0 && o.Clusters%o.Groups != 0:
		return fmt.Errorf("train: clusters: found %d, want a multiple of %d, the number of groups", o.Clusters, o.Groups)
	case !finite(o.Smoothing) || o.Smoothing < 0:
		return fmt.Errorf("train: smoothing: found %v, want a finite number that is not negative", o.Smoothing)
	case !(o.Spread >= 0 && o.Spread <= 0.5):
		return fmt.Errorf("train: spread: found %v, want 0 to 0.5", o.Spread)
	case !(o.ProbeShare >= 0 && o.ProbeShare < 1):
		return fmt.Errorf("train: probe share: found %v, want at least 0 and below 1", o.ProbeShare)
	case o.TailRank < 0 || o.TailRank > min(labels, dim):
		return fmt.Errorf("train: tail rank: found %d, want 0 to %d, the smaller of %d labels and dimension %d", o.TailRank, min(labels, dim), labels, dim)
	case o.K < 1 || o.K > labels:
		return fmt.Errorf("train: k: found %d, want 1 to %d, the number of labels", o.K, labels)
	case !finite(o.Budget):
		return fmt.Errorf("train: budget: found %v, want a finite number", o.Budget)
	case o.Budget < float64(o.K):
		return fmt.Errorf("train: budget: found %v, want at least k = %d candidates", o.Budget, o.K)
	case !finite(o.Lambda) || o.Lambda < 0:
		return fmt.Errorf("train: lambda: found %v, want a finite number that is not negative", o.Lambda)
	case !finite(o.Gamma) || o.Gamma < 0:
		return fmt.Errorf("train: gamma: found %v, want a finite number that is not negative", o.Gamma)
	case !finite(o.Multiplier) || o.Multiplier < 0:
		return fmt.Errorf("train: multiplier: found %v, want a finite number that is not negative", o.Multiplier)
	case o.Iterations < 0:
		return fmt.Errorf("train: iterations: found %d, want at least 0", o.Iterations)
	case int(o.Estimator) >= len(estimatorNames):
		return fmt.Errorf("train: estimator: found %v, want one of %q", o.Estimator, estimatorNames)
	case int(o.Optimizer) >= len(optimizerNames):
		return fmt.Errorf("train: optimizer: found %v, want one of %q", o.Optimizer, optimizerNames)
	case o.KMeansIterations < 1:
		return fmt.Errorf("train: k-means iterations: found %d, want at least 1", o.KMeansIterations)
	case !(o.HeldOut >= 0 && o.HeldOut < 1):
		return fmt.Errorf("train: held out: found %v, want at least 0 and below 1", o.HeldOut)
	case !finite(o.EpochFraction) || o.EpochFraction <= 0:
		return fmt.Errorf("train: epoch fraction: found %v, want a finite number above 0", o.EpochFraction)
	case o.BatchSize < 1:
		return fmt.Errorf("train: batch size: found %d, want at least 1", o.BatchSize)
	case !finite(o.LearningRate) || o.LearningRate <= 0:
		return fmt.Errorf("train: learning rate: found %v, want a finite number above 0", o.LearningRate)
	case !(o.Momentum >= 0 && o.Momentum < 1):
		return fmt.Errorf("train: momentum: found %v, want at least 0 and below 1", o.Momentum)
	case !(o.Confidence > 0 && o.Confidence < 1):
		return fmt.Errorf("train: confidence: found %v, want above 0 and below 1", o.Confidence)
	case o.Threads < 0:
		return fmt.Errorf("train: threads: found %d, want at least 0", o.Threads)
	}
	for i, id := range o.Always {
		if int64(id) >= int64(labels) {
			return fmt.Errorf("train: always[%d]: found id %d, want below %d, the number of labels", i, id, labels)
		}
	}
	if a := len(o.always()); float64(a) > o.Budget {
		return fmt.Errorf("train: budget: found %v, want at least %d, the number of ids always included", o.Budget, a)
	}
	return nil
}

// always returns the always-included ids, ascending and distinct.
func (o *Options) always() []uint32 {
	ids := slices.Clone(o.Always)
	slices.Sort(ids)
	return slices.Compact(ids)
}

// contextCount returns the number of rows of the contexts, or an error where
// they are not whole rows of the layer's dimension or there are none.
func contextCount(layer *softmax.Layer, contexts []float32) (int, error) {
	dim := layer.Dim()
	switch {
	case len(contexts) == 0:
		return 0, fmt.Errorf("train: contexts: found none, want at least 1 row of %d values", dim)
	case len(contexts)%dim != 0:
		return 0, fmt.Errorf("train: contexts: found %d values, want rows of %d, the dimension of the layer", len(contexts), dim)
	case uint64(len(contexts)/dim) > math.MaxUint32:
		return 0, fmt.Errorf("train: contexts: found %d, want at most %d", len(contexts)/dim, uint32(math.MaxUint32))
	}
	return len(contexts) / dim, nil
}

// threadCount is the number of goroutines that the option asks for.
func threadCount(threads int) int {
	if threads == 0 {
		return runtime.GOMAXPROCS(0)
	}
	return threads
}

// recorded is the form of the options that goes into a record: the ids in
// order, so that the order they were given in leaves no trace in the file.
func (o *Options) recorded() Options {
	r := *o
	r.Always = o.always()
	r.Labels, r.Checkpoint, r.Threads, r.Progress = nil, "", 0, nil
	return r
}
