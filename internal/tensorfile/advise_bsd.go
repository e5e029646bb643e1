//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package tensorfile

// advise does nothing: package syscall has no such call here.
func advise([]byte) error { return nil }
