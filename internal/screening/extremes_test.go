package screening_test

import (
	"math"
	"testing"

	"github.com/learning-to-screen/l2s/internal/exact"
)

// For any temperature and any size of a context, a log-sum and a log-probability are an error or a
// number, and no log-probability is above 0.
func TestLogProbabilitiesAtTheExtremes(t *testing.T) {
	in := shape{labels: 300, dim: 24, clusters: 7, contexts: 10, keep: 30, tail: []float64{0.5, 1}, seed: 3}.instance(t)
	s := in.searcher(t)
	for _, temperature := range []float64{5e-324, 1e-307, 1e-101, exact.MinTemperature, 1e-10, 0.5, 0.7, 1, 1e300, math.MaxFloat64} {
		for _, scale := range []float32{0, 1e-38, 1, 1e4, 1e18, 1e36} {
			for i := range in.n {
				h := make([]float32, len(in.context(i)))
				for j, x := range in.context(i) {
					h[j] = scale * x
				}
				p, err := s.LogProb(h, uint32(30*i), temperature)
				if fits := temperature >= exact.MinTemperature; (err == nil) != fits || fits && !(p <= 0) {
					t.Fatalf("temperature %v, contexts times %v: found a log-probability of %v, %v", temperature, scale, p, err)
				}
				z, err := s.LogSum(h, temperature, 0.9)
				if fits := temperature >= exact.MinTemperature; (err == nil) != fits || fits && !(z.Low <= z.Log && z.Log <= z.High) {
					t.Fatalf("temperature %v, contexts times %v: found a log-sum of %+v, %v", temperature, scale, z, err)
				}
			}
		}
	}
}
