package train

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
	layers "github.com/learning-to-screen/l2s/internal/tests/synthetic"
)

// Contexts that no training had have intervals that hold what they promise, or exact sums: random
// directions of the contexts' lengths, and contexts that are scaled or turned around. The bound
// leaves three deviations of a count for chance.
func TestIntervalsHoldOnContextsUnlikeThoseOfTheTraining(t *testing.T) {
	simdtest.Long(t)
	const dim, n, ask, confidence = 24, 6000, 400, 0.95
	d := layers.Structured(2000, dim, 30, n+ask, 1)
	opt, tail := DefaultOptions(), DefaultTailOptions()
	opt.Tail = &tail
	m, _, err := Run(t.Context(), d.Layer, l2s.Float32(d.Contexts[:n*dim], dim), opt)
	if err != nil {
		t.Fatal(err)
	}
	s, err := l2s.NewSearcher(d.Layer, m, l2s.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(5, 6))
	scaled := func(by float64) func(h []float32) []float32 {
		return func(h []float32) (x []float32) {
			for _, v := range h {
				x = append(x, float32(by*float64(v)))
			}
			return x
		}
	}
	for _, c := range []struct {
		name   string
		change func(h []float32) []float32
	}{
		{"unseen", scaled(1)},
		{"random directions", func(h []float32) (x []float32) {
			for range h {
				x = append(x, float32(r.NormFloat64()))
			}
			return scaled(math.Sqrt(kernels.RefDot(h, h) / kernels.RefDot(x, x)))(x)
		}},
		{"the mean of two", func(h []float32) (x []float32) {
			other := d.Contexts[r.IntN(n)*dim:][:dim]
			for j, v := range h {
				x = append(x, v+other[j])
			}
			return scaled(math.Sqrt(kernels.RefDot(h, h) / kernels.RefDot(x, x)))(x)
		}},
		{"times 1.3", scaled(1.3)}, {"times .7", scaled(0.7)}, {"turned around", scaled(-1)},
	} {
		outside, estimated := 0, 0
		for i := range ask {
			h := c.change(d.Contexts[(n+i)*dim:][:dim])
			z, err := s.LogSum(h, 1, confidence)
			if err != nil {
				t.Fatal(err)
			}
			want := logZ(t, d.Exact, h, 1)
			if z.Low < z.High {
				estimated++
			}
			if want < z.Low-1e-9 || want > z.High+1e-9 {
				outside++
			}
		}
		t.Logf("%s: %d of %d outside, %d estimated", c.name, outside, ask, estimated)
		if most := (1-confidence)*ask + 3*math.Sqrt(ask*confidence*(1-confidence)); float64(outside) > most {
			t.Errorf("%s: found %d of %d sums outside their intervals (%d estimated), expected %.0f at most", c.name, outside, ask, estimated, most)
		}
	}
}
