package methods

import (
	"math"

	"github.com/learning-to-screen/l2s/softmax"
)

// best collects the labels of the largest logits: the largest first, of equals
// the lower id.
type best struct {
	dst []softmax.Prediction
	n   int // the number collected so far
}

func newBest(dst []softmax.Prediction) best { return best{dst: dst} }

// threshold returns the logit that a label needs to be among the best: the
// least of them once there are enough, and -Inf before.
func (b *best) threshold() float32 {
	if b.n < len(b.dst) || b.n == 0 {
		return float32(math.Inf(-1))
	}
	return float32(b.dst[b.n-1].Logit)
}

// offer adds a label that was not offered before.
func (b *best) offer(id uint32, score float32) {
	logit := float64(score)
	at := b.n
	for at > 0 && (b.dst[at-1].Logit < logit || b.dst[at-1].Logit == logit && b.dst[at-1].ID > id) {
		at--
	}
	if at == len(b.dst) {
		return
	}
	b.n = min(b.n+1, len(b.dst))
	copy(b.dst[at+1:b.n], b.dst[at:])
	b.dst[at] = softmax.Prediction{ID: id, Logit: logit}
}
