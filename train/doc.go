// Package train learns a screen for a softmax layer: the cluster weights V and
// the candidate sets c_t of "Learning to Screen for Fast Softmax Inference on
// Large Vocabulary Neural Networks" (Chen et al., ICLR 2019), Algorithm 1.
//
// The input is a softmax layer (W, b) and N context vectors h of the kind the
// layer will meet in use, for example the outputs of a language model over its
// training text. [Run] takes these steps:
//
//  1. Labels: the exact top-k of the full layer for every context ([Labels]).
//  2. Spherical k-means over the contexts, seeded by k-means++, gives the first
//     V. Clusters that run empty are given a context of their own.
//     [KMeansOptions].KMeansBatch takes mini-batches instead of all contexts.
//  3. A greedy knapsack fills the candidate sets under the budget B, the mean
//     number of candidates per context.
//  4. T alternations: stochastic gradient descent on V with the sets fixed,
//     through the Gumbel straight-through estimator (Equations 3 to 5) or the
//     closed-form expectation of the loss; then every context is assigned
//     anew, and the knapsack is solved again with V fixed.
//  5. The V of the alternation that did best on a slice of the contexts kept
//     out of the learning is taken, and the final sets are counted on all
//     contexts. [LearningOptions].Patience stops when there has been no better
//     one for a while. The figures on that slice, and so the choice, are of
//     single sets without [SetOptions].Spread and [SetOptions].ProbeShare, which
//     only the final sets know.
//
// The knapsack comes before the first gradient step, unlike in the paper's
// listing: with all sets empty every cluster costs the same and the gradient
// is exactly zero.
//
// # Two levels
//
// With [KMeansOptions].Groups the clusters are in groups, and the cluster of a
// context is sought in its best group alone: the vectors of the groups and the vectors of
// one group are scanned, however many clusters there are in all. k-means then finds
// the groups first and the clusters within each after it, and both levels are
// learned together: P(t|h) is the product of two softmaxes.
// [SetOptions].Smoothing lets small clusters borrow candidates from their group,
// and [SetOptions].Spread from the clusters near them.
//
// # Groups that overlap
//
// With [KMeansOptions].Overlap the groups have lists of clusters, and a cluster may
// be in several. V is found as for a flat screen. The groups are then learned as a
// screen for V: the clusters are the labels, and the one label of a context is its
// best cluster of all. The list of a group so has the clusters that contexts of the
// group have as their best, and few contexts miss theirs. The sets are chosen from
// the contexts as the groups lead them.
//
// # Sets from geometry
//
// Counts know only the labels that a cluster has met. With [SetOptions].Geometry the
// final sets know the others too: from the mean of the contexts of a cluster, and
// how far they spread, follows for every label how likely it is among the k best of
// one of them. Only the labels whose logits are largest at the mean are looked at,
// so that the cost does not grow with L but for one search a cluster. Learning, with
// its many alternations, counts alone.
//
// # Shells
//
// With [SetOptions].Shells the contexts of each cluster are cut into shells, by the cosine
// with its vector, and each shell has sets of its own. What the knapsack saves on contexts
// near a cluster it spends on those far from all.
//
// # Held-out figures
//
// With [Options].Measure a slice of the contexts, [LearningOptions].HeldOut of them,
// is left out of k-means and of learning. Sets are chosen without it and measured on
// it: [Record].Unseen foretells the precision on other contexts, and the figures on
// the contexts of training do not. The screen's own sets are then chosen on all
// contexts. [Record].Advice says what is remarkable.
//
// # Reproducibility
//
// The result depends on the layer, the contexts and the [Options], and on
// nothing else: not on the number of threads, not on the SIMD level, not on
// the architecture. Scores that decide anything are taken in the float64
// reference arithmetic of package kernels, sums run in an order fixed by the
// data, and random numbers are a function of the seed and of what they are
// used for. Equal input gives an equal screen file, byte for byte.
//
// # Several budgets
//
// The labels, k-means and the order of the knapsack's items do not depend on
// the budget: [RunBudgets] gives screens for several budgets from one run.
//
// # Calibration
//
// Package calibrate sets the margins of a screen on contexts that it was not
// trained on, such that a precision is reached with a given confidence.
//
// # Long runs
//
// With [Options].Checkpoint a run keeps its state in files, and continues from
// it after an interrupt with the same result. Labels may be computed in parts,
// on other machines, and given as [Options].Labels.
//
// # Memory
//
// The contexts are read in place and may be a memory-mapped file, of any
// size, as OpenContexts of package head opens it: no copy of them is made. That a
// mapped file is shortened meanwhile is an error. Beside them a run holds about 4(k+6)
// bytes a context, some 24 bytes for each pair of a cluster and a label that occurs in
// it, and a few arrays of the size of V and of a batch times the clusters; with
// [SetOptions].Spread 40 bytes more a context at the end. There
// is no N x L and no N x r matrix. On 929,589 contexts of 200 dimensions and
// 10,000 labels, 744 MB, a run held at most 94 MB beside them with 100 clusters,
// and 162 MB with 32 x 32.
//
// Labels, k-means and assignments read the contexts from the first to the last,
// in blocks that all goroutines share, which suits a file larger than memory. The
// mini-batches of k-means are read in ascending order too. Gradient descent
// alone reads rows in random order, EpochFraction of them an alternation.
package train
