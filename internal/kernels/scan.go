package kernels

import (
	"math"

	"github.com/learning-to-screen/l2s/kernels/asm"
)

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

// A scan may read its rows as one stream if they are short and many: outside the second-level cache
// that is faster than several rows in parallel (see PERFORMANCE.md).
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

// Dot returns the inner product of x and y, of equal lengths, in float32.
func Dot(x, y []float32) float32 {
	if len(x) != len(y) {
		panic("kernels: Dot: lengths of x and y differ")
	}
	if len(x) == 0 {
		return 0
	}
	var s [1]float32
	scan(s[:], x, y)
	return s[0]
}

// dotGeneric sums in four lanes, so that the compiler's code is not one long
// chain of dependent additions.
func dotGeneric(x, y []float32) float32 {
	y = y[:len(x)]
	var s0, s1, s2, s3 float32
	i := 0
	for ; i+4 <= len(x); i += 4 {
		s0 += x[i] * y[i]
		s1 += x[i+1] * y[i+1]
		s2 += x[i+2] * y[i+2]
		s3 += x[i+3] * y[i+3]
	}
	for ; i < len(x); i++ {
		s0 += x[i] * y[i]
	}
	return (s0 + s2) + (s1 + s3)
}

// ArgmaxDot returns the row with the largest inner product with h, and that
// product, in float32: the cluster assignment z(h) = argmax_t v_t.h (Eq. 2
// of the paper). Of equal products the lower row wins.
//
// rows is row-major with at least one row of len(h) elements.
func ArgmaxDot(rows, h []float32) (index int, score float32) {
	d := len(h)
	if d == 0 {
		panic("kernels: dimension is zero")
	}
	if len(rows) == 0 || len(rows)%d != 0 {
		panic("kernels: length of rows is not a positive multiple of the dimension")
	}
	if d > maxCallDim {
		return argmaxDotGeneric(rows, h)
	}
	score = float32(math.Inf(-1))
	for c := callsOf(len(rows)/d, callRows(4*d)); c.at < c.n; c = c.next() {
		part := rows[c.at*d : c.end*d]
		raceReads(part)
		raceReads(h)
		i, s, ok := asm.ArgmaxDot(&part[0], c.end-c.at, &h[0], d)
		if !ok {
			i, s = argmaxDotGeneric(part, h)
		}
		if s > score {
			index, score = c.at+i, s
		}
	}
	return index, score
}

func argmaxDotGeneric(rows, h []float32) (index int, score float32) {
	d := len(h)
	score = float32(math.Inf(-1))
	for i := 0; i*d < len(rows); i++ {
		if s := dotGeneric(rows[i*d:(i+1)*d], h); s > score {
			index, score = i, s
		}
	}
	return index, score
}
