//go:build (amd64 || arm64) && !purego

package simd

import (
	"runtime"

	"github.com/klauspost/cpuid/v2"
)

// detect returns the levels of this machine above generic. Every arm64 has Advanced
// SIMD; cpuid knows further instructions if the system tells them: on Linux, macOS
// and FreeBSD.
func detect() (levels []Level, vnni, i8mm bool) {
	has := cpuid.CPU.Supports
	switch {
	case runtime.GOARCH == "arm64" && has(cpuid.ASIMDDP):
		return []Level{NEON, NEONDot}, false, has(cpuid.I8MM)
	case runtime.GOARCH == "arm64":
		return []Level{NEON}, false, false
	case !has(cpuid.AVX2, cpuid.FMA3, cpuid.F16C, cpuid.BMI1, cpuid.BMI2, cpuid.POPCNT):
		return nil, false, false
	case !has(cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512DQ, cpuid.AVX512VL):
		return []Level{AVX2}, false, false
	}
	return []Level{AVX2, AVX512}, has(cpuid.AVX512VNNI), false
}

// ahead returns the values of Ahead. From memory, rows of 680 bytes took 13.7 ms on a Sapphire
// Rapids with 4,096 and 18 with none, and on a Zen 4 10.8 ms with 4,096 and 9.5 with 512; for four
// contexts there 14.5 with 512 and 13.8 with 2,048. On a Zen 3, which has no AVX-512, rows of 1,632
// bytes came at 11.6 GB/s with 512, 13.9 with 2,048 and 13.5 with 4,096; a plain read at 14.4.
func ahead() (little, much int) {
	switch {
	case cpuid.CPU.IsVendor(cpuid.Intel):
		return 4096, 4096
	case runtime.GOARCH == "amd64" && !cpuid.CPU.Supports(cpuid.AVX512F):
		return 2048, 2048
	}
	return 512, 2048
}
