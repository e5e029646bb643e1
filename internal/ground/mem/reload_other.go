//go:build !linux || !(amd64 || arm64)

package mem

func reload([]byte) {}
