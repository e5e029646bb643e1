package learn

import (
	"context"
	"math"

	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/train/internal/corpus"
	"github.com/learning-to-screen/l2s/train/internal/rng"
)

const (
	scaleSample = 2000   // contexts that set the scale
	scaleLimit  = 0x1p20 // the largest scale tried, and its inverse the smallest
	scaleSteps  = 40     // halvings of the logarithm of the range
)

// scaleFor returns the factor on V at which the mean over a sample of contexts
// of max_t P(t|h) is the given confidence. The mean grows with the factor, so
// bisection finds it. If no factor does (one cluster; contexts between two
// equal vectors) it is 1.
func scaleFor(ctx context.Context, c *corpus.Corpus, v []float32, confidence float64) (float64, error) {
	r := len(v) / c.Dim
	random := rng.New(c.Seed, rng.Scale, 0)
	sample := random.Sample(c.N, min(c.N, scaleSample))
	logits := make([]float64, len(sample)*r)
	top := make([]float64, len(sample))
	scaled := make([][]float64, c.Threads)
	for i := range scaled {
		scaled[i] = make([]float64, r)
	}
	const chunk = 64
	err := parallel.Each(ctx, c.Threads, len(sample), chunk, nil, func(_, lo, hi int) error {
		buffer := c.Buffer()
		for i := lo; i < hi; i++ {
			kernels.Float32Rows(v, c.Dim).RefScan(logits[i*r:(i+1)*r], nil, c.Row(sample[i], buffer))
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	mean := func(scale float64) (float64, error) {
		err := parallel.Each(ctx, c.Threads, len(sample), chunk, nil, func(worker, lo, hi int) error {
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
