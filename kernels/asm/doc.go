// Package asm holds the assembly of package kernels, written by the avo
// programs in gen; nothing but this comment is written by hand. Its functions
// check nothing: use package kernels.
package asm
