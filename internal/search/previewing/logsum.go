package previewing

import (
	"cmp"
	"math"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// outside returns the estimate of the log-sum over the labels that are not scored in full, by their
// previews after the last stage that looked at them. What they have beyond their codes is taken for
// normal, and no label that was left out is above the mark. Labels that were looked at by more than one
// stage lose their scores.
func (l *Look) outside(req *exact.Request, kept []uint32, reach float64) float64 {
	p, temperature := l.parts, l.layer.RawTemperature(cmp.Or(req.Temperature, 1))
	for _, i := range kept {
		l.Scores[i] = none
	}
	scale := float32(min(max(float64(l.Scale)/temperature, 0x1p-126), math.MaxFloat32))
	outside := l.Spread[Stages-1]
	sum := func(scores []float32, j int) float64 {
		most, sum := kernels.SumExpCentres(scores, scores, scale)
		square := float64(l.Spread[j]*l.Spread[j]) - float64(outside*outside)
		far := float64(reach * l.Spread[j])
		raise := 0.0
		if square > 0 && far > 0 {
			raise = raised(square/temperature, far) / temperature
		}
		return float64(most)*float64(l.Scale)/temperature + kernels.Log(sum) + raise
	}
	rest := sum(l.Scores, Stages-1)
	if len(l.left) > 0 {
		rest = kernels.LogAddExp(rest, sum(l.left, PanelStages))
	}
	for _, rows := range [][]uint32{l.Rows, l.lost} {
		for _, row := range rows {
			l.scores[row] = none
		}
	}
	rest = kernels.LogAddExp(rest, sum(l.scores, 0))
	mean := 0.0 // the product of the context with the mean row
	for j, x := range l.x {
		mean += float64(float64(x) * float64(p.Mean[j]))
	}
	return rest + mean/temperature + float64(p.Tail*float64(outside*outside))/(2*temperature*temperature)
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
