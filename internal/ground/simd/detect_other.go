//go:build !(amd64 || arm64) || purego

package simd

func detect() (levels []Level, vnni, i8mm bool) { return nil, false, false }

func ahead() (little, much int) { return 0, 0 }
