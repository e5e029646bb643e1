package kernels

import "iter"

// A leaf is one call into assembly: a function of package asm, which runs the assembly of the best
// level, or the plain Go form if there is none. The choice is made by branches on package
// variables, which cost nothing next to the call; function variables would make the arguments
// escape to the heap.
//
// Leaves take no empty slices. Their common rules are above them, once per operation: the limit of
// one call, that the goroutine can be stopped between two calls, and the race detector's part.

// MaxCallBytes bounds the bytes that one call of a leaf reads or writes: a goroutine
// inside assembly cannot be stopped by the scheduler or the garbage collector. At
// the 10 GB/s of a slow memory it is 25 microseconds.
const MaxCallBytes = 256 << 10

// MaxCallDim is the largest dimension that leaves take: more is left to plain Go.
const MaxCallDim = MaxCallBytes / 4

// CallRows returns the number of rows of size bytes that one call may read. A row counts as at
// least one cache line: gathering a shorter row costs the same.
func CallRows(size int) int {
	n := MaxCallBytes / max(size, 64)
	if n >= 16 {
		n &^= 15 // whole blocks
	}
	return max(1, n)
}

// callBlocks is CallRows for the leaves that take rows in blocks of up to
// maxBlock: a block of the longest rows of codes has 1 MiB.
func callBlocks(size int) int { return max(maxBlock, CallRows(size)&^(maxBlock-1)) }

// calls cuts items into calls of leaves, with a checkpoint between two of them:
//
//	for c := callsOf(n, step); c.at < c.n; c = c.next() {
//		leaf(items[c.at:c.end])
//	}
//
// The compiler keeps a struct of four words in registers: work that takes one
// call costs next to nothing.
type calls struct {
	at, end int // the items of a call
	n       int // of all
	step    int // the most of a call
}

// callsOf returns the first call for n items.
func callsOf(n, step int) calls { return calls{0, min(n, step), n, step} }

// Calls is callsOf for other packages: the first item of each call, and the item after its last.
func Calls(n, step int) iter.Seq2[int, int] {
	return func(yield func(at, end int) bool) {
		for c := callsOf(n, step); c.at < c.n && yield(c.at, c.end); c = c.next() {
		}
	}
}

// next returns the call after c. There is none if at is n.
func (c calls) next() calls { return c.nextOf(1) }

// nextOf is next for leaves that take n >= least items: if fewer are left, the last call overlaps
// the previous one. The result that they write for an item depends on that item alone.
func (c calls) nextOf(least int) calls {
	if c.at = c.end; c.at == c.n {
		return c // in line
	}
	return c.after(least)
}

func (c calls) after(least int) calls {
	checkpoint()
	c.end = min(c.at+c.step, c.n)
	c.at = min(c.at, c.n-least)
	return c
}

// checkpoint lets the scheduler stop the goroutine between two calls of assembly. The signal
// that asks a goroutine to stop has no effect inside assembly, where the loops spend all their
// time, and their Go code calls no function with a frame, which looks for the request when it
// is entered. Tests count the calls.
var checkpoint = stoppable

//go:noinline
func stoppable() { frame() }

// frame makes stoppable a function with a frame.
//
//go:noinline
func frame() {}
