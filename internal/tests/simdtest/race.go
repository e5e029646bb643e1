//go:build race

package simdtest

// Race tells whether this build has the race detector.
const Race = true
