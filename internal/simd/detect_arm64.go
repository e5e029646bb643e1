//go:build arm64 && !purego

package simd

import "github.com/klauspost/cpuid/v2"

// detect returns the levels of this machine above generic. Every arm64 has Advanced
// SIMD; what there is beyond it, cpuid knows if the system says so: on Linux, macOS
// and FreeBSD.
func detect() (levels []Level, vnni, i8mm bool) {
	if !cpuid.CPU.Supports(cpuid.ASIMDDP) {
		return []Level{NEON}, false, false
	}
	return []Level{NEON, NEONDot}, false, cpuid.CPU.Supports(cpuid.I8MM)
}
