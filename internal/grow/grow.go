// Package grow reuses memory.
package grow

// Slice returns a slice of n elements, s if its capacity allows. What the
// elements are is not said.
func Slice[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
