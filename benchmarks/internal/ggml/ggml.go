// Package ggml brings the matrix-vector product of ggml, the library of llama.cpp, to the
// benchmarks that are built with -tags ggml (on Linux, with a C compiler). It is loaded from the
// libraries of a folder, libggml-base.so and libggml-cpu-*.so, such as the ones in llama.cpp's
// releases or the npm package @node-llama-cpp/linux-x64:
//
//	npm pack @node-llama-cpp/linux-x64 && tar xzf node-llama-cpp-linux-x64-*.tgz
//	ls package/bins/linux-x64
package ggml

import "github.com/learning-to-screen/l2s/internal/kernels"

// Product is a matrix in Q8_0, as ggml holds it.
type Product interface {
	// Mul writes the inner products of h with the rows to dst, on one thread.
	Mul(dst, h []float32)
	// Library is the name of the library that computes.
	Library() string
}

// Open loads ggml from a folder, from its library for the best level of this CPU,
// and quantises a matrix, whose dimension is a multiple of 32, to Q8_0 by ggml's own
// function. It is nil where ggml is not built in.
var Open func(folder string, rows kernels.Rows) (Product, error)
