// Package fuzz holds the fuzz tests that cross packages: whole queries at every
// SIMD level against the plain definition, and screen files from untrusted
// bytes through to answers. Targets for one package live with it.
//
//	make fuzz TIME=30s
//
// runs all targets of the module in turn.
package fuzz
