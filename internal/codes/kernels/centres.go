package kernels

import (
	"math"

	"github.com/learning-to-screen/l2s/kernels/asm"
)

// The constants of the float32 exponential. centreHi has 8 significant bits, so that
// n*centreHi is exact for every exponent n that occurs.
const (
	centreLog2E = float32(0x1.715476p+0)
	centreHi    = float32(0x1.62p-1)
	centreLo    = float32(math.Ln2 - 0x1.62p-1)
	// centreLeast is the exponent below which a term counts as zero, because it could be subnormal.
	centreLeast = float32(-86)
)

// centreCoef holds 1/i! for i = 0..7: the Taylor series of e^r, whose remainder at
// |r| <= ln(2)/2 is below 2^-27.
var centreCoef = [8]float32{1, 1, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040}

// centreLanes is the number of partial sums of SumExpCentres.
const centreLanes = 16

// SumExpCentres sums exponentials over the centres of intervals, such as
// Int8Rows.Bounds gives: c_i = (lower[i] + upper[i])/2. It returns the largest centre m and
//
//	sum_i e^((c_i - m) scale)
//
// which is at least 1, or -Inf and 0 if there are no centres or all are -Inf. An interval
// from -Inf to -Inf counts as zero. There must be no NaN and no other infinity;
// scale is above 0 and finite; lower and upper have the same length.
//
// Centres and exponents are float32. With v = (c_i - m) scale and c_i as rounded, a term
// is within (|v| + 8) 2^-23 e^v of e^v, or zero where v < -86. Terms are added in float64 and
// in a fixed order, so that the result has the same bits on every level and
// architecture.
func SumExpCentres(lower, upper []float32, scale float32) (m float32, sum float64) {
	if len(lower) != len(upper) {
		panic("kernels: SumExpCentres: lengths of lower and upper differ")
	}
	if !(scale > 0) || scale > math.MaxFloat32 {
		panic("kernels: SumExpCentres: scale is not a finite number above zero")
	}
	whole := len(lower) &^ (centreLanes - 1)
	m = maxCentreGeneric(lower[whole:], upper[whole:])
	for c := callsOf(whole, MaxCallBytes/8); c.at < c.n; c = c.next() {
		lo, up := lower[c.at:c.end], upper[c.at:c.end]
		RaceReads(lo)
		RaceReads(up)
		largest, ok := asm.MaxCentre(&lo[0], &up[0], len(lo))
		if !ok {
			largest = maxCentreGeneric(lo, up)
		}
		m = max(m, largest)
	}
	if math.IsInf(float64(m), -1) {
		return m, 0
	}
	var lane [centreLanes]float64
	for c := callsOf(whole, MaxCallBytes/8); c.at < c.n; c = c.next() {
		expCentresLeaf(&lane, lower[c.at:c.end], upper[c.at:c.end], m, scale)
	}
	if whole < len(lower) {
		var lo, up [centreLanes]float32
		for i := range lo {
			lo[i], up[i] = float32(math.Inf(-1)), float32(math.Inf(-1))
		}
		copy(lo[:], lower[whole:])
		copy(up[:], upper[whole:])
		expCentresLeaf(&lane, lo[:], up[:], m, scale)
	}
	return m, fold(lane[:])
}

func expCentresLeaf(lane *[centreLanes]float64, lower, upper []float32, m, scale float32) {
	if !asm.ExpCentres(&lane[0], &lower[0], &upper[0], len(lower), m, scale) {
		expCentresGeneric(lane, lower, upper, m, scale)
	}
}

func centre(lower, upper float32) float32 { return float32(float32(lower+upper) * 0.5) }

// maxCentreGeneric returns the largest centre, -Inf if there is none.
func maxCentreGeneric(lower, upper []float32) float32 {
	m := float32(math.Inf(-1))
	for i, lo := range lower {
		m = max(m, centre(lo, upper[i]))
	}
	return m
}

// expCentresGeneric adds e^((c_i - m) scale) to lane[i mod 16], for a multiple of 16.
func expCentresGeneric(lane *[centreLanes]float64, lower, upper []float32, m, scale float32) {
	for i, lo := range lower {
		v := float32(float32(centre(lo, upper[i])-m) * scale)
		if !(v >= centreLeast) {
			continue
		}
		n := float32(math.RoundToEven(float64(float32(v * centreLog2E))))
		r := float32(v-float32(n*centreHi)) - float32(n*centreLo)
		p := centreCoef[len(centreCoef)-1]
		for j := len(centreCoef) - 2; j >= 0; j-- {
			p = float32(p*r) + centreCoef[j]
		}
		lane[i%centreLanes] += float64(math.Float32frombits(math.Float32bits(p) + uint32(int32(n))<<23))
	}
}
