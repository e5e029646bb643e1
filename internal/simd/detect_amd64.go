//go:build amd64 && !purego

package simd

import "github.com/klauspost/cpuid/v2"

func detect() (level Level, vnni bool) {
	if !cpuid.CPU.Supports(cpuid.AVX2, cpuid.FMA3, cpuid.F16C, cpuid.BMI1, cpuid.BMI2) {
		return Generic, false
	}
	if !cpuid.CPU.Supports(cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512DQ, cpuid.AVX512VL) {
		return AVX2, false
	}
	return AVX512, cpuid.CPU.Supports(cpuid.AVX512VNNI)
}
