// Package previewing finds the largest logits of a large softmax layer by a look at few coordinates
// of some of its labels. Package preview is its public form and has the comments for both; package
// making makes the models.
package previewing
