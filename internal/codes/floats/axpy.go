package floats

import (
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/kernels/asm"
)

// Axpy adds a multiple of x, of the length of dst: dst[i] += float64(a) * float64(x[i]). Only
// the addition rounds: the result has the same bits on every level and architecture.
func Axpy(dst []float64, a float32, x []float32) {
	if len(dst) != len(x) {
		panic("kernels: Axpy: lengths of dst and x differ")
	}
	for at, end := range kernels.Calls(len(x), kernels.MaxCallBytes/16) {
		out, part := dst[at:end], x[at:end]
		kernels.RaceReads(part)
		kernels.RaceWrites(out)
		if !asm.Axpy(&out[0], float64(a), &part[0], len(part)) {
			axpyGeneric(out, a, part)
		}
	}
}

func axpyGeneric(dst []float64, a float32, x []float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] += float64(a) * float64(v)
	}
}
