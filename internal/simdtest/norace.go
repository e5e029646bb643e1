//go:build !race

package simdtest

import "testing"

// AllocsPerRun is testing.AllocsPerRun. Under the race detector it counts
// nothing.
func AllocsPerRun(runs int, f func()) float64 { return testing.AllocsPerRun(runs, f) }

// Race says whether this build has the race detector.
const Race = false
