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
// exponential distribution, so exp(log P + g) is P/E: no logarithm is needed.
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

// The ziggurat of Marsaglia and Tsang (2000) for the density exp(-x): layers
// of equal area zigguratArea, the lowest of which reaches to zigguratEnd and
// holds the tail beyond it too.
const (
	zigguratLayers = 256
	zigguratEnd    = 7.69711747013104972
	zigguratArea   = 0.0039496598225815571993
)

// zigguratX[i] is the width of layer i (of a rectangle of the same area, for the
// lowest), zigguratY[i] the density there.
var zigguratX, zigguratY = ziggurat()

func ziggurat() (x, y [zigguratLayers + 1]float64) {
	y[1] = kernels.Exp(-zigguratEnd)
	x[0], x[1] = zigguratArea/y[1], zigguratEnd
	for i := 2; i < zigguratLayers; i++ {
		y[i] = y[i-1] + zigguratArea/x[i-1]
		x[i] = -kernels.Log(y[i])
	}
	y[zigguratLayers] = 1
	return x, y
}

// exponential is a sample of the exponential distribution with mean 1, never
// 0. It takes one output of the generator nearly always.
func exponential(random *rng.Source) float64 {
	for {
		bits := random.Next()
		i := bits % zigguratLayers
		x := (float64(bits>>12) + 0.5) * 0x1p-52 * zigguratX[i]
		switch {
		case x < zigguratX[i+1]:
			return x
		case i == 0:
			// The tail is the distribution itself, moved.
			return zigguratEnd - kernels.Log(random.Uniform())
		case zigguratY[i]+float64(random.Uniform()*(zigguratY[i+1]-zigguratY[i])) < kernels.Exp(-x):
			return x
		}
	}
}
