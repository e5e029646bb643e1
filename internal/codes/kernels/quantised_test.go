package kernels

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
)

// scaleOffsets are the places of the float16 numbers of a block.
var scaleOffsets = map[Element][]int{Q4_0: {0}, Q5_0: {0}, Q8_0: {0}, Q4_K: {0, 2}, Q5_K: {0, 2}, Q6_K: {208}, Q4_1: {0, 2}, Q5_1: {0, 2}}

// randomBlocks returns n blocks of any bytes whose scales are finite.
func randomBlocks(r *rand.Rand, e Element, n int) []byte {
	_, size := BlockOf(e)
	b := make([]byte, n*size)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	for at := 0; at < len(b); at += size {
		for _, o := range scaleOffsets[e] {
			if h := b[at+o : at+o+2]; h[1]&0x7c == 0x7c {
				h[1] &^= 0x40
			}
		}
	}
	return b
}

// randomBlockRows is randomRows for quantised elements.
func randomBlockRows(r *rand.Rand, n, d, offset int, e Element) (rows Rows, wide []float32) {
	elements, size := BlockOf(e)
	blocks := randomBlocks(r, e, n*d/elements)
	wide = make([]float32, n*d)
	for i := range wide {
		wide[i] = blockValue(e, blocks[i/elements*size:], i%elements)
	}
	return QuantisedRows(append(make([]byte, offset), blocks...)[offset:], e, d), wide
}

// blockValue is the definition of element i of a block, with the fields picked
// bit by bit, and rounded once.
func blockValue(e Element, b []byte, i int) float32 {
	bit := func(byteAt, bitAt int) int { return int(b[byteAt]>>bitAt) & 1 }
	field := func(byteAt, from, width int) (v int) {
		for k := range width {
			v |= bit(byteAt, from+k) << k
		}
		return v
	}
	f16 := func(at int) float64 {
		var x [1]float32
		Float16Rows([]uint16{binary.LittleEndian.Uint16(b[at:])}, 1).Widen(x[:], 0)
		return float64(x[0])
	}
	// nibble is the i-th of numbers of 4 bits, where each group of size bytes holds 2*size numbers:
	// first the lower halves, then the upper.
	nibble := func(at, size, i int) int {
		return field(at+i/(2*size)*size+i%size, i%(2*size)/size*4, 4)
	}
	six := func(i int) (s, t int) { // 12 bytes from the fourth on
		if i < 4 {
			return field(4+i, 0, 6), field(8+i, 0, 6)
		}
		return field(8+i, 0, 4) | field(i, 6, 2)<<4, field(8+i, 4, 4) | field(4+i, 6, 2)<<4
	}
	switch e {
	case Q4_0:
		return float32(f16(0) * float64(nibble(2, 16, i)-8))
	case Q5_0:
		return float32(f16(0) * float64(nibble(6, 16, i)+16*bit(2+i/8, i%8)-16))
	case Q8_0:
		return float32(f16(0) * float64(int8(b[2+i])))
	case Q4_K:
		s, t := six(i / 32)
		return float32(f16(0)*float64(s*nibble(16, 32, i)) - f16(2)*float64(t))
	case Q5_K:
		s, t := six(i / 32)
		return float32(f16(0)*float64(s*(nibble(48, 32, i)+16*bit(16+i%32, i/32))) - f16(2)*float64(t))
	case Q6_K:
		q := nibble(0, 64, i) + field(128+i/128*32+i%32, i%128/32*2, 2)<<4 - 32
		return float32(f16(208) * float64(int8(b[192+i/16])) * float64(q))
	case Q4_1:
		return float32(f16(0)*float64(nibble(4, 16, i)) + f16(2))
	case Q5_1:
		return float32(f16(0)*float64(nibble(8, 16, i)+16*bit(4+i/8, i%8)) + f16(2))
	}
	panic("not quantised")
}

// A scale that is not finite is found in each type, in the first block it is in.
func TestNotFiniteIsFoundInBlocks(t *testing.T) {
	r := newRand(8)
	for e, offsets := range scaleOffsets {
		elements, size := BlockOf(e)
		const n, perRow = 5, 2
		for at := range n * perRow {
			data := randomBlocks(r, e, n*perRow)
			if row, column, found := FirstNotFinite(QuantisedRows(data, e, perRow*elements)); found {
				t.Fatalf("%s: row %d, column %d is not finite", e, row, column)
			}
			for _, o := range offsets {
				broken := append([]byte(nil), data...)
				binary.LittleEndian.PutUint16(broken[at*size+o:], 0x7e00) // NaN, multiplied by any number
				row, column, found := FirstNotFinite(QuantisedRows(broken, e, perRow*elements))
				if !found || row != at/perRow || column != at%perRow*elements {
					t.Fatalf("%s: block %d: found %v at row %d, column %d", e, at, found, row, column)
				}
			}
		}
	}
}

func TestQuantisedRowsRefuse(t *testing.T) {
	for name, c := range map[string]struct {
		size, dim int
		e         Element
		want      string
	}{
		"another element":       {34, 32, Float16, "kernels: element is not quantised"},
		"no such element":       {34, 32, Q5_1 + 1, "kernels: element is not quantised"},
		"no dimension":          {34, 0, Q8_0, "kernels: dimension is not positive"},
		"half a block":          {34, 16, Q8_0, "kernels: dimension is not a multiple of the block"},
		"a byte too many":       {69, 64, Q8_0, "kernels: length of rows is not a multiple of the dimension"},
		"half a row":            {34, 64, Q8_0, "kernels: length of rows is not a multiple of the dimension"},
		"the largest dimension": {34, math.MaxInt &^ 31, Q8_0, "kernels: length of rows is not a multiple of the dimension"},
	} {
		func() {
			defer func() {
				if got := recover(); got != c.want {
					t.Errorf("%s: panic %v, want %q", name, got, c.want)
				}
			}()
			QuantisedRows(make([]byte, c.size), c.e, c.dim)
		}()
	}
}
