package methods

import (
	"math"
	"testing"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/dense"
)

// A score is the upper end of the interval of the logit; without one,
// the logit in float32.
func TestScoresAreNearTheLogits(t *testing.T) {
	in, contexts := small(t)
	l, d := in.Layer, in.Layer.Dim()
	large := make([]float32, len(dense.Weights(l)))
	for i, x := range dense.Weights(l) {
		large[i] = x * (1 << 50)
	}
	small := make([]float32, d)
	for i, x := range contexts[0] {
		small[i] = x * (1.0 / (1 << 100))
	}
	for _, c := range []struct {
		name      string
		weights   []float32
		h         []float32
		certified bool
	}{
		{"certified", dense.Weights(l), contexts[0], true},
		{"large weights", large, contexts[0], false},
		{"small context", dense.Weights(l), small, false},
	} {
		s := newScorer(newCodes(c.weights, l.Bias(), d), l.Labels())
		s.set(c.h)
		if got := s.rows != nil && s.fit == kernels.Certified; got != c.certified {
			t.Errorf("%s: certified %v", c.name, got)
		}
		all, one, id := make([]float32, l.Labels()), make([]float32, 1), uint32(17)
		s.scan(all)
		s.gather(one, []uint32{id})
		// Scans and gathers may sum float32 products in different orders.
		if diff := math.Abs(float64(one[0] - all[id])); diff > 1e-5*math.Abs(float64(all[id])) {
			t.Errorf("%s: row %d: gathered %v, scanned %v", c.name, id, one[0], all[id])
		}
		for i, score := range all {
			w := c.weights[i*d : (i+1)*d]
			logit := kernels.RefDot(w, c.h) + float64(l.Bias()[i])
			room := 1e-5 * math.Sqrt(kernels.RefDot(w, w)*kernels.RefDot(c.h, c.h))
			if c.certified {
				room *= 3000 // int8 codes of 24 elements
				if float64(score) < logit {
					t.Errorf("%s: row %d: score %v is below the logit %v", c.name, i, score, logit)
				}
			}
			if math.Abs(float64(score)-logit) > room+1e-6 {
				t.Errorf("%s: row %d: score %v, logit %v", c.name, i, score, logit)
			}
		}
	}
}
