//go:build !purego

package stream

import (
	"unsafe"

	"github.com/klauspost/cpuid/v2"

	"github.com/learning-to-screen/l2s/kernels/asm"
)

// Read returns a function that reads b once as fast as the widest loads allow.
func Read(b []byte) func() {
	p, n := (*uint32)(unsafe.Pointer(&b[0])), len(b)/64*16
	if cpuid.CPU.Supports(cpuid.AVX512F, cpuid.AVX512VL) {
		return func() { asm.MaxIDAVX512(p, n) }
	}
	return func() { asm.MaxIDAVX2(p, n) }
}
