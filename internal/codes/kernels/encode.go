package kernels

import (
	"math"

	"github.com/learning-to-screen/l2s/kernels/asm"
)

// Encode computes u = x*inv and the codes q, which are u rounded and brought within most, and
// returns the sums of (u - q)^2 and q^2, in 16 lanes combined by halves, without fused
// multiply-adds. len(x), the length of codes too, is a positive multiple of 16.
func Encode(codes []int8, x []float32, inv, most float32) (errors2, squares float32) {
	if len(x) == 0 || len(x)%16 != 0 || len(codes) != len(x) {
		panic("kernels: Encode: length of x is not a positive multiple of 16, or not that of codes")
	}
	RaceReads(x)
	RaceWrites(codes)
	errors2, squares, ok := asm.Encode(&codes[0], &x[0], len(codes), inv, most)
	if !ok {
		return encodeGeneric(codes, x, inv, most)
	}
	return errors2, squares
}

func encodeGeneric(codes []int8, x []float32, inv, most float32) (errors2, squares float32) {
	var err2, norm2 [16]float32
	for i, w := range x {
		u := float32(w * inv)
		q := float32(math.RoundToEven(float64(max(-most, min(most, u)))))
		d := u - q
		codes[i] = int8(q)
		err2[i%16] += float32(d * d)
		norm2[i%16] += float32(q * q)
	}
	return fold(err2[:]), fold(norm2[:])
}
