// Package engine is the inside of package l2s, whose opaque types are the same memory under other
// names: `(*engine.Layer)(layer)` has the parts that other packages of the module need. A layer
// knows the file that its rows are in, an index is a screen or a preview, and a searcher asks the
// search that belongs to its index: exact, screening or previewing. What they have in common is
// here: the guard of mapped rows, batches, counts, probabilities, and pools.
package engine
