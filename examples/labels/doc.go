// Package labels has no code: its tests run the recipes of docs/labels.md, and compare
// what they leave with the labels of one run without shards.
package labels
