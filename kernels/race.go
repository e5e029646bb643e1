//go:build race && amd64 && !purego

package kernels

import (
	"runtime"
	"unsafe"
)

// The race detector sees the accesses of Go code, not those of assembly. Under
// the race tag these functions tell it of them, just before the call; in other
// builds they are empty.

// raceReads announces that assembly reads x.
func raceReads[T any](x []T) {
	if len(x) > 0 {
		runtime.RaceReadRange(unsafe.Pointer(&x[0]), len(x)*int(unsafe.Sizeof(x[0])))
	}
}

// raceWrites announces that assembly writes x.
func raceWrites[T any](x []T) {
	if len(x) > 0 {
		runtime.RaceWriteRange(unsafe.Pointer(&x[0]), len(x)*int(unsafe.Sizeof(x[0])))
	}
}

// raceReadsRows announces that assembly reads the rows ids of size elements.
func raceReadsRows[T any](rows []T, size int, ids []uint32) {
	raceReads(ids)
	for _, id := range ids {
		raceReads(rows[int(id)*size : (int(id)+1)*size])
	}
}

// raceReadsBound announces what assembly reads of b, for rows of a stride.
func raceReadsBound(b *bound, stride int) {
	raceReads(unsafe.Slice(b.codes, stride))
	if b.high != nil {
		raceReads(unsafe.Slice(b.high, stride))
	}
}
