package kernels

// GatherDot computes the scores of the candidate rows: dst[j] =
// rows[ids[j]].h + bias[ids[j]] in float32 (Eq. 1 of the paper over a
// candidate set).
//
// rows is row-major with rows of len(h) elements; each id must be less than
// their number. dst has len(ids) elements. bias has one element a row of
// rows, or is nil for none. dst must not overlap the inputs.
func GatherDot(dst, rows, bias []float32, ids []uint32, h []float32) {
	checkGather(len(dst), len(rows), bias, ids, len(h))
	if len(ids) == 0 {
		return
	}
	gatherDot(dst, rows, ids, h)
	if bias != nil {
		for j, id := range ids {
			dst[j] += bias[id]
		}
	}
}

func gatherDot(dst, rows []float32, ids []uint32, h []float32) {
	d := len(h)
	if d > maxCallDim {
		gatherDotGeneric(dst, rows, ids, h)
		return
	}
	for c := callsOf(len(ids), callRows(4*d)); c.at < c.n; c = c.next() {
		out, part := dst[c.at:c.end], ids[c.at:c.end]
		raceReadsRows(rows, d, part)
		raceReads(h)
		raceWrites(out)
		gatherDotLeaf(out, rows, part, h)
	}
}

// checkGather panics unless the arguments of a gather fit each other and
// every id names a row.
func checkGather(dst, size int, bias []float32, ids []uint32, d int) {
	if dst != len(ids) {
		panic("kernels: length of dst differs from the number of ids")
	}
	if d == 0 {
		panic("kernels: dimension is zero")
	}
	if size%d != 0 {
		panic("kernels: length of rows is not a multiple of the dimension")
	}
	n := size / d
	if bias != nil && len(bias) != n {
		panic("kernels: length of bias differs from the number of rows")
	}
	checkIDs(ids, n)
}

// checkIDs panics unless every id is less than n.
func checkIDs(ids []uint32, n int) {
	if len(ids) == 0 {
		return
	}
	if uint64(maxID(ids)) >= uint64(n) {
		panic("kernels: id out of range")
	}
}

func maxID(ids []uint32) uint32 {
	whole := len(ids) &^ 15
	m := maxIDGeneric(ids[whole:])
	for c := callsOf(whole, maxCallBytes/4); c.at < c.n; c = c.next() {
		raceReads(ids[c.at:c.end])
		m = max(m, maxIDLeaf(ids[c.at:c.end]))
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
