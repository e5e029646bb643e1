// Package fault turns faults of mapped memory into errors.
package fault

import "runtime/debug"

// Guard runs f, which reads mapped memory. The system answers a read of a page
// that is no longer there, since another program has shortened the file or the
// disk has failed, with a fault, which ends the program. Within f, in its
// goroutine, it becomes the error that gone returns. Goroutines that f starts
// need a Guard of their own. All other panics pass.
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
