package kernels

import "runtime"

// MaxCode4 is the largest 4-bit code, and code4Bias the number that is added to it.
const (
	MaxCode4  = 7
	code4Bias = 8
)

// Int4Rows holds the rows of a matrix as 4-bit codes: half the bytes of Int8Rows, and an
// envelope some sixteen times as wide, for the first pass of a search over very many rows.
//
// A record is as in Int8Rows, with q_ij in [-7, 7] and, instead of the codes' bytes, half =
// ceil(d/2) bytes: byte j holds code j plus 8 in its low half, and code half+j plus 8 in its
// high half.
//
// An Int4Rows is immutable and safe for use by many goroutines.
type Int4Rows struct{ codeRows }

// Int4Stride returns the bytes of a row of dimension dim: a multiple of 64, or 16 more.
func Int4Stride(dim int) int { return stride((dim + 1) / 2) }

// Int4RowsIn is Int8RowsIn for Int4Stride(dim) bytes each.
func Int4RowsIn(data []byte, dim int, slack float32) *Int4Rows {
	return &Int4Rows{codeRowsIn(data, dim, Int4Stride(dim), slack)}
}

// Part is Int8Rows.Part.
func (m *Int4Rows) Part(first, end int) Int4Rows { return Int4Rows{m.part(first, end)} }

// Bounds computes an interval for the reference logit of every row, as
// Int8Rows.Bounds does and with the same proof.
func (m *Int4Rows) Bounds(lower, upper []float32, v *Int8Vector) {
	vs := []*Int8Vector{v}
	checkVectors(len(lower), len(upper), m.n, m.dim, vs)
	if m.n == 0 {
		return
	}
	v.halve(m.stride)
	var b bound
	b.set(v, code4Bias*v.sum, m.slack)
	b.codes, b.high = &v.halves[0][0], &v.halves[1][0]
	m.intervals(lower, upper, nil, m.n, &b, vs)
	runtime.KeepAlive(m)
}

// halve lays out the two halves of the codes, padded with zeros to the stride.
func (v *Int8Vector) halve(stride int) {
	if v.halved {
		return
	}
	if v.halves[0] == nil {
		v.halves[0], v.halves[1] = make([]int8, stride), make([]int8, stride)
	}
	half := (v.dim + 1) / 2
	copy(v.halves[0], v.codes[:half])
	copy(v.halves[1], v.codes[half:v.dim])
	v.halved = true
}
