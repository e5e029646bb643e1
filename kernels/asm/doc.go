// Package asm holds the assembly of package kernels: forms of an operation for levels of CPUs, and an
// exported function for each operation, with its contract, that jumps to the best form of the CPU. The
// programs in gen write it; only this file is written by hand. Its functions check nothing: use package
// kernels.
package asm

import "github.com/learning-to-screen/l2s/internal/ground/simd"

// The features of the CPU that functions may use: a function jumps to instructions that the CPU has
// if these are true.
//
//lint:ignore U1000 the assembly reads them
var hasAVX2, hasAVX512, hasVNNI, hasNEON, hasNEONDot, hasI8MM bool

func init() {
	simd.Follow(func(f simd.Features) {
		hasAVX2, hasAVX512, hasVNNI, hasNEON, hasNEONDot, hasI8MM = f.AVX2, f.AVX512, f.VNNI, f.NEON, f.NEONDot, f.I8MM
	})
}
