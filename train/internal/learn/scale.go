package learn

import (
	"math"

	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/train/internal/corpus"
	"github.com/learning-to-screen/l2s/train/internal/rng"
)

const (
	scaleSample = 2000 // contexts that set the scale
	scaleLimit  = 14   // the logarithm of the largest scale tried; the smallest is its inverse
	scaleSteps  = 40   // halvings of that range of logarithms
)

// scaleFor returns the factor on V at which the mean over a sample of contexts
// of max_t P(t|h) is the given confidence. The mean grows with the factor, so
// bisection finds it. If no factor does (one cluster; contexts between two
// equal vectors) it is 1.
func scaleFor(c *corpus.Corpus, v []float32, confidence float64) float64 {
	random := rng.New(c.Seed, rng.Scale, 0)
	sample, buffer := random.Sample(c.N, min(c.N, scaleSample)), c.Buffer()
	r := len(v) / c.Dim
	logits, scaled := make([]float64, len(sample)*r), make([]float64, r)
	for i, id := range sample {
		kernels.Float32Rows(v, c.Dim).RefScan(logits[i*r:(i+1)*r], nil, c.Row(id, buffer))
	}
	mean := func(scale float64) (sum float64) {
		for i := range sample {
			largest := math.Inf(-1)
			for j, x := range logits[i*r : (i+1)*r] {
				scaled[j] = float64(scale * x)
				largest = max(largest, scaled[j])
			}
			sum += kernels.Exp(largest - kernels.LogSumExp(scaled))
		}
		return sum / float64(len(sample))
	}
	lo, hi := -float64(scaleLimit), float64(scaleLimit)
	if mean(kernels.Exp(lo)) >= confidence || mean(kernels.Exp(hi)) <= confidence {
		return 1
	}
	for range scaleSteps {
		if middle := (lo + hi) / 2; mean(kernels.Exp(middle)) < confidence {
			lo = middle
		} else {
			hi = middle
		}
	}
	return kernels.Exp((lo + hi) / 2)
}
