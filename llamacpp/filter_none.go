//go:build purego || !((amd64 && !windows) || arm64)

package llamacpp

func throughFilter(callback uintptr) uintptr { return callback }
