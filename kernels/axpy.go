package kernels

// Axpy adds a multiple of x to dst: dst[i] += float64(a) * float64(x[i]).
// The product is exact, so the only rounding is in the addition, and the
// result has the same bits on every level and every architecture. The
// lengths must be equal.
func Axpy(dst []float64, a float32, x []float32) {
	if len(dst) != len(x) {
		panic("kernels: Axpy: lengths of dst and x differ")
	}
	for c := callsOf(len(x), maxCallBytes/16); c.at < c.n; c = c.next() {
		raceReads(x[c.at:c.end])
		raceWrites(dst[c.at:c.end])
		axpyLeaf(dst[c.at:c.end], a, x[c.at:c.end])
	}
}

func axpyGeneric(dst []float64, a float32, x []float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] += float64(a) * float64(v)
	}
}
