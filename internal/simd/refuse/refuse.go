// Package refuse says how a program ends whose L2S_SIMD this machine lacks.
package refuse

// Level ends the program, by a panic. A command may set it, in the init function of a
// package that is initialised before package simd.
var Level = func(err error) { panic("kernels: " + err.Error()) }
