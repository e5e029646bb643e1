// Package float16 converts between float32 and IEEE 754 binary16, given as its bits.
package float16

import "math"

// Widen returns the value of x. A NaN is quiet, as CPUs make it.
func Widen(x uint16) float32 {
	sign, magnitude := uint32(x>>15)<<31, uint32(x&0x7fff)
	switch {
	case magnitude > 0x7c00:
		return math.Float32frombits(sign | 0x1ff<<22 | magnitude&1023<<13)
	case magnitude == 0x7c00:
		return math.Float32frombits(sign | 0xff<<23)
	case magnitude >= 0x0400: // the exponent's bias is 15 here, 127 there
		return math.Float32frombits(sign | (magnitude<<13 + (127-15)<<23))
	}
	// Zero and the subnormal numbers are multiples of 2^-24, all of them normal in float32.
	return math.Float32frombits(sign | math.Float32bits(float32(magnitude)*0x1p-24))
}

// Narrow rounds to binary16, ties to even. It reports false if x is too large, or NaN.
func Narrow(x float32) (bits uint16, ok bool) {
	b := math.Float32bits(x)
	sign := uint16(b >> 16 & 0x8000)
	switch b &= 1<<31 - 1; {
	case b >= 0x477ff000: // 65520, which would round to infinity
		return 0, false
	case b >= 0x38800000: // a normal number: 2^-14 or more
		b += 0xfff + b>>13&1
		return sign | uint16((b-112<<23)>>13), true
	}
	return sign | uint16(math.RoundToEven(float64(math.Float32frombits(b))*0x1p24)), true // a multiple of 2^-24
}
