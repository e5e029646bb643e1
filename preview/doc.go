// Package preview finds the largest logits of a large softmax layer without a training: by a look at few
// coordinates of some of its labels.
//
// A [Model] has coordinates in which the logits of a layer differ most over contexts (DRONE, Chen et al.,
// NeurIPS 2021), and blocks of labels that are close in them. It is made by [Make] from the layer and some
// thousand contexts, whose labels need not be known, and kept in a small file. A [Searcher] takes a context to
// these coordinates, computes the products with the centres of the blocks, and previews (SVD-softmax, Shim et al.,
// NIPS 2017) of the labels in the blocks that may hold one of the best, from codes of 4 bits. The labels
// whose previews are near the best ones are scored in full. So logits and their order are exact among what
// is looked at, but a label may be missed. How far to look is chosen by each query; the rungs of a model say how
// precise that was on contexts that the model was not made from.
//
// What a context has outside the coordinates is known for each: where it is much, as in a language that the
// model was not made from, more is looked at, up to the exact search.
package preview
