package floats

import (
	"math"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/kernels/asm"
)

// Scan computes one score a row: dst[i] = rows[i].h + bias[i] in float32
// (Eq. 1 of the paper over all labels).
//
// rows is row-major with len(dst) rows of len(h) elements. bias has len(dst)
// elements, or is nil for none. dst must not overlap the inputs.
func Scan(dst, rows, bias, h []float32) {
	if check(rows, bias, h) != len(dst) {
		panic("kernels: length of dst differs from the number of rows")
	}
	scan(dst, rows, h)
	if bias != nil {
		add(dst, bias)
	}
}

// check returns the number of rows. It panics unless they are whole rows of len(h) elements, and
// bias has one element for each or is nil.
func check(rows, bias, h []float32) (n int) {
	d := len(h)
	if d == 0 {
		panic("kernels: dimension is not positive")
	}
	if len(rows)%d != 0 {
		panic("kernels: length of rows is not a multiple of the dimension")
	}
	if n = len(rows) / d; bias != nil && len(bias) != n {
		panic("kernels: length of bias differs from the number of rows")
	}
	return n
}

// A scan may read its rows as one stream if they are short and many: outside the second-level cache
// that is faster than several rows in parallel (benchmarks/LOG.md).
const (
	shortRow   = 1 << 10 // bytes
	manyShorts = 2 << 20 // bytes of all rows
)

func scan(dst, rows, h []float32) {
	d := len(h)
	stream := 4*d <= shortRow && 4*len(rows) > manyShorts
	for at, end := range kernels.Calls(len(dst), kernels.CallRows(4*d)) {
		out, part := dst[at:end], rows[at*d:end*d]
		kernels.RaceReads(part)
		kernels.RaceReads(h)
		kernels.RaceWrites(out)
		n := len(out)
		if stream && asm.ScanSingle(&out[0], &part[0], n, &h[0], d) {
			continue
		}
		if d > kernels.MaxCallDim || !asm.Scan(&out[0], &part[0], n, &h[0], d) {
			scanGeneric(out, part, h)
		}
	}
}

func add(dst, x []float32) {
	whole := len(dst) &^ 15
	for at, end := range kernels.Calls(whole, kernels.MaxCallBytes/8) {
		out, part := dst[at:end], x[at:end]
		kernels.RaceReads(part)
		kernels.RaceWrites(out)
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
	if d > kernels.MaxCallDim {
		return argmaxDotGeneric(rows, h)
	}
	score = float32(math.Inf(-1))
	for at, end := range kernels.Calls(len(rows)/d, kernels.CallRows(4*d)) {
		part := rows[at*d : end*d]
		kernels.RaceReads(part)
		kernels.RaceReads(h)
		i, s, ok := asm.ArgmaxDot(&part[0], end-at, &h[0], d)
		if !ok {
			i, s = argmaxDotGeneric(part, h)
		}
		if s > score {
			index, score = at+i, s
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

// GatherDot computes the scores of the candidate rows: dst[j] = rows[ids[j]].h +
// bias[ids[j]] in float32 (Eq. 1 over a candidate set).
//
// rows is row-major with rows of len(h) elements; each id must be less than their number. dst has
// len(ids) elements. bias has one element per row of rows, or is nil for none. dst must not overlap
// the inputs.
func GatherDot(dst, rows, bias []float32, ids []uint32, h []float32) {
	n := check(rows, bias, h)
	if len(dst) != len(ids) {
		panic("kernels: length of dst differs from the number of ids")
	}
	kernels.CheckIDs(ids, n)
	for at, end := range kernels.Calls(len(ids), kernels.CallRows(4*len(h))) {
		out, part := dst[at:end], ids[at:end]
		kernels.RaceReadsRows(rows, len(h), part)
		kernels.RaceReads(h)
		kernels.RaceWrites(out)
		if len(h) > kernels.MaxCallDim || !asm.GatherDot(&out[0], &rows[0], &part[0], len(part), &h[0], len(h)) {
			gatherDotGeneric(out, rows, part, h)
		}
	}
	if bias != nil {
		for j, id := range ids {
			dst[j] += bias[id]
		}
	}
}

func gatherDotGeneric(dst, rows []float32, ids []uint32, h []float32) {
	d := len(h)
	for j, id := range ids {
		dst[j] = dotGeneric(rows[int(id)*d:(int(id)+1)*d], h)
	}
}
