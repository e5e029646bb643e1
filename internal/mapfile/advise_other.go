//go:build !linux

package mapfile

// Forget does nothing: package syscall has no such call here.
func Forget([]byte) {}

func advise([]byte) {}
