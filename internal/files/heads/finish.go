package heads

import (
	"cmp"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
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

// LogitScale is l2s.Info.Scale.
func (h *Head) LogitScale() float64 { return cmp.Or(h.finish.scale, 1) }

// StateScale is l2s.Info.StateScale.
func (h *Head) StateScale() float64 { return cmp.Or(h.finish.state, 1) }

// SoftCap is l2s.Info.Cap.
func (h *Head) SoftCap() float64 { return h.finish.cap }

// Logit returns the final logit of w.h + b: see l2s.Layer.Scaled.
func (h *Head) Logit(raw float64) float64 {
	x := raw * h.LogitScale()
	if c := h.finish.cap; c > 0 {
		return kernels.SoftCap(x, c)
	}
	return x
}
