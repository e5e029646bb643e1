//go:build !linux

package mem

// Forget does nothing: package syscall has no such call here.
func Forget([]byte) {}

func advise([]byte) {}
