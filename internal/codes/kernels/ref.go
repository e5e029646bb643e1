package kernels

import "unsafe"

// refLanes is the number of partial sums of the reference arithmetic.
const refLanes = 32

// RefDot returns the inner product of x and y, of equal lengths, by the reference arithmetic,
// which gives the same bits on every level and every architecture:
//
//	var lane [32]float64
//	for i := range x {
//		lane[i%32] += float64(x[i]) * float64(y[i])
//	}
//	for n := 16; n > 0; n /= 2 {
//		for j := 0; j < n; j++ {
//			lane[j] += lane[j+n]
//		}
//	}
//	return lane[0]
//
// The products are exact in float64, so a fused multiply-add rounds alike.
func RefDot(x, y []float32) float64 {
	if len(x) != len(y) {
		panic("kernels: RefDot: lengths of x and y differ")
	}
	if len(x) == 0 {
		return 0
	}
	var s [1]float64
	Rows{unsafe.Pointer(&x[0]), 1, len(x), Float32}.refScan(s[:], y)
	return s[0]
}

// refAdd adds the products of x with the first elements of y to the lanes, from lane 0 on.
func refAdd(lane *[refLanes]float64, x, y []float32) {
	y = y[:len(x)]
	for len(x) >= refLanes {
		a, b := x[:refLanes], y[:refLanes]
		for j := range lane {
			lane[j] += float64(a[j]) * float64(b[j])
		}
		x, y = x[refLanes:], y[refLanes:]
	}
	for j := range x {
		lane[j] += float64(x[j]) * float64(y[j])
	}
}

// fold adds up lanes, a power of two of them, by halves.
func fold[T float32 | float64](lane []T) T {
	for n := len(lane) / 2; n > 0; n /= 2 {
		for j := range n {
			lane[j] += lane[j+n]
		}
	}
	return lane[0]
}
