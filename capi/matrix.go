package main

import (
	"unsafe"

	"github.com/learning-to-screen/l2s"
)

// matrix is l2s_matrix.
type matrix struct {
	data      unsafe.Pointer
	rows, dim int
	stride    int // in bytes, 0 for rows that follow each other
	kind      int32
}

// The types of elements, as in l2s.h.
const (
	float32s = iota
	float16s
	bfloat16s
	quantised = 8
)

var quantisations = [...]l2s.Quantisation{l2s.Q4_0, l2s.Q4_1, l2s.Q5_0, l2s.Q5_1, l2s.Q8_0, l2s.Q4_K, l2s.Q5_K, l2s.Q6_K}

// blocks are the elements and the bytes of a block of each quantised type.
var blocks = [len(quantisations)][2]int{{32, 18}, {32, 20}, {32, 22}, {32, 24}, {32, 34}, {256, 144}, {256, 176}, {256, 210}}

// most bounds the bytes of a matrix, so that no product of its numbers overflows.
const most = 1 << 56

// rowBytes returns the bytes of a row, and the bytes of an element, or a byte for quantised types.
func (m *matrix) rowBytes(what string) (row, element int, err error) {
	switch q := m.kind - quantised; {
	case m.dim < 1 || m.dim > most>>8:
		return 0, 0, invalid("%s: dim: found %d, expected at least 1", what, m.dim)
	case m.kind == float32s:
		return 4 * m.dim, 4, nil
	case m.kind == float16s, m.kind == bfloat16s:
		return 2 * m.dim, 2, nil
	case q < 0 || int(q) >= len(quantisations):
		return 0, 0, invalid("%s: type: found %d, expected one of l2s_type", what, m.kind)
	case m.dim%blocks[q][0] != 0:
		return 0, 0, invalid("%s: dim: found %d, expected a multiple of %d, the elements of a block", what, m.dim, blocks[q][0])
	default:
		return m.dim / blocks[q][0] * blocks[q][1], 1, nil
	}
}

// check returns the bytes of a row of a matrix that can be read.
func (m *matrix) check(what string) (row int, err error) {
	row, element, err := m.rowBytes(what)
	if err != nil {
		return 0, err
	}
	stride := m.step(row)
	switch {
	case m.rows < 0 || m.rows > most/max(row, stride, -stride):
		return 0, invalid("%s: rows: found %d of %d bytes", what, m.rows, max(row, stride, -stride))
	case m.rows > 0 && m.data == nil:
		return 0, invalid("%s: data: found NULL for %d rows", what, m.rows)
	case uintptr(m.data)%uintptr(element) != 0:
		return 0, invalid("%s: data: found the address %#x, expected a multiple of %d", what, uintptr(m.data), element)
	case stride%element != 0:
		return 0, invalid("%s: stride: found %d bytes, expected a multiple of %d", what, stride, element)
	}
	return row, nil
}

func (m *matrix) step(row int) int {
	if m.stride == 0 {
		return row
	}
	return m.stride
}

// inPlace returns a matrix whose rows follow each other, as the library has it: nothing is copied.
func (m *matrix) inPlace(what string) (l2s.Matrix, error) {
	row, err := m.check(what)
	if err != nil {
		return l2s.Matrix{}, err
	}
	if m.rows == 0 {
		return l2s.Matrix{}, invalid("%s: rows: found none", what)
	}
	if m.rows > 1 && m.step(row) != row {
		return l2s.Matrix{}, invalid("%s: stride: found %d bytes, expected the %d of a row: rows that follow each other, in C order", what, m.stride, row)
	}
	switch n := m.rows * m.dim; m.kind {
	case float32s:
		return l2s.Float32(unsafe.Slice((*float32)(m.data), n), m.dim), nil
	case float16s:
		return l2s.Float16(unsafe.Slice((*uint16)(m.data), n), m.dim), nil
	case bfloat16s:
		return l2s.BFloat16(unsafe.Slice((*uint16)(m.data), n), m.dim), nil
	default:
		return l2s.Quantised(unsafe.Slice((*byte)(m.data), m.rows*row), quantisations[m.kind-quantised], m.dim), nil
	}
}

// contexts returns the rows as float32, one after the other: the caller's memory if it has them so, and
// otherwise *scratch, which grows.
func (m *matrix) contexts(what string, dim int, scratch *[]float32) ([]float32, error) {
	if m.dim != dim {
		return nil, wrongContext("%s: found the dimension %d, expected %d, the layer's", what, m.dim, dim)
	}
	row, err := m.check(what)
	if err != nil {
		return nil, err
	}
	if m.kind >= quantised {
		return nil, invalid("%s: type: found a quantised one, expected float32, float16 or bfloat16", what)
	}
	n := m.rows * dim
	if n == 0 {
		return nil, nil
	}
	step := m.step(row)
	if m.kind == float32s && (step == row || m.rows == 1) {
		return unsafe.Slice((*float32)(m.data), n), nil
	}
	if cap(*scratch) < n {
		*scratch = make([]float32, n)
	}
	rows := (*scratch)[:n]
	for i := range m.rows {
		at, to := unsafe.Add(m.data, i*step), rows[i*dim:][:dim]
		switch m.kind {
		case float32s:
			copy(to, unsafe.Slice((*float32)(at), dim))
		case float16s:
			l2s.Float16(unsafe.Slice((*uint16)(at), dim), dim).Row(to, 0)
		case bfloat16s:
			l2s.BFloat16(unsafe.Slice((*uint16)(at), dim), dim).Row(to, 0)
		}
	}
	return rows, nil
}
