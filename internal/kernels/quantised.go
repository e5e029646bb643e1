package kernels

import (
	"encoding/binary"

	"github.com/learning-to-screen/l2s/internal/float16"
)

// The quantised elements are blocks of 32 or 256 weights of one row, as ggml stores them in memory
// and in GGUF files. An element's value is the result of ggml's dequantisation in float32
// (dequantize_row_q8_0 and its like in ggml-quants.c; the layouts are the block structs of
// ggml-common.h):
//
//	Q4_0  d q            32 weights, q in [-8, 7]     18 bytes: d, 16 of 2 q
//	Q5_0  d q            32 weights, q in [-16, 15]   22 bytes: d, 4 of fifth bits, 16 of 2 q
//	Q8_0  d q            32 weights, q in [-128, 127] 34 bytes: d, 32 q
//	Q4_K  d s q - m t    256 weights, q in [0, 15]    144 bytes: d, m, 12 of s and t, 128 of 2 q
//	Q5_K  d s q - m t    256 weights, q in [0, 31]    176 bytes: d, m, 12 of s and t, 32 of fifth bits, 128 of 2 q
//	Q6_K  d s q          256 weights, q in [-32, 31]  210 bytes: 128 of 2 q, 64 of upper bits, 16 s, d
//	Q4_1  d q + m        32 weights, q in [0, 15]     20 bytes: d, m, 16 of 2 q
//	Q5_1  d q + m        32 weights, q in [0, 31]     24 bytes: d, m, 4 of fifth bits, 16 of 2 q
//
// d and m are float16, one per block; s and t are integers of 6 bits (8 in Q6_K), one for each 32
// weights (16 in Q6_K). All products are exact in float32, with at most 11+8+5 bits, so that a
// value is rounded at most once, where m t is subtracted or m added, and a compiler that fuses
// changes nothing.
const (
	Q4_0 Element = iota + BFloat16 + 1
	Q5_0
	Q8_0
	Q4_K
	Q5_K
	Q6_K
	Q4_1
	Q5_1
)

// elementTypes describes the elements.
var elementTypes = [...]struct {
	name            string
	elements, bytes int // of a block
}{
	Float32:  {"float32", 1, 4},
	Float16:  {"float16", 1, 2},
	BFloat16: {"bfloat16", 1, 2},
	Q4_0:     {"q4_0", 32, 18},
	Q5_0:     {"q5_0", 32, 22},
	Q8_0:     {"q8_0", 32, 34},
	Q4_K:     {"q4_k", 256, 144},
	Q5_K:     {"q5_k", 256, 176},
	Q6_K:     {"q6_k", 256, 210},
	Q4_1:     {"q4_1", 32, 20},
	Q5_1:     {"q5_1", 32, 24},
}

// Quantised reports whether elements are stored in blocks.
func Quantised(e Element) bool { return e > BFloat16 }

// BlockOf returns the number of elements that are stored together, 1 unless quantised, and
// their size in bytes. The dimension of Rows is a multiple of it.
func BlockOf(e Element) (elements, bytes int) {
	q := &elementTypes[e]
	return q.elements, q.bytes
}

// QuantisedRows is Float32Rows for elements of a quantised type, Q4_0 to Q5_1,
// given as the bytes of their blocks, in any alignment.
func QuantisedRows(data []byte, e Element, dim int) Rows {
	if !Quantised(e) || int(e) >= len(elementTypes) {
		panic("kernels: element is not quantised")
	}
	return rowsOf(data, dim, e)
}

func (m Rows) rowBytes() int {
	elements, bytes := BlockOf(m.element)
	return m.dim / elements * bytes
}

// widenBlocks writes the len(dst) quantised elements from first on to dst; both
// are multiples of the block. A table of functions would make dst escape.
func (m Rows) widenBlocks(dst []float32, first int) {
	elements, bytes := BlockOf(m.element)
	blocks := m.bytes()[first/elements*bytes:]
	for ; len(dst) > 0; dst, blocks = dst[elements:], blocks[bytes:] {
		part, block := dst[:elements], blocks[:bytes]
		switch m.element {
		case Q4_0:
			widenQ40(part, block)
		case Q5_0:
			widenQ50(part, block)
		case Q8_0:
			widenQ80(part, block)
		case Q4_K:
			widenQ4K(part, block)
		case Q5_K:
			widenQ5K(part, block)
		case Q6_K:
			widenQ6K(part, block)
		case Q4_1:
			widenQ41(part, block)
		case Q5_1:
			widenQ51(part, block)
		}
	}
}

