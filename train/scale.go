package train

import (
	"context"
	"math"

	"github.com/learning-to-screen/l2s/kernels"
)

const (
	scaleSample = 2000   // contexts that set the scale
	scaleLimit  = 0x1p20 // the largest scale tried, and its inverse the smallest
	scaleSteps  = 40     // halvings of the logarithm of the range
)

// scaleFor returns the factor on V at which the mean over a sample of contexts
// of max_t P(t|h) is the given confidence. The mean grows with the factor, so
// bisection finds it. Where no factor does (one cluster; contexts between two
// equal vectors) it is 1.
func scaleFor(ctx context.Context, t *trainer, v []float32, confidence float64) (float64, error) {
	return scaleWith(ctx, t, len(v)/t.dim, func(uint32) []float32 { return v }, confidence)
}

// scaleWith is scaleFor where rows(i) are the r vectors that context i is
// compared with.
func scaleWith(ctx context.Context, t *trainer, r int, rows func(i uint32) []float32, confidence float64) (float64, error) {
	random := newRNG(t.seedValue, streamScale, 0)
	sample := random.sample(t.n, min(t.n, scaleSample))
	logits := make([]float64, len(sample)*r)
	top := make([]float64, len(sample))
	scaled := make([][]float64, t.threads)
	for i := range scaled {
		scaled[i] = make([]float64, r)
	}
	const chunk = 64
	err := forEach(ctx, t.threads, len(sample), chunk, nil, func(_, lo, hi int) error {
		for i := lo; i < hi; i++ {
			kernels.RefScan(logits[i*r:(i+1)*r], rows(sample[i]), nil, t.row(sample[i]))
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	mean := func(scale float64) (float64, error) {
		err := forEach(ctx, t.threads, len(sample), chunk, nil, func(worker, lo, hi int) error {
			z := scaled[worker]
			for i := lo; i < hi; i++ {
				largest := math.Inf(-1)
				for j, x := range logits[i*r : (i+1)*r] {
					z[j] = float64(scale * x)
					largest = max(largest, z[j])
				}
				top[i] = kernels.Exp(largest - kernels.LogSumExp(z))
			}
			return nil
		})
		sum := 0.0
		for _, p := range top {
			sum += p
		}
		return sum / float64(len(top)), err
	}

	lo, hi := 1/scaleLimit, scaleLimit
	for _, end := range []struct {
		scale float64
		above bool
	}{{lo, true}, {hi, false}} {
		m, err := mean(end.scale)
		if err != nil {
			return 0, err
		}
		if m == confidence || (m > confidence) == end.above {
			return 1, nil
		}
	}
	for range scaleSteps {
		middle := math.Sqrt(float64(lo * hi))
		m, err := mean(middle)
		if err != nil {
			return 0, err
		}
		if m < confidence {
			lo = middle
		} else {
			hi = middle
		}
	}
	return math.Sqrt(float64(lo * hi)), nil
}
