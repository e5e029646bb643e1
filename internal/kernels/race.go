//go:build race

package kernels

import (
	"runtime"
	"unsafe"
)

// The race detector sees the accesses of Go code, not of assembly. Under the race tag these
// functions report them, before the call of a leaf.

func raceReads[T any](x []T) {
	if len(x) > 0 {
		runtime.RaceReadRange(unsafe.Pointer(&x[0]), len(x)*int(unsafe.Sizeof(x[0])))
	}
}

func raceWrites[T any](x []T) {
	if len(x) > 0 {
		runtime.RaceWriteRange(unsafe.Pointer(&x[0]), len(x)*int(unsafe.Sizeof(x[0])))
	}
}

func raceReadsRows[T any](rows []T, size int, ids []uint32) {
	raceReads(ids)
	for _, id := range ids {
		raceReads(rows[int(id)*size : (int(id)+1)*size])
	}
}

// raceReadsBound announces the reads of b by a leaf, for rows of a stride.
func raceReadsBound(b *bound, stride int) {
	if b.batch != nil {
		for _, v := range b.batch.vs {
			raceReads(v.codes)
		}
		return
	}
	raceReads(unsafe.Slice(b.codes, stride))
	if b.high != nil {
		raceReads(unsafe.Slice(b.high, stride))
	}
}
