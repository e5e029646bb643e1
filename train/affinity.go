package train

import (
	"context"
	"math"

	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
)

// affinitySample is the number of contexts that the affinity is measured on.
const affinitySample = 64

// findAffinity measures how far the best logit of a context stands out of all
// its logits: (max x - mean x) / deviation of x, against sqrt(2 ln L), which the
// largest of L normal numbers comes to. It is the mean over some contexts.
func findAffinity(ctx context.Context, d *data, layer *softmax.Layer) (float64, error) {
	n := min(affinitySample, d.n)
	found := make([]float64, n)
	logits := make([][]float64, d.threads)
	err := parallel.Each(ctx, d.threads, n, 1, nil, func(worker, j, _ int) error {
		if logits[worker] == nil {
			logits[worker] = make([]float64, d.universe)
		}
		x := logits[worker]
		layer.Weights().RefScan(x, layer.Bias(), d.row(uint32(j*d.n/n)))
		best, sum, squares := math.Inf(-1), 0.0, 0.0
		for _, v := range x {
			best = max(best, v)
			sum += v
		}
		mean := sum / float64(len(x))
		for _, v := range x {
			squares += float64((v - mean) * (v - mean))
		}
		if squares > 0 {
			found[j] = (best - mean) / math.Sqrt(squares/float64(len(x)))
		}
		return nil
	})
	if err != nil || d.universe < 2 {
		return 0, err
	}
	sum := 0.0
	for _, x := range found {
		sum += x
	}
	return sum / (float64(n) * math.Sqrt(2*kernels.Log(float64(d.universe)))), nil
}
