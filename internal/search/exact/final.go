package exact

import (
	"fmt"
	"math"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
)

// Intervals, thresholds and previews are of raw logits, w.h + b. Everything that a caller sees is
// of final ones. Here is all that leads from one to the other: a request comes in by edit, Down and
// RawTemperature, and an answer leaves by finish, bounds and caps. A layer without a scale and
// a cap has none of this, and its final logits are the raw ones.

// final maps a raw logit x to the model's: scale x, or cap tanh(scale x / cap). It rises with x, but
// for roundings, so that the best raw logits have the best final ones.
type final struct {
	scale float64
	cap   float64 // 0 for none
	// slack bounds the roundings of a scaled logit, relative to it. It is 0 for a power of two, which
	// has none. Where it is not 0, different raw logits may have the same final one.
	slack float64
}

const (
	// scaleSlack and capSlack are far more than the roundings of the few operations of a map and of
	// its inverse lose: relative to a scaled logit, and relative to the cap.
	scaleSlack = 0x1p-49
	capSlack   = 0x1p-46
	// leastScale and mostScale bound scales and caps: they and their inverses are normal numbers of
	// float32, and a final logit is within float64.
	leastScale = 0x1p-126
	mostScale  = 0x1p126
	// mostRawBias bounds a bias of a raw logit, so that intervals stay within float32.
	mostRawBias = 0x1p120
)

// Scaled is l2s.Layer.Scaled.
func (l *Layer) Scaled(scale, softCap float64) (*Layer, error) {
	if !(scale >= leastScale && scale <= mostScale) {
		return nil, fmt.Errorf("l2s: scale: found %v, expected a number from 1.2e-38 to 8.5e+37", scale)
	}
	if softCap != 0 && !(softCap >= leastScale && softCap <= mostScale) {
		return nil, fmt.Errorf("l2s: soft cap: found %v, expected a number from 1.2e-38 to 8.5e+37, or 0 for none", softCap)
	}
	of := *l
	of.final = nil
	if scale != 1 || softCap != 0 {
		of.final = &final{scale: scale, cap: softCap}
		if fraction, _ := math.Frexp(scale); fraction != 0.5 {
			of.final.slack = scaleSlack
		}
	}
	return &of, nil
}

// Plain returns the layer of the raw logits.
func (l *Layer) Plain() *Layer {
	if l.final == nil {
		return l
	}
	of := *l
	of.final = nil
	return &of
}

// Scale is l2s.Info.Scale.
func (l *Layer) Scale() float64 {
	if l.final == nil {
		return 1
	}
	return l.final.scale
}

// SoftCap is l2s.Info.Cap.
func (l *Layer) SoftCap() float64 {
	if l.final == nil {
		return 0
	}
	return l.final.cap
}

// RawTemperature returns the temperature at which raw logits have the probabilities that scaled ones
// have at t. It says nothing about a cap.
func (l *Layer) RawTemperature(t float64) float64 {
	if l.final == nil {
		return t
	}
	return t * (1 / l.final.scale)
}

// Down returns a raw logit below which no label is within a distance of a label with the raw logit
// from, by their final logits, and rounds it down.
func (l *Layer) Down(from float32, distance float64) float32 { return l.final.down(from, distance) }

func (f *final) of(raw float64) float64 {
	x := raw * f.scale
	if f.cap != 0 {
		return kernels.SoftCap(x, f.cap)
	}
	return x
}

// finish makes raw logits final.
func (f *final) finish(logits []float64) {
	if f == nil {
		return
	}
	for i, x := range logits {
		logits[i] = f.of(x)
	}
}

// down is Layer.Down. It has the bits that Down has for the scaled layer, times a scale that is a
// power of two.
func (f *final) down(from float32, distance float64) float32 {
	x := float64(from)
	switch {
	case math.IsInf(x, -1):
		return from
	case f == nil:
		x -= distance
	case f.cap == 0:
		far := min(distance/f.scale, math.MaxFloat64)
		x = x - far - float64(f.slack*(math.Abs(x)+far))
	default:
		least := (f.of(x)-distance)/f.cap - capSlack // as a part of the cap
		if !(least > -1) {
			return -math.MaxFloat32
		}
		x = kernels.Log((1+least)/(1-least)) / 2 * f.cap / f.scale
		x -= float64(capSlack * math.Abs(x))
	}
	// Rounded down twice: to float64 and to float32. Labels at -Inf may not be answered: no threshold
	// of others reaches them.
	return max(math.Nextafter32(float32(x), float32(math.Inf(-1))), -math.MaxFloat32)
}

// loose returns a raw logit that all labels reach whose final logits are at least that of a label at
// the threshold: different raw logits may have the same final one.
func (f *final) loose(threshold float32) float32 {
	if f == nil || !f.merges() || math.IsInf(float64(threshold), -1) {
		return threshold
	}
	return f.down(threshold, 0)
}

// merges reports whether different raw logits may have the same final one.
func (f *final) merges() bool { return f != nil && (f.slack != 0 || f.cap != 0) }

// edit moves the ends of the raw interval of a label by a bias of its final logit. Under a cap no
// raw logit has that effect: nothing is known of the label, which so gets its logit.
func (f *final) edit(lower, upper float32, add float64) (below, above float64) {
	switch none := math.Inf(-1); {
	case math.IsInf(float64(upper), -1): // it may not be answered
		return none, none
	case f.cap != 0:
		return -math.MaxFloat32, math.MaxFloat32
	}
	add /= f.scale
	below, above = float64(lower)+add, float64(upper)+add
	if f.slack != 0 {
		below -= float64(f.slack * (math.Abs(float64(lower)) + math.Abs(add)))
		above += float64(f.slack * (math.Abs(float64(upper)) + math.Abs(add)))
	}
	return below, above
}

// byIntervals reports whether a search by raw intervals can answer a request.
func (f *final) byIntervals(req *Request) bool {
	if f == nil || len(req.Biases) == 0 {
		return true
	}
	if f.cap != 0 { // edit leaves no interval to sum over
		return !req.LogSum
	}
	for _, b := range req.Biases {
		if math.Abs(float64(b.Add)) > mostRawBias*f.scale {
			return false
		}
	}
	return true
}

// caps puts the final logits of the centres of raw intervals in their places, for a layer with a
// cap.
func (f *final) caps(lower, upper []float32) {
	for i, up := range upper {
		if !math.IsInf(float64(up), -1) {
			c := float32(f.of((float64(lower[i]) + float64(up)) / 2))
			lower[i], upper[i] = c, c
		}
	}
}

// bounds makes intervals of final logits of raw ones, rounded outwards. It reports false if there
// are none in float32.
func (f *final) bounds(lower, upper []float32) bool {
	if f == nil {
		return true
	}
	room := capSlack * f.cap
	for i := range lower {
		low, high := f.of(float64(lower[i])), f.of(float64(upper[i]))
		low -= float64(f.slack*math.Abs(low)) + room
		high += float64(f.slack*math.Abs(high)) + room
		if !(low > -math.MaxFloat32/4 && high < math.MaxFloat32/4) {
			return false
		}
		lower[i], upper[i] = outward(low, high)
	}
	return true
}

// outward rounds the ends of an interval outwards.
func outward(low, high float64) (lower, upper float32) {
	lower, upper = float32(low), float32(high)
	if float64(lower) > low {
		lower = math.Nextafter32(lower, float32(math.Inf(-1)))
	}
	if float64(upper) < high {
		upper = math.Nextafter32(upper, float32(math.Inf(1)))
	}
	return lower, upper
}
