package previewing

import (
	"cmp"
	"math"

	"github.com/learning-to-screen/l2s/internal/exact"
	"github.com/learning-to-screen/l2s/internal/kernels"
)

// outside returns the estimate of the log-sum over the labels that are not scored in full: by their
// previews, or by the spread of their block. The part outside the coordinates is taken for normal,
// and no label of a block that was not looked at is above the mark. The kept rows lose their
// previews.
func (l *Look) outside(req *exact.Request, kept []uint32, mark float32) float64 {
	p, temperature := l.parts, l.layer.RawTemperature(cmp.Or(req.Temperature, 1))
	for _, row := range kept {
		l.Scores[row] = none
	}
	scale := float32(min(max(1/temperature, 0x1p-126), math.MaxFloat32))
	sum := func(previews []float32) float64 {
		most, sum := kernels.SumExpCentres(previews, previews, scale)
		return float64(most)/temperature + kernels.Log(sum)
	}
	rest := sum(l.Scores)
	// The blocks that were looked at are those with rows in panels.
	for _, panel := range l.panels[:len(l.Scores)/kernels.PanelRows] {
		l.seen[l.model.owner[panel]] = true
	}
	for b, seen := range l.seen {
		if l.seen[b], l.wide[b] = false, none; seen {
			continue
		}
		size := float32(kernels.Log(float64(p.Sizes[b])) * temperature)
		off := float64(l.Length * float64(p.Radii[b]))
		square, far := float64(off*off)/temperature, float64(mark-l.Centre[b])
		l.wide[b] = l.Centre[b] + size + float32(raised(square, far))
	}
	rest = kernels.LogAddExp(rest, sum(l.wide))
	mean := 0.0 // the product of the context with the mean row
	for j, x := range l.x {
		mean += float64(float64(x) * float64(p.Mean[j]))
	}
	return rest + mean/temperature + float64(p.Tail*float64(l.Sigma*l.Sigma))/(2*temperature*temperature)
}

// raised returns by how much a normal distribution raises the log of the mean of e^x above its
// centre, if no x is more than far above it, which is above 0: half the square of its deviation, as
// long as the x that matter most, a square above the centre, are there. If not it returns a bound.
func raised(square, far float64) float64 {
	if square <= far {
		return square / 2
	}
	return far - float64(far*far)/(2*square)
}
