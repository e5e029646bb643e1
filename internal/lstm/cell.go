package lstm

import "math"

// cell advances one layer by one time step, from its gates before the
// nonlinearities (4d, in the order i, f, g, o) and its cell state c (d) to
// the new c and the output h (d):
//
//	c = sigmoid(f) c + sigmoid(i) tanh(g)
//	h = sigmoid(o) tanh(c)
//
// e is scratch of 4d elements. The exponentials are most of the work. They
// are taken in float64 to about 1e-10, so that what remains is the rounding
// of c and h to float32, and each product of two nonlinearities costs one
// division:
//
//	sigmoid(x) tanh(y) = (1 - e^-2y) / ((1 + e^-x) (1 + e^-2y))
//
// Every operation is one that IEEE 754 rounds exactly, and the conversions
// keep the compiler from fusing a product with a sum: equal gates give equal
// bits on every machine.
func cell(c, h, gates []float32, e []float64) {
	d := len(c)
	h, e = h[:d], e[:4*d]
	for j, x := range gates[:4*d] {
		e[j] = float64(x)
	}
	ei, ef, eg, eo := e[:d], e[d:2*d], e[2*d:3*d], e[3*d:]
	double(eg)
	expNeg(e)
	for j := range c {
		v := float64(c[j])/(1+ef[j]) + (1-eg[j])/float64((1+ei[j])*(1+eg[j]))
		c[j] = float32(v)
		eg[j] = v
	}
	double(eg)
	expNeg(eg)
	for j := range h {
		h[j] = float32((1 - eg[j]) / float64((1+eo[j])*(1+eg[j])))
	}
}

// Tanh replaces each x by tanh(x), from the exponentials of the gates and
// so, like them, the same bits for equal x on every machine. e is scratch of
// len(x) elements.
func Tanh(x []float32, e []float64) {
	e = e[:len(x)]
	for i, v := range x {
		e[i] = float64(v)
	}
	double(e)
	expNeg(e)
	for i, v := range e {
		x[i] = float32((1 - v) / (1 + v))
	}
}

func double(x []float64) {
	for i := range x {
		x[i] *= 2
	}
}

const (
	expSteps = 64 // steps of the table to a factor of two
	// expBound bounds the exponent: beyond it sigmoid and tanh differ from
	// their limits by less than 1e-17.
	expBound = 40
	// roundMagic is 1.5 * 2^52: added to a float64 below 2^51 it leaves that
	// number, rounded to an integer, in the low bits.
	roundMagic = 0x1.8p52
)

// exp2Steps holds the bits of 2^(i/64). Only square roots and products make
// it, because math.Exp2 is not the same on all architectures.
var exp2Steps = func() (t [expSteps]uint64) {
	for i := range t {
		p, root := 1.0, 2.0
		for bit := expSteps / 2; bit > 0; bit /= 2 {
			root = math.Sqrt(root)
			if i&bit != 0 {
				p *= root
			}
		}
		t[i] = math.Float64bits(p)
	}
	return t
}()

// expNeg replaces each x by e^-x, with a relative error below 1e-10 for x in
// [-40, 40], and by the value at the nearer bound outside. NaN stays NaN.
//
// The loop is here and not around a function of one number, which would be
// too long to inline: across calls the exponentials wait for each other,
// within one loop they overlap.
func expNeg(xs []float64) {
	for i, x := range xs {
		if x > expBound {
			x = expBound
		}
		if x < -expBound {
			x = -expBound
		}
		// -x = n ln(2)/64 + r with |r| <= ln(2)/128, and e^r by its series.
		t := float64(x*(-expSteps/math.Ln2)) + roundMagic
		n := int64(math.Float64bits(t)) << 32 >> 32
		r := float64((t-roundMagic)*(-math.Ln2/expSteps)) - x
		p := 1 + float64(r*(1+float64(r*(0.5+float64(r*(1.0/6))))))
		scale := exp2Steps[n&(expSteps-1)] + uint64(n>>6)<<52
		xs[i] = float64(p * math.Float64frombits(scale))
	}
}
