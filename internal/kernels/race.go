//go:build race

package kernels

import (
	"runtime"
	"unsafe"
)

// The race detector sees the accesses of Go code, not of assembly. Under the race tag these
// functions report them, before the call of a leaf; without it they do nothing.

// RaceReads announces reads of x.
func RaceReads[T any](x []T) {
	if len(x) > 0 {
		runtime.RaceReadRange(unsafe.Pointer(&x[0]), len(x)*int(unsafe.Sizeof(x[0])))
	}
}

// RaceWrites announces writes of x.
func RaceWrites[T any](x []T) {
	if len(x) > 0 {
		runtime.RaceWriteRange(unsafe.Pointer(&x[0]), len(x)*int(unsafe.Sizeof(x[0])))
	}
}

// RaceReadsRows announces reads of ids, and of the rows of size elements that they name.
func RaceReadsRows[T any](rows []T, size int, ids []uint32) {
	RaceReads(ids)
	for _, id := range ids {
		RaceReads(rows[int(id)*size : (int(id)+1)*size])
	}
}

// raceReadsBound announces the reads of b by a leaf, for rows of a stride.
func raceReadsBound(b *bound, stride int) {
	if b.batch != nil {
		for _, v := range b.batch.vs {
			RaceReads(v.codes)
		}
		return
	}
	RaceReads(unsafe.Slice(b.codes, stride))
	if b.high != nil {
		RaceReads(unsafe.Slice(b.high, stride))
	}
}
