// Package refuse says how a program ends that L2S_SIMD asks for a SIMD level
// that this machine lacks.
package refuse

// Level ends the program. A library panics; a command may set this to something
// that speaks to its user, in the init function of a package that is initialised
// before package simd.
var Level = func(err error) { panic("kernels: " + err.Error()) }
