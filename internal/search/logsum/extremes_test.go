package logsum_test

import (
	"math"
	"testing"

	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/logsum"
	"github.com/learning-to-screen/l2s/internal/tests/screentest"
)

// For any temperature and any size of a context, a log-sum and a log-probability are an error or a
// number, and no log-probability is above 0.
func TestLogProbabilitiesAtTheExtremes(t *testing.T) {
	in := screentest.Shape{Labels: 300, Dim: 24, Clusters: 7, Contexts: 10, Keep: 30, Tail: []float64{0.5, 1}, Seed: 3}.Instance(t)
	s := in.Searcher(t)
	for _, temperature := range []float64{5e-324, 1e-307, 1e-101, exact.MinTemperature, 1e-10, 0.5, 0.7, 1, 1e300, math.MaxFloat64} {
		for _, scale := range []float32{0, 1e-38, 1, 1e4, 1e18, 1e36} {
			for i := range in.N {
				h := make([]float32, len(in.Context(i)))
				for j, x := range in.Context(i) {
					h[j] = scale * x
				}
				p, err := logsum.LogProb(s, h, uint32(30*i), temperature)
				if fits := temperature >= exact.MinTemperature; (err == nil) != fits || fits && !(p <= 0) {
					t.Fatalf("temperature %v, contexts times %v: found a log-probability of %v, %v", temperature, scale, p, err)
				}
				z, err := logsum.LogSum(s, h, temperature, 0.9)
				if fits := temperature >= exact.MinTemperature; (err == nil) != fits || fits && !(z.Low <= z.Log && z.Log <= z.High) {
					t.Fatalf("temperature %v, contexts times %v: found a log-sum of %+v, %v", temperature, scale, z, err)
				}
			}
		}
	}
}
