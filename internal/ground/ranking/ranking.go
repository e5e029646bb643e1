// Package ranking has predictions, which are labels with their logits, and their order.
package ranking

// Prediction is one label and its logit x_s = w_s.h + b_s, plus the label's bias
// of the request if it has one.
type Prediction struct {
	ID    uint32
	Logit float64
}

// before orders predictions by larger logit, ties by the lower id.
func (p Prediction) before(o Prediction) bool {
	return p.Logit > o.Logit || p.Logit == o.Logit && p.ID < o.ID
}

// Compare is negative if p is better than o, by the larger logit, and of equal ones by the
// lower id, and 0 if they are the same.
func Compare(p, o Prediction) int {
	switch {
	case p.before(o):
		return -1
	case p == o:
		return 0
	}
	return 1
}

// IDs appends the labels of predictions to ids.
func IDs(ids []uint32, of []Prediction) []uint32 {
	for _, p := range of {
		ids = append(ids, p.ID)
	}
	return ids
}

// Insert puts x in its place among the first n of dst, which are in order, if there is room or x is
// before the last, which is then left out. It returns their new number.
func Insert(dst []Prediction, n int, x Prediction) int {
	j := n
	if n < len(dst) {
		n++
	} else if j--; !x.before(dst[j]) {
		return n
	}
	for ; j > 0 && x.before(dst[j-1]); j-- {
		dst[j] = dst[j-1]
	}
	dst[j] = x
	return n
}
