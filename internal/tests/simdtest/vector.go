package simdtest

import (
	"math"
	"math/rand/v2"
)

// Vector returns d numbers of one of ten kinds that strain the intervals of codes, at most scale in
// magnitude.
func Vector(r *rand.Rand, kind int, scale float64, d int) []float32 {
	x := make([]float32, d)
	for i := range x {
		v := r.NormFloat64()
		switch kind {
		case 0: // constant
			v = 1
		case 1: // one large, many small
			if i > 0 {
				v *= 1e-3
			}
		case 2: // halfway between two codes
			v = (float64(r.IntN(253)-126) + 0.5) / 127
			if i == 0 {
				v = 1
			}
		case 3: // magnitudes far apart
			v = math.Ldexp(v, r.IntN(40)-40)
		case 4: // zeros
			v = 0
		case 5: // alternating, to cancel
			v = math.Copysign(1, float64(i%2)-0.5)
		case 6: // just off the codes
			v = (float64(r.IntN(255)-127) + 0.499) / 127
		}
		x[i] = float32(math.Max(-1, math.Min(1, v)) * scale)
	}
	return x
}
