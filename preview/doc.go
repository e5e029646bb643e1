// Package preview makes the index of a large softmax layer without a training, from some thousand
// contexts, whose labels need not be known: see l2s.Index.
//
// A preview has coordinates in which the logits of a layer differ most over contexts (DRONE, Chen
// et al., NeurIPS 2021), and the codes of all labels in them. A search transforms a context to these
// coordinates, and computes previews (SVD-softmax, Shim et al., NIPS 2017) in stages: of the
// centres of panels of 16 labels, by 80 codes of 2 bits, then of the labels that may be among the best. The
// labels whose previews are near the best ones are scored in full. So logits and their order are
// exact among the labels that are scored, but a label may be missed. Each query chooses how far to
// look; the steps of a preview have the precision on contexts that it was not made from, and on own
// states: of each label of a sample a context in which it leads.
//
// What the codes so far leave of a context is known at each stage: if it is large, as in a language
// that the preview was not made from, the search looks at more labels, up to the exact search.
//
// FORMAT.md in the folder of this package describes the file of a preview byte by byte.
package preview
