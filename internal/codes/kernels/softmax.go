package kernels

import (
	"math"

	"github.com/learning-to-screen/l2s/kernels/asm"
)

// The constants of Exp and Log. ln2Hi has 21 trailing zero bits, so that
// n*ln2Hi is exact for every exponent n.
const (
	log2E  = 0x1.71547652b82fep+0
	ln2Hi  = 0x1.62e42fee00000p-1
	ln2Lo  = 0x1.a39ef35793c76p-33
	expMin = -708.0
	expMax = 709.0
)

// expCoef holds 1/i! for i = 0..13: the Taylor series of e^r, whose
// remainder at |r| <= ln(2)/2 is below 2^-57.
var expCoef = [14]float64{
	1, 1, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040,
	1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800,
	1.0 / 479001600, 1.0 / 6227020800,
}

// logCoef holds 1/3, 1/5, ..., 1/23: the series of atanh after its first term.
var logCoef = [11]float64{
	1.0 / 3, 1.0 / 5, 1.0 / 7, 1.0 / 9, 1.0 / 11, 1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23,
}

// Exp returns e^x within 2 units in the last place for -708 <= x <= 709, 0 below and +Inf
// above, with the same bits on every level and architecture, unlike math.Exp.
func Exp(x float64) float64 {
	switch {
	case x < expMin:
		return 0
	case x > expMax:
		return math.Inf(1)
	case x != x:
		return x
	}
	// The conversions forbid the compiler to fuse a product with a sum.
	n := math.RoundToEven(x * log2E)
	r := float64(x-float64(n*ln2Hi)) - float64(n*ln2Lo)
	p := expCoef[13]
	for i := 12; i >= 0; i-- {
		p = float64(p*r) + expCoef[i]
	}
	return math.Float64frombits(math.Float64bits(p) + uint64(int64(n))<<52)
}

// Log returns the natural logarithm of x within 2 units in the last place, -Inf for 0, NaN for
// a negative x, with the same bits on every architecture, unlike math.Log.
func Log(x float64) float64 {
	switch {
	case x != x || math.IsInf(x, 1):
		return x
	case x < 0:
		return math.NaN()
	case x == 0:
		return math.Inf(-1)
	}
	// x = m * 2^e with m in [sqrt(1/2), sqrt(2)), and
	// log m = 2 atanh(s), s = (m-1)/(m+1), |s| <= 0.1716.
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m *= 2
		e--
	}
	s := (m - 1) / (m + 1)
	s2 := float64(s * s)
	p := logCoef[len(logCoef)-1]
	for i := len(logCoef) - 2; i >= 0; i-- {
		p = float64(p*s2) + logCoef[i]
	}
	// log m = 2s + 2s*s2*p; the small term is added first.
	n := float64(e)
	return float64(n*ln2Hi) + (2*s + (float64(float64(2*s*s2)*p) + float64(n*ln2Lo)))
}

// SoftCap returns cap tanh(x/cap), the soft cap of a logit x, for a cap above 0. It is within 2^-49
// cap of it, and within some units in the last place where x/cap is below 1/16. It has the same bits
// on every architecture, which math.Tanh does not promise.
func SoftCap(x, cap float64) float64 {
	x /= cap
	switch a := math.Abs(x); {
	case a < 0x1p-27: // the next term is below a half of the last place
		return cap * x
	case a >= 1.0/16 || a != a:
		return cap * math.Copysign(1-2/(Exp(2*a)+1), x)
	}
	// The Taylor series; the remainder is below 2^-60 of x.
	p, x2 := 21844.0/6081075, float64(x*x)
	for _, c := range [...]float64{-1382.0 / 155925, 62.0 / 2835, -17.0 / 315, 2.0 / 15, -1.0 / 3} {
		p = float64(p*x2) + c
	}
	return cap * (x + float64(float64(x*x2)*p))
}

// LogAddExp returns log(e^a + e^b) without overflow, of numbers that are neither NaN nor
// +Inf. It has the same bits on every architecture.
func LogAddExp(a, b float64) float64 {
	a, b = max(a, b), min(a, b)
	if math.IsInf(a, -1) {
		return a
	}
	return a + Log(1+Exp(b-a))
}

