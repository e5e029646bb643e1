package kernels

import "github.com/learning-to-screen/l2s/internal/simd"

// Level returns the level that the kernels run on: "generic", "avx2" or
// "avx512".
func Level() string { return simd.Current().String() }
