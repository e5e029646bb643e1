// Package kernels holds the inner loops of l2s: matrix-vector products over contiguous or
// gathered rows, their argmax and top-k, log-sum-exp, and scans of int8 and 4-bit codes with a
// certified error envelope.
//
// Every operation has a plain Go form, and assembly for AVX2 and AVX-512 on amd64 and for
// Advanced SIMD, with and without dot products, on arm64 (package kernels/asm, written by the
// programs in gen). cpuid decides once at start which one runs; Level returns it,
// the environment variable L2S_SIMD (generic, avx2, avx512, neon, neondot) forces it, and the
// build tag purego leaves the assembly out.
//
// # Four arithmetics
//
// The float32 kernels (Dot, Scan, GatherDot, ArgmaxDot) serve the paper's method.
// Their sums are ordered as the machine likes, so results of two levels differ by rounding: at
// most about n*2^-24 * sum |x_i y_i|.
//
// The reference kernels (RefDot, Rows.RefScan, Rows.RefGatherDot) define the logit: exact
// products summed in float64 in a fixed order. They give the same bits on every level and every
// architecture. So do Axpy, Exp, Log, LogSumExp and Softmax, which are float64 too.
//
// The int8 kernels (Int8Rows) give for each row an interval that provably contains the reference
// logit, from a quarter of the bytes, and the 4-bit kernels (Int4Rows) a wider one from an eighth.
// Their integers are exact and their few float32 operations are ordered, so they too give the same
// bits everywhere.
//
// # Contracts
//
// Matrices are row-major: rows has n*d elements, row i is rows[i*d:(i+1)*d]. Destinations come
// first, and the caller owns all memory. Nothing is allocated, except the memory that an
// [Int8Vector] lacks when it is first used with rows of a kind; calls that read it write to that
// memory. A broken contract, such as an id above the rows, is a panic with a constant string that
// starts with "kernels: ", before anything is written. Inputs must be finite; packages softmax and
// screen check that where data enters.
package kernels
