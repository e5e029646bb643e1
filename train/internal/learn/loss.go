package learn

import (
	"math/bits"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/train/internal/rng"
)

// lossTable gives the loss of every cluster for a context. By Equation 6 the
// loss of h_i in cluster t is
//
//	l_it = (k - hits_it) + lambda (|c_t| - hits_it)
//
// where hits_it is the number of the k labels of h_i that are in c_t.
type lossTable struct {
	words int       // of a row of bits
	bits  []uint64  // labels x words: which clusters' sets hold a label, one bit a cluster
	sizes []int     // |c_t|
	gain  float64   // 1 + lambda: the saving of a hit
	fixed []float64 // k + lambda |c_t|
}

func newLossTable(sets [][]uint32, labels, k int, lambda float64) *lossTable {
	words := (len(sets) + 63) / 64
	l := &lossTable{words, make([]uint64, labels*words), make([]int, len(sets)), 1 + lambda, make([]float64, len(sets))}
	for t, set := range sets {
		l.sizes[t], l.fixed[t] = len(set), float64(k)+float64(lambda*float64(len(set)))
		for _, s := range set {
			l.bits[int(s)*words+t/64] |= 1 << (t % 64)
		}
	}
	return l
}

// has reports whether label s is in c_t.
func (l *lossTable) has(t int, s uint32) bool {
	return l.bits[int(s)*l.words+t/64]>>(t%64)&1 != 0
}

// losses sets dst[t] to l_it for the context with these labels, and hits[t] to hits_it.
func (l *lossTable) losses(dst []float64, hits, labels []uint32) {
	clear(hits)
	for _, s := range labels {
		for w, x := range l.bits[int(s)*l.words : (int(s)+1)*l.words] {
			for ; x != 0; x &= x - 1 {
				hits[w*64+bits.TrailingZeros64(x)]++
			}
		}
	}
	for t, n := range hits {
		dst[t] = l.fixed[t] - float64(l.gain*float64(n))
	}
}

// softmaxGradient writes scale times the gradient, with respect to the logits z, of the
// expectation of costs under p = softmax(z + g), for a constant g:
//
//	d/dz_t sum_j p_j cost_j = p_t (cost_t - sum_j p_j cost_j)
func softmaxGradient(dst []float32, p, cost []float64, scale float64) {
	mean := 0.0
	for t, x := range p {
		mean += float64(x * cost[t])
	}
	for t, x := range p {
		dst[t] = float32(float64(scale*x) * (cost[t] - mean))
	}
}

// relaxGumbel turns the probabilities p = P(.|h) into a sample of the
// Gumbel-softmax distribution at temperature 1 (Equation 5; Jang, Gu and Poole
// 2017),
//
//	p_t = exp(log P(t|h) + g_t) / sum_j exp(log P(j|h) + g_j)
//
// with g_t from Gumbel(0, 1): -log E with E from the exponential distribution, so that
// exp(log P + g) is P/E. The largest element is at t with probability P(t|h) (Equation 4).
func relaxGumbel(p []float64, random *rng.Source) {
	sum := 0.0
	for t := range p {
		p[t] /= exponential(random)
		sum += p[t]
	}
	inverse := 1 / sum
	for t := range p {
		p[t] *= inverse
	}
}

// exponential is a sample of the exponential distribution with mean 1, never 0.
func exponential(random *rng.Source) float64 { return -kernels.Log(random.Uniform()) }
