// Package openblas brings OpenBLAS's matrix-vector product to the benchmarks
// that are built with -tags openblas (Debian: libopenblas-dev and pkg-config).
package openblas

// Sgemv writes the inner products of h with the rows of a matrix, row-major
// with len(dst) rows of len(h) elements, to dst, on one thread. It is nil where
// OpenBLAS is not built in.
var Sgemv func(dst, rows, h []float32)