func half(b []byte) float32 { return float16.Widen(binary.LittleEndian.Uint16(b)) }

func widenQ40(dst []float32, block []byte) {
	d, qs, y := half(block), (*[16]byte)(block[2:]), (*[32]float32)(dst)
	for j, q := range qs {
		y[j] = float32(int(q&15)-8) * d
		y[j+16] = float32(int(q>>4)-8) * d
	}
}

func widenQ50(dst []float32, block []byte) {
	d, fifth, qs, y := half(block), binary.LittleEndian.Uint32(block[2:]), (*[16]byte)(block[6:]), (*[32]float32)(dst)
	for j, q := range qs {
		y[j] = float32(int(uint32(q&15)|fifth>>j<<4&16)-16) * d
		y[j+16] = float32(int(uint32(q>>4)|fifth>>(j+16)<<4&16)-16) * d
	}
}

func widenQ41(dst []float32, block []byte) {
	d, m, qs, y := half(block), half(block[2:]), (*[16]byte)(block[4:]), (*[32]float32)(dst)
	for j, q := range qs {
		y[j] = float32(d*float32(q&15)) + m
		y[j+16] = float32(d*float32(q>>4)) + m
	}
}

func widenQ51(dst []float32, block []byte) {
	d, m, fifth := half(block), half(block[2:]), binary.LittleEndian.Uint32(block[4:])
	qs, y := (*[16]byte)(block[8:]), (*[32]float32)(dst)
	for j, q := range qs {
		y[j] = float32(d*float32(uint32(q&15)|fifth>>j<<4&16)) + m
		y[j+16] = float32(d*float32(uint32(q>>4)|fifth>>(j+16)<<4&16)) + m
	}
}

func widenQ80(dst []float32, block []byte) {
	d, qs, y := half(block), (*[32]byte)(block[2:]), (*[32]float32)(dst)
	for j, q := range qs {
		y[j] = float32(int8(q)) * d
	}
}

// scales4K returns s and t of the j-th of the eight parts of a Q4_K or Q5_K
// block: for the first four each is the lower 6 bits of a byte, for the others 4 bits
// and the upper two of one of the first.
func scales4K(packed *[12]byte, j int) (s, t float32) {
	if j < 4 {
		return float32(packed[j] & 63), float32(packed[j+4] & 63)
	}
	return float32(packed[j+4]&15 | packed[j-4]>>6<<4), float32(packed[j+4]>>4 | packed[j]>>6<<4)
}

func widenQ4K(dst []float32, block []byte) {
	d, m, scales := half(block), half(block[2:]), (*[12]byte)(block[4:])
	for j := range 8 {
		s, t := scales4K(scales, j)
		s, t = float32(d*s), float32(m*t)
		qs, y, shift := (*[32]byte)(block[16+j/2*32:]), (*[32]float32)(dst[32*j:]), j%2*4
		for l, q := range qs {
			y[l] = float32(s*float32(q>>shift&15)) - t
		}
	}
}

func widenQ5K(dst []float32, block []byte) {
	d, m, scales, fifth := half(block), half(block[2:]), (*[12]byte)(block[4:]), (*[32]byte)(block[16:])
	for j := range 8 {
		s, t := scales4K(scales, j)
		s, t = float32(d*s), float32(m*t)
		qs, y, shift := (*[32]byte)(block[48+j/2*32:]), (*[32]float32)(dst[32*j:]), j%2*4
		for l, q := range qs {
			y[l] = float32(s*float32(q>>shift&15|fifth[l]>>j<<4&16)) - t
		}
	}
}

func widenQ6K(dst []float32, block []byte) {
	d, scales := half(block[208:]), (*[16]byte)(block[192:])
	for j := range 8 { // of 32 weights; four share the bytes of their upper bits
		low, high, y := (*[32]byte)(block[j/4*64+j%2*32:]), (*[32]byte)(block[128+j/4*32:]), (*[32]float32)(dst[32*j:])
		first, second := float32(d*float32(int8(scales[2*j]))), float32(d*float32(int8(scales[2*j+1])))
		lowShift, highShift := j%4/2*4, j%4*2
		for l := range y {
			q := float32(int(low[l]>>lowShift&15|high[l]>>highShift<<4&48) - 32)
			if l < 16 {
				y[l] = first * q
			} else {
				y[l] = second * q
			}
		}
	}
}
