package learn

import (
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/train/internal/rng"
)

// relaxGumbel turns the probabilities p = P(.|h) into a sample of the
// Gumbel-softmax distribution at temperature 1 (Equation 5; Jang, Gu and Poole
// 2017),
//
//	p_t = exp(log P(t|h) + g_t) / sum_j exp(log P(j|h) + g_j)
//
// with g_t from Gumbel(0, 1). A Gumbel variable is -log E with E from the
// exponential distribution, so exp(log P + g) is P/E.
// The largest element is at t with probability P(t|h) (Equation 4).
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
