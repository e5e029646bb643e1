//go:build openblas

package openblas

// #cgo pkg-config: openblas
// #include <cblas.h>
import "C"

func init() {
	C.openblas_set_num_threads(1)
	Sgemv = func(dst, rows, h []float32) {
		d := len(h)
		C.cblas_sgemv(C.CblasRowMajor, C.CblasNoTrans, C.blasint(len(dst)), C.blasint(d), 1,
			(*C.float)(&rows[0]), C.blasint(d), (*C.float)(&h[0]), 1, 0, (*C.float)(&dst[0]), 1)
	}
}
