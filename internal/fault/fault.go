// Package fault turns faults of mapped memory into errors.
package fault

import "runtime/debug"

// Guard runs f, which reads mapped memory. If another program has shortened the file, or the disk
// has failed, a read of a missing page is a fault, which ends the program. Within f, in its
// goroutine, the fault becomes the error that gone returns. Goroutines that f starts need their own
// Guard. All other panics pass.
func Guard(f, gone func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch r := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }: // only faults have one
			err = gone()
		default:
			panic(r)
		}
	}()
	return f()
}
