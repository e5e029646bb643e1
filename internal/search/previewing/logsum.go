package previewing

import (
	"cmp"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// outside returns the estimate of the log-sum over the labels that are not scored in full, by their
// previews after the last stage that looked at them; labels of a panel that the first stage left out
// have that of its centre. What they have beyond their codes is taken for normal, and no label that was
// left out is above the mark.
func (l *Look) outside(req *exact.Request, kept []uint32, reach float64) float64 {
	p, temperature := l.parts, l.layer.RawTemperature(cmp.Or(req.Temperature, 1))
	for _, i := range kept {
		l.Scores[i] = none
	}
	scale := float32(min(max(float64(l.Scale)/temperature, 0x1p-126), math.MaxFloat32))
	outside := l.Spread[l.last()]
	raise := func(j int, gauge float64) float64 {
		spread := l.Spread[j] * gauge
		square, far := float64(spread*spread)-float64(outside*outside), float64(reach*spread)
		if square > 0 && far > 0 {
			return raised(square/temperature, far) / temperature
		}
		return 0
	}
	sum := func(scores []float32, j int, raise float64) float64 {
		most, sum := kernels.SumExpCentres(scores, scores, scale)
		return float64(most)*float64(l.Scale)/temperature + kernels.Log(sum) + raise
	}
	rest := sum(l.Scores, l.last(), raise(l.last(), 1))
	for j, scores := range l.left {
		more := 0.0
		if j > 0 {
			more = raise(j, 1)
		} else { // the labels of some panels are much closer to their centres than those of others
			more = kernels.Log(kernels.PanelRows)
			for panel, x := range scores {
				if x > none {
					scores[panel] += float32(min(raise(0, min(l.Gauge(0, uint32(panel)), 1))/float64(scale), math.MaxFloat32))
				}
			}
		}
		if scores = slices.DeleteFunc(scores, func(x float32) bool { return x == none }); len(scores) > 0 {
			rest = kernels.LogAddExp(rest, sum(scores, j, more))
		}
	}
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
