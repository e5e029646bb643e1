// Package screen answers, for a context vector h, which k labels of a large
// softmax layer have the largest logits, by looking at few of them: the
// prediction process of "Learning to Screen for Fast Softmax Inference on
// Large Vocabulary Neural Networks", Section 3.
//
// A [Model] is what training leaves: r cluster vectors v_t and a candidate
// set of labels for each. A [Searcher] answers the requests of package softmax:
// it finds the cluster z(h) = argmax_t v_t.h (Eq. 2) and then the best labels
// within the candidate set of z(h). It computes r + |c_z| inner products instead
// of L.
//
// The clusters of a screen may be in groups with vectors u_a of their own, and z(h)
// is sought in the group of the largest u_a.h alone. With g groups of equal size
// that is g + r/g inner products instead of r, which makes many small clusters
// affordable. Groups may overlap: each then has a list of clusters.
//
// A model may carry margins. A context whose best cluster leads the second best
// by less than the probe margin is looked up in the sets of both, or in the set that
// the model has for this pair of clusters, and one whose lead is below the exact margin is answered by the exact layer: between two
// clusters the sets miss most.
//
// A model may have shells: the contexts of a cluster are then told apart by how far they
// lie from its vector, and the far ones, whose labels are harder to foresee, have larger
// sets.
//
// Within the set the answer is exact: logits are computed in the reference
// arithmetic of package kernels, order is by larger logit, ties go to the
// lower id and, for clusters, to the lower cluster. So the same model, layer
// and context give the same ids and the same logits on every CPU. If the
// k best labels of the whole layer are all in the set, the answer equals the
// answer of softmax.Searcher, ids and logits. A label that is not in the set is
// missed: the quality of a screen is the share of true labels in the sets,
// which [Evaluate] measures.
//
// A request may ban, allow and bias labels, and ask for the log of the sum; see
// softmax.Request. The answer says what it was chosen among: the set of one
// cluster, of two, or all labels. The sums that a regression of the tail completes are
// over the sets of both clusters, whether their pair has a set or not, in shell 0.
//
// Beyond the best labels, [Searcher.LogProb] gives the log-probability of any label over
// all labels. For that a model carries an estimate of what the labels outside a set weigh:
// a [Regression] for each cluster. Without one, log-probabilities are among the labels of the
// set.
//
// A Model is immutable and shared by all goroutines. A Searcher is cheap, and
// each goroutine has its own; a query with it allocates nothing. A [Pool] has
// searchers for all goroutines of a service, and changes the model and the layer
// while they ask.
//
// [Model.Save] and [Load] keep a model in a file; FORMAT.md beside this
// package describes it byte by byte.
package screen
