package simdtest

import "testing"

// Long skips a test that computes for long under the race detector, without assembly, or on an
// emulated CPU, which run with -short: smaller tests have the same concurrency and the same kernels.
// Make test runs it.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("too long for -short: smaller tests have the same concurrency and the same kernels")
	}
}
