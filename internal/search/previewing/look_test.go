package previewing

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
)

// The mean of e^x over a normal distribution of which nothing is above a limit, by a sum over small
// steps, is at most what its estimate says, and not far below it.
func TestRaisedIsABoundOfTheMean(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		square, far := rapid.Float64Range(1e-3, 400).Draw(t, "square"), rapid.Float64Range(1e-3, 60).Draw(t, "far")
		deviation := math.Sqrt(square)
		const steps = 40000
		from := min(-12*deviation, far-60)
		width := (far - from) / steps
		log := math.Inf(-1)
		for i := range steps {
			x := from + (float64(i)+0.5)*width
			log = kernels.LogAddExp(log, x-x*x/(2*square))
		}
		log += math.Log(width / (deviation * math.Sqrt(2*math.Pi)))
		if got := raised(square, far); got < log-1e-3 || got > log+1+math.Log(1+3*deviation) {
			t.Fatalf("square %v, far %v: found %v, want at least %v, and not much more", square, far, got, log)
		}
	})
}
