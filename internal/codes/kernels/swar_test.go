package kernels

import (
	"fmt"
	"testing"
)

// The sums of the plain forms are largest if all codes are, and their lanes
// borrow the most if the signs of neighbours differ.
func TestPlainProductsAreExactAtTheirLimits(t *testing.T) {
	signs := map[string]func(j int) int8{
		"all above 0":      func(int) int8 { return MaxCode },
		"all below 0":      func(int) int8 { return -MaxCode },
		"in turns":         func(j int) int8 { return int8(MaxCode - 2*MaxCode*(j%2)) },
		"four by four":     func(j int) int8 { return int8(MaxCode - 2*MaxCode*(j/4%2)) },
		"half by half":     func(j int) int8 { return int8(MaxCode - 2*MaxCode*(j/(MaxInt8Dim/2))) },
		"all but the last": func(j int) int8 { return int8(MaxCode * min(1, MaxInt8Dim-1-j)) },
		"the first alone":  func(j int) int8 { return int8(-MaxCode * max(0, 1-j)) },
	}
	for name, code := range signs {
		for _, d := range []int{1, 2, 7, 8, 9, 15, 16, 17, 31, 33, MaxInt8Dim - 1, MaxInt8Dim} {
			v := NewInt8Vector(d)
			for j := range d {
				v.codes[j] = code(j)
			}
			for _, most := range []byte{0, 1, 254, 255} {
				rec, rec4 := make([]byte, Int8Stride(d)), make([]byte, Int4Stride(d))
				for i := range rec {
					rec[i] = most
				}
				for i := range rec4 {
					rec4[i] = most // the halves are 15 and 15, 15 and 14, 0 and 1
				}
				var want, want4 int32
				half := (d + 1) / 2
				for j := range d {
					want += int32(rec[j]) * int32(v.codes[j])
					nibble := most & 15
					if j >= half {
						nibble = most >> 4
					}
					want4 += int32(nibble) * int32(v.codes[j])
				}
				where := fmt.Sprintf("%s, dim %d, bytes %d", name, d, most)
				if got := dot8(rec, v.plainCodes8()); got != want {
					t.Errorf("%s: dot8 = %d, want %d", where, got, want)
				}
				if got := dot4(rec4, v.plainCodes4()); got != want4 {
					t.Errorf("%s: dot4 = %d, want %d", where, got, want4)
				}
			}
		}
	}
}
