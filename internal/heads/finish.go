package heads

import (
	"math"

	"github.com/learning-to-screen/l2s/internal/kernels"
)

// finish multiplies a state before the head by state, and a logit by scale; then, if there is a
// cap, it maps the logit x to cap*tanh(x/cap).
type finish struct {
	scale float64 // 0 means 1
	cap   float64 // 0 for none
	state float64 // 0 means 1
}

// inRange reports whether x can be a scale or a cap, or a number that a scale is computed from: x
// and 1/x are normal numbers of float32, and a final logit is within float64.
func inRange(x float64) bool { return 0x1p-126 <= x && x <= 0x1p126 }

const rangeText = "a number from 1.2e-38 to 8.5e+37"

// LogitScale is documented in package head.
func (h *Head) LogitScale() float64 {
	if h.finish.scale == 0 {
		return 1
	}
	return h.finish.scale
}

// StateScale is documented in package head.
func (h *Head) StateScale() float64 {
	if h.finish.state == 0 {
		return 1
	}
	return h.finish.state
}

// SoftCap is documented in package head.
func (h *Head) SoftCap() float64 { return h.finish.cap }

// Logit is documented in package head.
func (h *Head) Logit(raw float64) float64 {
	x := raw * h.LogitScale()
	if c := h.finish.cap; c > 0 {
		return c * tanh(x/c)
	}
	return x
}

// tanh is within a few units in the last place of the hyperbolic tangent, with the
// same bits on every machine, which math.Tanh does not promise.
func tanh(x float64) float64 {
	switch a := math.Abs(x); {
	case a < 0x1p-27: // the next term is below a half of the last place
		return x
	case a >= 1.0/16 || a != a:
		return math.Copysign(1-2/(kernels.Exp(2*a)+1), x)
	}
	// The Taylor series; the remainder is below 2^-60 of x.
	p, x2 := 21844.0/6081075, float64(x*x)
	for _, c := range [...]float64{-1382.0 / 155925, 62.0 / 2835, -17.0 / 315, 2.0 / 15, -1.0 / 3} {
		p = float64(p*x2) + c
	}
	return x + float64(float64(x*x2)*p)
}
