// Package simdtest runs tests on every level that the machine has.
package simdtest

import (
	"testing"

	"github.com/learning-to-screen/l2s/internal/simd"
)

// EachLevel runs f as a subtest once for each available level, lowest first,
// and if the highest has VNNI, or I8MM, once more without it.
// f must not run in parallel with anything that uses the kernels.
func EachLevel(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	for _, level := range simd.Available() {
		t.Run(level.String(), func(t *testing.T) {
			defer simd.Set(level)()
			f(t)
		})
	}
	if simd.HasVNNI {
		t.Run("avx512 without vnni", func(t *testing.T) {
			defer simd.SetVNNI(false)()
			f(t)
		})
	}
	if simd.HasI8MM {
		t.Run("neondot without i8mm", func(t *testing.T) {
			defer simd.SetI8MM(false)()
			f(t)
		})
	}
}
