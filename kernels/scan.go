package kernels

import "github.com/learning-to-screen/l2s/kernels/asm"

// Scan computes one score a row: dst[i] = rows[i].h + bias[i] in float32
// (Eq. 1 of the paper over all labels).
//
// rows is row-major with len(dst) rows of len(h) elements. bias has len(dst)
// elements, or is nil for none. dst must not overlap the inputs.
func Scan(dst, rows, bias, h []float32) {
	m := Float32Rows(rows, len(h))
	m.check(len(dst), m.n, bias, h)
	scan(dst, rows, h)
	if bias != nil {
		add(dst, bias)
	}
}

// A scan may read its rows as one stream if they are short and many: from
// beyond the second-level cache that is faster than rows side by side (see
// PERFORMANCE.md).
const (
	shortRow   = 1 << 10 // bytes
	manyShorts = 2 << 20 // bytes of all rows
)

func scan(dst, rows, h []float32) {
	d := len(h)
	stream := 4*d <= shortRow && 4*len(rows) > manyShorts
	for c := callsOf(len(dst), callRows(4*d)); c.at < c.n; c = c.next() {
		out, part := dst[c.at:c.end], rows[c.at*d:c.end*d]
		raceReads(part)
		raceReads(h)
		raceWrites(out)
		n := len(out)
		if stream && asm.ScanSingle(&out[0], &part[0], n, &h[0], d) {
			continue
		}
		if d > maxCallDim || !asm.Scan(&out[0], &part[0], n, &h[0], d) {
			scanGeneric(out, part, h)
		}
	}
}

func add(dst, x []float32) {
	whole := len(dst) &^ 15
	for c := callsOf(whole, maxCallBytes/8); c.at < c.n; c = c.next() {
		out, part := dst[c.at:c.end], x[c.at:c.end]
		raceReads(part)
		raceWrites(out)
		if !asm.Add(&out[0], &part[0], len(part)) {
			addGeneric(out, part)
		}
	}
	addGeneric(dst[whole:], x[whole:])
}

func addGeneric(dst, x []float32) {
	x = x[:len(dst)]
	for i, v := range x {
		dst[i] += v
	}
}

func scanGeneric(dst, rows, h []float32) {
	d := len(h)
	for i := range dst {
		dst[i] = dotGeneric(rows[i*d:(i+1)*d], h)
	}
}
