package mem

import "runtime/debug"

// Guard runs f, which reads mapped memory. If another program has shortened the file, or the disk
// has failed, a read of a missing page is a fault, which ends the program. Within f, in its
// goroutine, the fault becomes the error that gone returns. Goroutines that f starts need their own
// Guard. All other panics pass.
func Guard(f, gone func() error) (err error) {
	before := BeginGuard()
	defer func() {
		if EndGuard(before, recover()) {
			err = gone()
		}
	}()
	return f()
}

// BeginGuard begins what Guard does, for a function that cannot be a closure: it defers one that calls
// [EndGuard] with the result and with what it recovers.
func BeginGuard() (before bool) { return debug.SetPanicOnFault(true) }

// EndGuard reports whether a recovered value is a fault. It panics with all others but nil.
func EndGuard(before bool, recovered any) bool {
	debug.SetPanicOnFault(before)
	switch recovered.(type) {
	case nil:
		return false
	case interface{ Addr() uintptr }: // only faults have one
		return true
	}
	panic(recovered)
}
