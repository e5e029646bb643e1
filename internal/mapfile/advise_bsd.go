//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package mapfile

// Package syscall has no such call here.
func forget([]byte) {}
