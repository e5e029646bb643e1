// Package simdtest runs tests on every level of the machine, or on the level of L2S_SIMD.
package simdtest

import (
	"os"
	"testing"

	"github.com/learning-to-screen/l2s/internal/ground/simd"
)

// Levels returns the levels to test, lowest first: all levels of the machine, or the one that
// L2S_SIMD forces, so that runs which each force one level repeat no test.
func Levels() []simd.Level {
	if os.Getenv(simd.EnvVar) != "" {
		return []simd.Level{simd.Current()}
	}
	return simd.Available()
}

// EachLevel runs f as a subtest once for each level of Levels, and if the highest has
// VNNI, or I8MM, once more without it.
// f must not run in parallel with anything that uses the kernels.
func EachLevel(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if err := simd.Err(); err != nil {
		t.Fatal(err)
	}
	for _, level := range Levels() {
		t.Run(level.String(), func(t *testing.T) {
			defer simd.Set(level)()
			f(t)
		})
	}
	if simd.Has.VNNI || simd.Has.I8MM {
		t.Run(simd.Current().String()+" without its bit", func(t *testing.T) {
			defer simd.WithoutBit()()
			f(t)
		})
	}
}

// AllocsPerRun is testing.AllocsPerRun, but with the race detector: announcements to it
// escapes to the heap, so that nothing is counted. f runs all the same.
func AllocsPerRun(runs int, f func()) float64 {
	if Race {
		f()
		return 0
	}
	return testing.AllocsPerRun(runs, f)
}

// Long skips a test that computes for long under the race detector, without assembly, or on an
// emulated CPU, which run with -short: smaller tests have the same concurrency and the same kernels.
// Make test runs it.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("too long for -short: smaller tests have the same concurrency and the same kernels")
	}
}
