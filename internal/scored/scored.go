// Package scored lets benchmarks count the rows that exact searches score by the reference arithmetic.
package scored

// Rows, unless nil, is told of each context of a search how many rows are scored. It must not be set while
// a layer is searched.
var Rows func(n int)

// Count tells Rows, if there is anybody to be told.
func Count(n int) {
	if Rows != nil {
		Rows(n)
	}
}
