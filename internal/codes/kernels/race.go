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

// RaceWritesRows announces writes of the rows of size elements that ids name.
func RaceWritesRows[T any](rows []T, size int, ids []uint32) {
	for _, id := range ids {
		RaceWrites(rows[int(id)*size : (int(id)+1)*size])
	}
}

// raceReadsVectors announces reads of the codes of vs.
func raceReadsVectors(vs []*Int8Vector) {
	for _, v := range vs {
		RaceReads(v.codes)
		RaceReads(v.halves[0])
		RaceReads(v.halves[1])
	}
}

// raceIntervals announces what a leaf does for the call c of c.n rows of size bytes, or of the rows
// ids: it reads them, and writes their intervals, for each of some contexts.
func raceIntervals(data []byte, size int, ids []uint32, c calls, lower, upper []float32, contexts int) {
	if ids == nil {
		RaceReads(data[c.at*size : c.end*size])
	} else {
		RaceReadsRows(data, size, ids[c.at:c.end])
	}
	for i := range contexts {
		RaceWrites(lower[i*c.n+c.at : i*c.n+c.end])
		RaceWrites(upper[i*c.n+c.at : i*c.n+c.end])
	}
}
