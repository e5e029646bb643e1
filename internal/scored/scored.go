// Package scored lets benchmarks count the rows that exact searches score by the reference
// arithmetic.
package scored

// Rows, unless nil, gets the number of scored rows for each context of a search. It must not be set
// while a layer is searched.
var Rows func(n int)

// Count calls Rows, unless it is nil.
func Count(n int) {
	if Rows != nil {
		Rows(n)
	}
}
