package kernels

import "github.com/learning-to-screen/l2s/internal/ground/simd"

// Level returns the level that the kernels run on: "generic", on amd64 "avx2" or
// "avx512", on arm64 "neon" or "neondot".
func Level() string { return simd.Current().String() }
