// Package kernels has the inner loops of the paper for other programs: matrix-vector products over
// contiguous or gathered rows, their argmax and top-k, and log-sum-exp, and the level of the CPU.
// Loops that only the search needs, such as scans of codes, are in internal/codes/kernels.
//
// Every operation has a plain Go form, and assembly for AVX2 and AVX-512 on amd64 and for
// Advanced SIMD, with and without dot products, on arm64 (package kernels/asm, written by the
// programs in gen). cpuid decides once at start which one runs; Level returns it,
// the environment variable L2S_SIMD (generic, avx2, avx512, neon, neondot) forces it, and the
// build tag purego leaves the assembly out.
//
// # Arithmetic
//
// The float32 kernels (Scan, GatherDot, ArgmaxDot) are for the paper's method. The order of their
// sums depends on the machine, so results of two levels differ by rounding: at most about
// n*2^-24 * sum |x_i y_i|. LogSumExp is float64 with a fixed order: it gives the same bits on every
// level and every architecture. The logits of package l2s do, too.
//
// # Contracts
//
// Matrices are row-major: rows has n*d elements, row i is rows[i*d:(i+1)*d]. Destinations come
// first, and the caller owns all memory. Nothing is allocated. A broken contract, such as an id
// above the rows, is a panic with a constant string that starts with "kernels: ", before anything
// is written. Inputs must be finite; package l2s checks that where data enters.
package kernels
