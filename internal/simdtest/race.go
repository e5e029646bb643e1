//go:build race

package simdtest

// AllocsPerRun is testing.AllocsPerRun, but for builds with the race detector:
// what is announced to it escapes to the heap, so that there is nothing to count.
// f runs all the same.
func AllocsPerRun(runs int, f func()) float64 {
	f()
	return 0
}

// Race says whether this build has the race detector.
const Race = true
