// Package fault turns faults of mapped memory into errors.
package fault

import "runtime/debug"

// Guard runs f, which reads mapped memory. If another program has shortened the file, or the disk
// has failed, a read of a missing page is a fault, which ends the program. Within f, in its
// goroutine, the fault becomes the error that gone returns. Goroutines that f starts need their own
// Guard. All other panics pass.
func Guard(f, gone func() error) (err error) {
	before := Begin()
	defer func() {
		if End(before, recover()) {
			err = gone()
		}
	}()
	return f()
}

// Begin begins what Guard does, for a function that cannot be a closure: it defers one that calls
// [End] with the result and with what it recovers.
func Begin() (before bool) { return debug.SetPanicOnFault(true) }

// End reports whether a recovered value is a fault. It panics with all others but nil.
func End(before bool, recovered any) bool {
	debug.SetPanicOnFault(before)
	switch recovered.(type) {
	case nil:
		return false
	case interface{ Addr() uintptr }: // only faults have one
		return true
	}
	panic(recovered)
}
