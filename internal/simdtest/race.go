//go:build race

package simdtest

// Race says whether this build has the race detector.
const Race = true