// LogSubExp returns log(e^a - e^b) without overflow, and -Inf if nothing is left. a may be +Inf, and
// is the result then if b is not. It has the same bits on every architecture.
func LogSubExp(a, b float64) float64 {
	switch {
	case a <= b:
		return math.Inf(-1)
	case math.IsInf(a, 1):
		return a
	}
	return a + Log(1-Exp(b-a))
}

// expLanes is the number of partial sums of LogSumExp and Softmax.
const expLanes = 8

// LogSumExp returns log(sum_i e^x_i), without overflow, or -Inf if x is
// empty or all -Inf. x must hold no NaN and no +Inf. The sum has a fixed
// order, so the result has the same bits on every level and architecture.
func LogSumExp(x []float64) float64 {
	m := maxFloat64(x)
	if math.IsInf(m, -1) {
		return m
	}
	return m + Log(sumExp(nil, x, m))
}

// Softmax computes dst[i] = e^x_i / sum_j e^x_j and returns the log-sum-exp
// of x. dst has the length of x and may be x itself, but not overlap it
// otherwise. x must be as for LogSumExp; if it is all -Inf, dst is zero.
func Softmax(dst, x []float64) (logSumExp float64) {
	if len(dst) != len(x) {
		panic("kernels: Softmax: lengths of dst and x differ")
	}
	m := maxFloat64(x)
	if math.IsInf(m, -1) {
		clear(dst)
		return m
	}
	sum := sumExp(dst, x, m)
	inv := 1 / sum
	for i := range dst {
		dst[i] *= inv
	}
	return m + Log(sum)
}

// sumExp returns sum_i e^(x_i - m) and, unless dst is nil, stores the terms there. Element i
// belongs to lane i mod 8; the lanes are combined as in RefDot. The last block of eight is
// padded with -Inf, whose exponential is an exact zero.
func sumExp(dst, x []float64, m float64) float64 {
	var lane [expLanes]float64
	whole := len(x) &^ (expLanes - 1)
	if whole > 0 {
		var out []float64
		if dst != nil {
			out = dst[:whole]
		}
		expBlocks(&lane, out, x[:whole], m)
	}
	if rest := x[whole:]; len(rest) > 0 {
		var in, out [expLanes]float64
		for i := range in {
			in[i] = math.Inf(-1)
		}
		copy(in[:], rest)
		expBlocks(&lane, out[:], in[:], m)
		if dst != nil {
			copy(dst[whole:], out[:])
		}
	}
	return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]))
}

func expBlocks(lane *[expLanes]float64, dst, x []float64, m float64) {
	for c := callsOf(len(x), MaxCallBytes/16); c.at < c.n; c = c.next() {
		var out []float64
		if dst != nil {
			out = dst[c.at:c.end]
		}
		RaceReads(x[c.at:c.end])
		RaceWrites(out)
		ok := false
		if out == nil {
			ok = asm.ExpSum(&lane[0], &x[c.at], c.end-c.at, m)
		} else {
			ok = asm.ExpStore(&lane[0], &out[0], &x[c.at], c.end-c.at, m)
		}
		if !ok {
			expBlocksGeneric(lane, out, x[c.at:c.end], m)
		}
	}
}

// expBlocksGeneric adds e^(x_i - m) to lane[i mod 8] and, unless dst is nil,
// stores it in dst. len(x) is a multiple of 8.
func expBlocksGeneric(lane *[expLanes]float64, dst, x []float64, m float64) {
	for i, v := range x {
		e := Exp(v - m)
		lane[i%expLanes] += e
		if dst != nil {
			dst[i] = e
		}
	}
}

func maxFloat64(x []float64) float64 {
	whole := len(x) &^ 15
	m := maxFloat64Generic(x[whole:])
	for c := callsOf(whole, MaxCallBytes/8); c.at < c.n; c = c.next() {
		part := x[c.at:c.end]
		RaceReads(part)
		largest, ok := asm.MaxFloat64(&part[0], len(part))
		if !ok {
			largest = maxFloat64Generic(part)
		}
		m = max(m, largest)
	}
	return m
}

func maxFloat64Generic(x []float64) float64 {
	m := math.Inf(-1)
	for _, v := range x {
		if v > m {
			m = v
		}
	}
	return m
}
