package methods

import (
	"cmp"

	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// best collects the labels of the largest logits: the largest first, of equals the lower id.
type best struct {
	dst []exact.Prediction
	n   int // the number collected so far
}

// full reports whether the list has no more room.
func (b *best) full() bool { return b.n == len(b.dst) }

// offer adds a label that was not offered before, and reports whether it is among the best so far.
func (b *best) offer(p exact.Prediction) bool {
	at := b.n
	for at > 0 && compare(p, b.dst[at-1]) < 0 {
		at--
	}
	if at == len(b.dst) {
		return false
	}
	b.n = min(b.n+1, len(b.dst))
	copy(b.dst[at+1:b.n], b.dst[at:])
	b.dst[at] = p
	return true
}

// compare orders labels as answers do.
func compare(p, q exact.Prediction) int {
	return cmp.Or(cmp.Compare(q.Logit, p.Logit), cmp.Compare(p.ID, q.ID))
}
