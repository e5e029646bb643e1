package kernels

// Dot returns the inner product of x and y, of equal lengths, in float32.
func Dot(x, y []float32) float32 {
	if len(x) != len(y) {
		panic("kernels: Dot: lengths of x and y differ")
	}
	if len(x) == 0 {
		return 0
	}
	var s [1]float32
	scan(s[:], x, y)
	return s[0]
}

// dotGeneric sums in four lanes, so that the compiler's code is not one long
// chain of dependent additions.
func dotGeneric(x, y []float32) float32 {
	y = y[:len(x)]
	var s0, s1, s2, s3 float32
	i := 0
	for ; i+4 <= len(x); i += 4 {
		s0 += x[i] * y[i]
		s1 += x[i+1] * y[i+1]
		s2 += x[i+2] * y[i+2]
		s3 += x[i+3] * y[i+3]
	}
	for ; i < len(x); i++ {
		s0 += x[i] * y[i]
	}
	return (s0 + s2) + (s1 + s3)
}
