// Package asm holds the assembly of package kernels, and a function for each operation that
// jumps to the best form of the CPU. The programs in gen write it; only this file is written by
// hand. Its functions check nothing: use package kernels.
package asm

// The features of the CPU that functions may use. Only package simd sets them: a function jumps to
// instructions that the CPU has if these are true.
var (
	HasAVX2    bool
	HasAVX512  bool
	HasVNNI    bool
	HasNEON    bool
	HasNEONDot bool
	HasI8MM    bool
)
