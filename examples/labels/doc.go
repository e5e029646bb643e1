// Package labels has no code: its tests run the recipes of docs/labels.md, and compare their files
// with the labels of one run without shards.
package labels
