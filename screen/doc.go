// Package screen answers, for a context vector h, which k labels of a large softmax layer have the
// largest logits, by looking at few of them: the prediction process of "Learning to Screen for Fast
// Softmax Inference on Large Vocabulary Neural Networks", Section 3.
//
// A [Model] is the result of training: r cluster vectors v_t, and a ranked list of candidates for
// each cell. The cluster of a context is z(h) = argmax_t v_t.h (Eq. 2). A cell is a cluster, or a
// part of it: shells separate contexts by their distance from the vector of their cluster.
//
// Each label of a list has a share: how likely it is among the best. A budget is a threshold of
// shares, so that the candidates of a smaller budget are the first candidates of a larger one, and
// one model serves all budgets of its ladder ([Model.Ladder]), with the precision that each has on
// contexts held out from training. A searcher ([Options]) or a request (softmax.Request) may have
// another budget than the model.
//
// A [Searcher] answers the requests of package softmax: it finds the cell of h, and then the best
// labels among the candidates of the cell, by r + |candidates| inner products instead of L. The
// exact layer answers a request that is Exact, and a context that has fewer candidates than labels are
// wanted.
//
// Among the candidates the answer is exact: logits are computed in the reference arithmetic of
// package kernels, order is by larger logit, ties go to the lower id and, for clusters, to the
// lower cluster. So the same model, layer and context give the same ids and the same logits on
// every CPU. If the k best labels of the layer are all candidates, the answer equals the answer of
// softmax.Searcher. A label that is no candidate is missed: [Evaluate] measures the number of
// missed labels, for every budget at once.
//
// Beyond the best labels, [Searcher.LogProb] gives the log-probability of any label over all
// labels, for a model that has a tail: an estimate of the weight of the labels that are not
// looked at ([ErrNoTail]).
//
// A Model is immutable and shared by all goroutines. A Searcher is cheap, and each goroutine has
// its own; a query with it allocates nothing. A [Pool] has searchers for all goroutines of a
// service, and changes the model and the layer while they ask. [Model.Save] and [Load] keep a model
// in a file; FORMAT.md in the folder of this package describes it byte by byte.
package screen
