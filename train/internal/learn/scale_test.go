package learn

import (
	"math"
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/train/internal/kmeans"
	"github.com/learning-to-screen/l2s/train/internal/traintest"
)

func TestScaleReachesTheConfidence(t *testing.T) {
	c := traintest.Around(t, 8, 500, 10, 5, 6, 0.4).Corpus(t, 1)
	v, _, err := kmeans.Find(t.Context(), c, 6, 20)
	if err != nil {
		t.Fatal(err)
	}
	for _, confidence := range []float64{0.3, 0.8, 0.95} {
		scale := scaleFor(c, v, confidence)
		mean := 0.0
		for i := range c.N {
			z := make([]float64, 6)
			for t := range z {
				z[t] = scale * kernels.RefDot(v[t*c.Dim:(t+1)*c.Dim], c.Row(uint32(i), nil))
			}
			mean += slices.Max(softmax(z)) / float64(c.N)
		}
		if math.Abs(mean-confidence) > 1e-6 {
			t.Errorf("confidence %v: found %v at scale %v", confidence, mean, scale)
		}
	}
}

func TestScaleIsOneWhereNoneServes(t *testing.T) {
	c := traintest.Around(t, 8, 50, 4, 5, 2, 0.4).Corpus(t, 1)
	for name, v := range map[string][]float32{"one cluster": {1, 0, 0, 0}, "equal clusters": {1, 0, 0, 0, 1, 0, 0, 0}, "zero": make([]float32, 8)} {
		if scale := scaleFor(c, v, 0.8); scale != 1 {
			t.Errorf("%s: found %v, want 1", name, scale)
		}
	}
}

// softmax is the softmax by plain loops.
func softmax(z []float64) []float64 {
	largest := math.Inf(-1)
	for _, x := range z {
		largest = max(largest, x)
	}
	p, sum := make([]float64, len(z)), 0.0
	for i, x := range z {
		p[i] = math.Exp(x - largest)
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}
