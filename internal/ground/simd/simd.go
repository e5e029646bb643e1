// Package simd decides at start which instruction set extensions the kernels may use.
//
// A level names a set of extensions: generic is plain Go; on amd64 avx2 is AVX2, FMA3, F16C, BMI1,
// BMI2 and POPCNT, avx512 is that and AVX-512 F, BW, DQ and VL, and VNNI is a bit in addition to
// avx512; on arm64 neon is Advanced SIMD, neondot is that and the dot products of bytes, and I8MM,
// products of matrices of bytes, is a bit in addition to neondot.
//
// The environment variable L2S_SIMD forces a level. If it names an unknown level, or a level that
// this machine or build does not have, the kernels run on the best level, and Err returns an error,
// with which commands, benchmarks and tests end, since they would report results of another level.
package simd

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// EnvVar is the environment variable that forces a level.
const EnvVar = "L2S_SIMD"

// Level is a set of extensions; within an architecture, a higher level includes the lower ones.
type Level uint8

// The levels, lowest first within an architecture.
const (
	Generic Level = iota
	AVX2          // amd64
	AVX512
	NEON // arm64
	NEONDot
)

var names = [...]string{Generic: "generic", AVX2: "avx2", AVX512: "avx512", NEON: "neon", NEONDot: "neondot"}

// String returns the name that L2S_SIMD takes.
func (l Level) String() string { return names[l] }

var (
	current   Level
	available []Level // lowest first
	bestVNNI  bool
	bestI8MM  bool
	wrong     error // of L2S_SIMD
)

func init() {
	var levels []Level
	levels, bestVNNI, bestI8MM = detect()
	available = append([]Level{Generic}, levels...)
	level, err := choose(os.Getenv(EnvVar))
	if wrong = err; err != nil {
		level = best()
	}
	apply(level, true)
}

// Err returns an error if L2S_SIMD names a level that the kernels cannot run on. They run on the
// best one then.
func Err() error { return wrong }

// choose returns the level that the value of L2S_SIMD asks for; the empty
// string asks for the highest.
func choose(value string) (Level, error) {
	if value == "" {
		return best(), nil
	}
	l := slices.Index(names[:], value)
	if l < 0 {
		return 0, fmt.Errorf("%s=%q: unknown level; available: %s", EnvVar, value, list(available))
	}
	if !slices.Contains(available, Level(l)) {
		return 0, fmt.Errorf("%s=%s: not available here; available: %s", EnvVar, value, list(available))
	}
	return Level(l), nil
}

func best() Level { return available[len(available)-1] }

func list(levels []Level) string {
	var s []string
	for _, l := range levels {
		s = append(s, l.String())
	}
	return strings.Join(s, ", ")
}

// Features are the extensions that functions may use.
type Features struct{ AVX2, AVX512, VNNI, NEON, NEONDot, I8MM bool }

// Has are those of the current level. Only this package changes it.
var Has Features

var follow = func(Features) {} // of package asm

// Follow calls f with the features, now and whenever they change. Package asm, whose variables the
// assembly reads, is the one that follows.
func Follow(f func(Features)) {
	follow = f
	f(Has)
}

// apply makes l the level, with the bit in addition to it or without.
func apply(l Level, bit bool) {
	current = l
	Has = Features{
		AVX2: l == AVX2 || l == AVX512, AVX512: l == AVX512, VNNI: l == AVX512 && bestVNNI && bit,
		NEON: l == NEON || l == NEONDot, NEONDot: l == NEONDot, I8MM: l == NEONDot && bestI8MM && bit,
	}
	follow(Has)
}

// Current returns the level that the kernels run on.
func Current() Level { return current }

// Available returns the levels that this machine and build can run, lowest
// first. The slice must not be changed.
func Available() []Level { return available }

// Ahead is the number of bytes by which the prefetches of a kernel that reads memory in order are
// ahead, for one context whose rows need little work for each byte, and for more work: for several
// contexts that share the load of a row, or codes that are unpacked.
func Ahead() (little, much int) { return aheadOfLittle, aheadOfMuch }

var aheadOfLittle, aheadOfMuch = ahead()

// Set switches the kernels to a level that must be in Available, and returns a function that
// switches back. Tests use it: no other goroutine may run a kernel meanwhile.
func Set(l Level) (restore func()) {
	if !slices.Contains(available, l) {
		panic("simd: level " + l.String() + " is not available here")
	}
	old := current
	apply(l, true)
	return func() { apply(old, true) }
}

// WithoutBit switches off the bit in addition to the current level, VNNI or I8MM, and returns a
// function that switches back. Tests use it, as Set.
func WithoutBit() (restore func()) {
	l := current
	apply(l, false)
	return func() { apply(l, true) }
}
