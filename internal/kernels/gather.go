package kernels

import "github.com/learning-to-screen/l2s/kernels/asm"

// GatherDot computes the scores of the candidate rows: dst[j] = rows[ids[j]].h +
// bias[ids[j]] in float32 (Eq. 1 over a candidate set).
//
// rows is row-major with rows of len(h) elements; each id must be less than their number. dst has
// len(ids) elements. bias has one element per row of rows, or is nil for none. dst must not overlap
// the inputs.
func GatherDot(dst, rows, bias []float32, ids []uint32, h []float32) {
	m := Float32Rows(rows, len(h))
	m.check(len(dst), len(ids), bias, h)
	checkIDs(ids, m.n)
	for c := callsOf(len(ids), callRows(4*m.dim)); c.at < c.n; c = c.next() {
		out, part := dst[c.at:c.end], ids[c.at:c.end]
		raceReadsRows(rows, m.dim, part)
		raceReads(h)
		raceWrites(out)
		if m.dim > maxCallDim || !asm.GatherDot(&out[0], &rows[0], &part[0], len(part), &h[0], m.dim) {
			gatherDotGeneric(out, rows, part, h)
		}
	}
	if bias != nil {
		for j, id := range ids {
			dst[j] += bias[id]
		}
	}
}

func checkIDs(ids []uint32, n int) {
	if len(ids) > 0 && uint64(maxID(ids)) >= uint64(n) {
		panic("kernels: id out of range")
	}
}

func maxID(ids []uint32) uint32 {
	whole := len(ids) &^ 15
	m := maxIDGeneric(ids[whole:])
	for c := callsOf(whole, maxCallBytes/4); c.at < c.n; c = c.next() {
		part := ids[c.at:c.end]
		raceReads(part)
		id, ok := asm.MaxID(&part[0], len(part))
		if !ok {
			id = maxIDGeneric(part)
		}
		m = max(m, id)
	}
	return m
}

func maxIDGeneric(ids []uint32) uint32 {
	var m uint32
	for _, id := range ids {
		m = max(m, id)
	}
	return m
}

func gatherDotGeneric(dst, rows []float32, ids []uint32, h []float32) {
	d := len(h)
	for j, id := range ids {
		dst[j] = dotGeneric(rows[int(id)*d:(int(id)+1)*d], h)
	}
}
