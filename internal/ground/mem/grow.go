package mem

// Grow returns a slice of n elements of any value, s if its capacity allows.
func Grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
