//go:build amd64 && !purego

package simd

import "github.com/klauspost/cpuid/v2"

// detect returns the levels of this machine above generic.
func detect() (levels []Level, vnni, i8mm bool) {
	if !cpuid.CPU.Supports(cpuid.AVX2, cpuid.FMA3, cpuid.F16C, cpuid.BMI1, cpuid.BMI2, cpuid.POPCNT) {
		return nil, false, false
	}
	if !cpuid.CPU.Supports(cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512DQ, cpuid.AVX512VL) {
		return []Level{AVX2}, false, false
	}
	return []Level{AVX2, AVX512}, cpuid.CPU.Supports(cpuid.AVX512VNNI), false
}
