package float16

import (
	"math"
	"testing"
)

// value is the definition of binary16, a finite number.
func value(x uint16) float64 {
	sign, exponent, fraction := 1-2*float64(x>>15), int(x>>10&31), float64(x&1023)
	if exponent == 0 {
		return sign * math.Ldexp(fraction, -24)
	}
	return sign * math.Ldexp(1024+fraction, exponent-25)
}

func TestAllNumbersBothWays(t *testing.T) {
	for i := range 1 << 16 {
		x := uint16(i)
		got := Widen(x)
		if x&0x7c00 == 0x7c00 {
			infinite, nan := math.IsInf(float64(got), 1-2*int(x>>15)), got != got
			if infinite != (x&1023 == 0) || nan != (x&1023 != 0) {
				t.Errorf("%#x: found %v, expected an infinity or NaN", x, got)
			}
			if _, ok := Narrow(got); ok {
				t.Errorf("%v: found a binary16, expected none", got)
			}
			continue
		}
		if math.Float64bits(float64(got)) != math.Float64bits(value(x)) {
			t.Errorf("%#x: found %v, expected %v", x, got, value(x))
		}
		if back, ok := Narrow(got); back != x || !ok {
			t.Errorf("%v: found %#x, expected %#x", got, back, x)
		}
	}
}

// A number between two neighbours becomes the nearer one; the middle, the even one.
func TestNarrowRoundsToTheNearest(t *testing.T) {
	for x := range uint16(0x7c00) {
		low := Widen(x)
		middle := float32(65520) // 65504 is the largest
		if x+1 < 0x7c00 {
			middle = (low + Widen(x+1)) / 2 // exact
		}
		for _, c := range []struct {
			x    float32
			want uint16
		}{{math.Nextafter32(middle, 0), x}, {middle, x + x&1}, {math.Nextafter32(middle, 1e9), x + 1}} {
			for sign, y := range map[uint16]float32{0: c.x, 0x8000: -c.x} {
				if got, ok := Narrow(y); ok != (c.want < 0x7c00) || ok && got != c.want|sign {
					t.Errorf("%v: found %#x, %v, expected %#x", y, got, ok, c.want|sign)
				}
			}
		}
	}
}
