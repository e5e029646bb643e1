package shares

import (
	"math"
	"sync"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
)

const (
	phiEnd  = 8  // for larger magnitudes Phi counts as 0 or 1
	phiStep = 64 // places of the table a unit
)

// phiTable has Phi, the distribution function of the standard normal
// distribution, at every place from -phiEnd on: the sum of Simpson's rule over
// each step. It gives the same bits on every architecture, which math.Erfc does
// not.
var phiTable = sync.OnceValue(func() []float64 {
	density := func(x float64) float64 {
		return kernels.Exp(-float64(x*x)/2) / math.Sqrt(2*math.Pi)
	}
	at := func(place float64) float64 { return place/phiStep - phiEnd }
	table := make([]float64, 2*phiEnd*phiStep+1)
	for i := 1; i < len(table); i++ {
		place := float64(i - 1)
		sum := density(at(place)) + float64(4*density(at(place+0.5))) + density(at(place+1))
		table[i] = table[i-1] + sum/(6*phiStep)
	}
	return table
})

// phi returns Phi(x) within 2e-5, and within .3% of it above 1e-12, by
// interpolation in the table. It is 0 for a NaN.
func phi(table []float64, x float64) float64 {
	switch {
	case !(x > -phiEnd):
		return 0
	case x >= phiEnd:
		return 1
	}
	place := float64((x + phiEnd) * phiStep)
	i := min(int(place), len(table)-2)
	return table[i] + float64((place-float64(i))*(table[i+1]-table[i]))
}
