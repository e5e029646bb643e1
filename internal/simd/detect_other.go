//go:build !amd64 || purego

package simd

func detect() (level Level, vnni bool) { return Generic, false }
