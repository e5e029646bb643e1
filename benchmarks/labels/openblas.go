//go:build openblas

package main

// #cgo pkg-config: openblas
// #include <cblas.h>
import "C"

func init() {
	C.openblas_set_num_threads(1)
	sgemm = func(dst, contexts, rows []float32, dim int) {
		m, n := len(contexts)/dim, len(rows)/dim
		C.cblas_sgemm(C.CblasRowMajor, C.CblasNoTrans, C.CblasTrans, C.blasint(m), C.blasint(n), C.blasint(dim), 1,
			(*C.float)(&contexts[0]), C.blasint(dim), (*C.float)(&rows[0]), C.blasint(dim), 0, (*C.float)(&dst[0]), C.blasint(n))
	}
}
