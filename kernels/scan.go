package kernels

// Scan computes one score a row: dst[i] = rows[i].h + bias[i] in float32
// (Eq. 1 of the paper over all labels).
//
// rows is row-major with len(dst) rows of len(h) elements. bias has len(dst)
// elements, or is nil for none. dst must not overlap the inputs.
func Scan(dst, rows, bias, h []float32) {
	checkRows(len(rows), len(dst), len(h))
	if bias != nil && len(bias) != len(dst) {
		panic("kernels: length of bias differs from the number of rows")
	}
	if len(dst) == 0 {
		return
	}
	scan(dst, rows, h)
	if bias != nil {
		add(dst, bias)
	}
}

// checkRows panics unless size elements are n rows of d elements.
func checkRows(size, n, d int) {
	if d == 0 {
		panic("kernels: dimension is zero")
	}
	if size%d != 0 || size/d != n {
		panic("kernels: length of rows is not the number of rows times the dimension")
	}
}

func addGeneric(dst, x []float32) {
	x = x[:len(dst)]
	for i, v := range x {
		dst[i] += v
	}
}

func scanGeneric(dst, rows, h []float32) {
	d := len(h)
	for i := range dst {
		dst[i] = dotGeneric(rows[i*d:(i+1)*d], h)
	}
}
