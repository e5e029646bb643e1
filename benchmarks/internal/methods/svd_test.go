package methods

import (
	"math"
	"testing"

	"github.com/learning-to-screen/l2s/internal/codes/floats"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/dense"
)

// V is orthonormal, the columns of A = W V are orthogonal and their norms, the
// singular values, descend; with all of them the preview is the logit.
func TestSVDSoftmaxFactors(t *testing.T) {
	in, contexts := small(t)
	l, d := in.Layer, in.Layer.Dim()
	x := build(t, SVDSoftmax{d}, in).(*svdIndex)
	a := x.preview.weights
	column := func(j int) []float32 {
		c := make([]float32, l.Labels())
		for s := range c {
			c[s] = a[s*d+j]
		}
		return c
	}
	last := math.Inf(1)
	for j := range d {
		cj := column(j)
		square := kernels.RefDot(cj, cj)
		if square > last*(1+1e-6) {
			t.Errorf("singular value %d is larger than the one before", j)
		}
		last = square
		for k := range j + 1 {
			want := 0.0
			if j == k {
				want = 1
			}
			if got := kernels.RefDot(x.v[j*d:(j+1)*d], x.v[k*d:(k+1)*d]); math.Abs(got-want) > 1e-5 {
				t.Errorf("v_%d.v_%d = %v, want %v", j, k, got, want)
			}
			if ck := column(k); j != k && math.Abs(kernels.RefDot(cj, ck)) > 1e-4*math.Sqrt(square*kernels.RefDot(ck, ck)) {
				t.Errorf("columns %d and %d of A are not orthogonal", j, k)
			}
		}
	}
	h := contexts[0]
	rotated, preview, logits := make([]float32, d), make([]float32, l.Labels()), make([]float32, l.Labels())
	floats.Scan(rotated, x.v, nil, h)
	floats.Scan(preview, a, x.preview.bias, rotated)
	floats.Scan(logits, dense.Weights(l), l.Bias(), h)
	for s := range logits {
		if math.Abs(float64(preview[s]-logits[s])) > 1e-4 {
			t.Errorf("label %d: preview %v, want the logit %v", s, preview[s], logits[s])
		}
	}
}
