package kernels

import (
	"math"

	"github.com/learning-to-screen/l2s/kernels/asm"
)

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
