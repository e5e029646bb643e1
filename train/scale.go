package train

import (
	"context"
	"math"

	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/kernels"
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
func scaleFor(ctx context.Context, d *data, v []float32, confidence float64) (float64, error) {
	return scaleWith(ctx, d, len(v)/d.dim, func(uint32) []float32 { return v }, confidence)
}

// scaleWith is scaleFor if rows(i) are the r vectors that context i is
// compared with.
func scaleWith(ctx context.Context, d *data, r int, rows func(i uint32) []float32, confidence float64) (float64, error) {
	random := rng.New(d.seed, rng.Scale, 0)
	sample := random.Sample(d.n, min(d.n, scaleSample))
	logits := make([]float64, len(sample)*r)
	top := make([]float64, len(sample))
	scaled := make([][]float64, d.threads)
	for i := range scaled {
		scaled[i] = make([]float64, r)
	}
	const chunk = 64
	err := parallel.Each(ctx, d.threads, len(sample), chunk, nil, func(_, lo, hi int) error {
		for i := lo; i < hi; i++ {
			kernels.Float32Rows(rows(sample[i]), d.dim).RefScan(logits[i*r:(i+1)*r], nil, d.row(sample[i]))
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	mean := func(scale float64) (float64, error) {
		err := parallel.Each(ctx, d.threads, len(sample), chunk, nil, func(worker, lo, hi int) error {
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

// scaleClusters brings the weights of k-means to the confidence that learning
// starts from, each level on its own, and returns the factors: the one of V and 0,
// or the two of U and V.
func scaleClusters(ctx context.Context, d *data, c *clusters, confidence float64) (scale, groupScale float64, err error) {
	u, v := c.split(c.weights, d.dim)
	stretch := func(rows []float32, factor float64) {
		for i, x := range rows {
			rows[i] = float32(factor * float64(x))
		}
	}
	if c.groups == 0 {
		if scale, err = scaleFor(ctx, d, v, confidence); err == nil {
			stretch(v, scale)
		}
		return scale, 0, err
	}
	if scale, err = scaleFor(ctx, d, u, confidence); err != nil {
		return 0, 0, err
	}
	per := c.perGroup()
	own := func(i uint32) []float32 { // the clusters of the context's group
		a := int(c.cluster[i]) / per
		return v[a*per*d.dim : (a+1)*per*d.dim]
	}
	if groupScale, err = scaleWith(ctx, d, per, own, confidence); err != nil {
		return 0, 0, err
	}
	stretch(u, scale)
	stretch(v, groupScale)
	return scale, groupScale, nil
}
