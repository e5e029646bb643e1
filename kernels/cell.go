package kernels

import "math"

// LSTMCell advances one LSTM layer by one time step, from its gates before the
// nonlinearities (4d, in the order i, f, g, o) and its cell state c (d) to the new
// c and the output h (d):
//
//	c = sigmoid(f) c + sigmoid(i) tanh(g)
//	h = sigmoid(o) tanh(c)
//
// It computes in float64, with exponentials to about 1e-11, so that what remains is
// the rounding of c and h to float32: half a unit in the last place and a little. h
// lies in [-1, 1]. A gate that is infinite has the limit as its value, and NaN stays
// NaN. The bits are equal on every level and every architecture.
func LSTMCell(c, h, gates []float32) {
	d := len(c)
	if len(h) != d {
		panic("kernels: LSTMCell: lengths of c and h differ")
	}
	if len(gates) != 4*d {
		panic("kernels: LSTMCell: length of gates is not four times that of c")
	}
	whole := d &^ (cellLanes - 1)
	for k := callsOf(whole, maxCallBytes/64); k.at < k.n; k = k.next() {
		for g := range 4 {
			raceReads(gates[g*d+k.at : g*d+k.end])
		}
		raceWrites(c[k.at:k.end])
		raceWrites(h[k.at:k.end])
		cellLeaf(c[k.at:k.end], h[k.at:k.end], gates[k.at:], d)
	}
	if whole < d {
		var pc, ph [cellLanes]float32
		var pg [4 * cellLanes]float32
		copy(pc[:], c[whole:])
		for g := range 4 {
			copy(pg[g*cellLanes:(g+1)*cellLanes], gates[g*d+whole:(g+1)*d])
		}
		cellLeaf(pc[:], ph[:], pg[:], cellLanes)
		copy(c[whole:], pc[:])
		copy(h[whole:], ph[:])
	}
}

// Tanh replaces each x by tanh(x), computed as in [LSTMCell]: within half a unit in the
// last place and 2e-11. The bits are equal on every level and every architecture.
func Tanh(x []float32) {
	whole := len(x) &^ (cellLanes - 1)
	for k := callsOf(whole, maxCallBytes/16); k.at < k.n; k = k.next() {
		raceWrites(x[k.at:k.end])
		tanhLeaf(x[k.at:k.end])
	}
	if whole < len(x) {
		var p [cellLanes]float32
		copy(p[:], x[whole:])
		tanhLeaf(p[:])
		copy(x[whole:], p[:])
	}
}

// cellLanes divides what the leaves of LSTMCell and Tanh take.
const cellLanes = 8

// cellGeneric is LSTMCell where the gates are stride apart. Each product of two
// nonlinearities costs one division:
//
//	sigmoid(x) tanh(y) = (1 - e^-2y) / ((1 + e^-x) (1 + e^-2y))
//
// The exponentials are loops of their own: across calls of a function, which would be
// too long to inline, they would wait for each other.
func cellGeneric(c, h, gates []float32, stride int) {
	var e [4][cellLanes]float64
	for at := 0; at < len(c); at += cellLanes {
		for g := range e {
			for i, x := range gates[g*stride+at:][:cellLanes] {
				e[g][i] = float64(x)
			}
		}
		ei, ef, eg, eo := &e[0], &e[1], &e[2], &e[3]
		double(eg)
		for g := range e {
			expNeg(&e[g])
		}
		c, h := (*[cellLanes]float32)(c[at:]), (*[cellLanes]float32)(h[at:])
		for i := range c {
			v := float64(c[i])/(1+ef[i]) + (1-eg[i])/float64((1+ei[i])*(1+eg[i]))
			c[i] = float32(v)
			eg[i] = v
		}
		double(eg)
		expNeg(eg)
		for i := range h {
			h[i] = float32((1 - eg[i]) / float64((1+eo[i])*(1+eg[i])))
		}
	}
}

func tanhGeneric(x []float32) {
	var e [cellLanes]float64
	for at := 0; at < len(x); at += cellLanes {
		x := (*[cellLanes]float32)(x[at:])
		for i, v := range x {
			e[i] = float64(v)
		}
		double(&e)
		expNeg(&e)
		for i, v := range e {
			x[i] = float32((1 - v) / (1 + v))
		}
	}
}

func double(x *[cellLanes]float64) {
	for i := range x {
		x[i] += x[i]
	}
}

const (
	// expBound bounds the exponent: beyond it sigmoid and tanh differ from
	// their limits by less than 1e-17.
	expBound = 40
	// roundMagic is 1.5 * 2^52: added to a float64 below 2^51 it leaves that
	// number, rounded to an integer, in the low bits.
	roundMagic = 0x1.8p52
	// expTerms is the degree of the Taylor series of e^r, whose remainder at
	// |r| <= ln(2)/2 is below 1e-11.
	expTerms = 9
)

// expNeg replaces each x by e^-x, with a relative error below 2e-11 for x in
// [-40, 40], and by the value at the nearer bound outside. A NaN that comes from a float32
// or from an operation stays NaN. Any other NaN may not: its low bits could be an exponent.
func expNeg(xs *[cellLanes]float64) {
	for i, x := range xs {
		if x > expBound {
			x = expBound
		}
		if x < -expBound {
			x = -expBound
		}
		// -x = n ln(2) + r.
		t := float64(x*-log2E) + roundMagic
		r := float64((t-roundMagic)*-math.Ln2) - x
		p := expCoef[expTerms]
		p = float64(p*r) + expCoef[8]
		p = float64(p*r) + expCoef[7]
		p = float64(p*r) + expCoef[6]
		p = float64(p*r) + expCoef[5]
		p = float64(p*r) + expCoef[4]
		p = float64(p*r) + expCoef[3]
		p = float64(p*r) + expCoef[2]
		p = float64(p*r) + expCoef[1]
		p = float64(p*r) + expCoef[0]
		xs[i] = math.Float64frombits(math.Float64bits(p) + math.Float64bits(t)<<52)
	}
}
