// Package ids has what training counts on lists of labels.
package ids

// UnionSize is the number of ids in either of two ascending lists.
func UnionSize(a, b []uint32) int {
	n := len(a) + len(b)
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i] < b[j]:
			i++
		case a[i] > b[j]:
			j++
		default:
			n, i, j = n-1, i+1, j+1
		}
	}
	return n
}
