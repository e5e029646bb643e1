// Package train makes a screen for a softmax layer: the cluster weights V and the ranked
// lists of candidates of "Learning to Screen for Fast Softmax Inference on
// Large Vocabulary Neural Networks" (Chen et al., ICLR 2019), Algorithm 1.
//
// The input is a softmax layer (W, b) and N context vectors h of the kind the
// layer will meet in use, for example the outputs of a language model over its
// training text, in the order of the text. [Run] takes these steps:
//
//  1. Labels: the exact top-k of the full layer for every context ([Labels]).
//  2. Some contexts are held out: whole runs of neighbours, since neighbours resemble each other.
//     The next steps learn from the others.
//  3. Spherical k-means over the contexts, seeded by k-means++, gives the first
//     V.
//  4. Where a cluster has contexts enough, V is learned: stochastic gradient descent with
//     fixed candidate sets, through the Gumbel straight-through estimator (Equations 3 to 5)
//     or the closed-form expectation of the loss, alternates with a greedy knapsack, which
//     fills the sets under a budget B. The V that does best on held-out contexts is taken.
//     Its rows are rounded to 4-bit codes times a number.
//  5. For every cluster, and for its shells, it is estimated how likely each
//     label is among the k best of a context there. The labels of each such cell are ranked by
//     that share: the order in which the knapsack takes them.
//  6. A ladder of budgets is measured on the held-out contexts, and one of them becomes the
//     screen's own. The lists are then made again from all contexts.
//  7. If the options ask for it, a tail is fitted, for log-probabilities over all labels
//     ([FitTail]). [DefaultOptions] do not; the command l2s train does.
//
// A run with a tail:
//
//	opt, tail := train.DefaultOptions(), train.DefaultTailOptions()
//	opt.Tail = &tail
//	index, record, err := train.Run(ctx, layer, contexts, opt)
//	pool, err := l2s.NewPool(layer, index, l2s.Options{OverTail: true})
//
// The knapsack comes before the first gradient step, unlike in the paper's
// listing: with all sets empty every cluster costs the same and the gradient
// is exactly zero.
//
// With [Options].Clusters of 0 the run decides the form of the screen by the number of contexts, and
// [Record] gives the reason. docs/training.md describes cells.
//
// # Reproducibility
//
// The result depends on the layer, the contexts and the [Options], and on
// nothing else: not on the number of threads, not on the SIMD level, not on
// the architecture. Equal input gives an equal screen file, byte for byte.
//
// # Long runs
//
// With [Options].Checkpoint a run keeps its state in files, and continues from
// it after an interrupt with the same result. Labels may be computed in parts,
// on other machines, and given as [Options].Labels.
//
// # Within a program that answers
//
// A program that answers by the exact search has the labels of every context that it
// meets, and can make a screen of both in the background, as package learn does:
//
//	opt := train.DefaultOptions()
//	opt.Labels = best             // N rows of opt.K ids, best first, as the exact search gives them
//	opt.Validation = later        // contexts that came after these, or nil: some of these are held out
//	opt.Threads = 1               // of the cores
//	opt.Checkpoint = "m.partial"  // if a later run is to continue this one
//	index, record, err := train.Run(ctx, layer, l2s.Float16(half, layer.Dim()), opt)
//
// Once ctx is cancelled it returns within a fraction of a second. Nothing but the checkpoint is
// written, and the caller removes it: [RemoveCheckpoint]. If all contexts of Validation are
// contexts of training the ladder has no figures.
//
// # Memory
//
// The contexts are read in place and may be a memory-mapped file, of any size, as l2s.OpenContexts
// opens it: they are not copied. If a mapped file is shortened meanwhile, that is an
// error. In addition a run holds some 100 bytes per context, 16 bytes per label of each cell,
// [Options].Validation once more, and a few arrays of the size of V and of a batch times the
// clusters. There is no N x L and no N x r matrix.
package train
