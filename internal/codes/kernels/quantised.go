package kernels

import (
	"encoding/binary"

	"github.com/learning-to-screen/l2s/internal/ground/float16"
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

// elementTypes describes the elements: quantised types have unsigned integers in memory, or
// signed bytes in Q8_0, less zero, times a scale and, if mins is set, less a minimum.
var elementTypes = [...]struct {
	name            string
	elements, bytes int // of a block
	zero            int32
	mins            bool
}{
	Float32:  {"float32", 1, 4, 0, false},
	Float16:  {"float16", 1, 2, 0, false},
	BFloat16: {"bfloat16", 1, 2, 0, false},
	Q4_0:     {"q4_0", 32, 18, 8, false},
	Q5_0:     {"q5_0", 32, 22, 16, false},
	Q8_0:     {"q8_0", 32, 34, 0, false},
	Q4_K:     {"q4_k", 256, 144, 0, true},
	Q5_K:     {"q5_k", 256, 176, 0, true},
	Q6_K:     {"q6_k", 256, 210, 32, false},
	Q4_1:     {"q4_1", 32, 20, 0, true},
	Q5_1:     {"q5_1", 32, 24, 0, true},
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

// widenBlocks writes the len(dst) quantised elements from first on to dst; both are multiples of the
// block. Assembly computes logits of Q8_0 and Q6_K; for the others these loops decide how long one
// takes, and splitting blocks first takes 1.2 to 1.4 times as long. A table of functions would make
// dst escape.
func (m Rows) widenBlocks(dst []float32, first int) {
	elements, bytes := BlockOf(m.element)
	blocks := m.bytes()[first/elements*bytes:]
	var x splitBlock
	for ; len(dst) > 0; dst, blocks = dst[elements:], blocks[bytes:] {
		part, block := dst[:elements], blocks[:bytes]
		switch m.element {
		case Q4_0:
			widenQ40(part, block)
		case Q5_0:
			widenQ50(part, block)
		case Q4_1:
			widenQ41(part, block)
		case Q5_1:
			widenQ51(part, block)
		case Q4_K:
			widenQ4K(part, block)
		case Q5_K:
			widenQ5K(part, block)
		default:
			m.element.split(block, &x)
			for j := range part {
				part[j] = x.factors[j/16] * float32(x.codes[j])
			}
		}
	}
}

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

// splitBlock is a block as integers and factors: weight j is factors[j/16] codes[j] - minima[j/32].
type splitBlock struct {
	codes   [256]int32
	factors [16]float32
	minima  [8]float32 // zeros, for types without a minimum
}

// split takes a block of type e apart, into the x of blocks of the same type.
func (e Element) split(block []byte, x *splitBlock) {
	zero := elementTypes[e].zero
	switch e {
	case Q8_0:
		for j, q := range (*[32]byte)(block[2:]) {
			x.codes[j] = int32(int8(q))
		}
	case Q4_0, Q4_1, Q5_0, Q5_1: // the scale, the minimum, the fifth bits, and the other four
		codes := (*[32]int32)(x.codes[:])
		for j, q := range (*[16]byte)(block[len(block)-16:]) {
			codes[j], codes[j+16] = int32(q&15)-zero, int32(q>>4)-zero
		}
		if e == Q5_0 || e == Q5_1 {
			fifth := binary.LittleEndian.Uint32(block[len(block)-20:])
			for j := range codes {
				codes[j] += int32(fifth & 1 << 4)
				fifth >>= 1
			}
		}
		if elementTypes[e].mins {
			x.minima[0] = -half(block[2:])
		}
	case Q4_K, Q5_K:
		d, m, scales, low := half(block), half(block[2:]), (*[12]byte)(block[4:]), block[len(block)-128:]
		for g := range 8 {
			s, t := scales4K(scales, g)
			x.factors[2*g], x.factors[2*g+1], x.minima[g] = d*s, d*s, m*t
		}
		for g := range 4 {
			codes := (*[64]int32)(x.codes[64*g:])
			for l, q := range (*[32]byte)(low[32*g:]) {
				codes[l], codes[l+32] = int32(q&15), int32(q>>4)
			}
			if e == Q5_K {
				for l, q := range (*[32]byte)(block[16:]) {
					fifth := q >> (2 * g & 7)
					codes[l] += int32(fifth & 1 << 4)
					codes[l+32] += int32(fifth & 2 << 3)
				}
			}
		}
		return
	case Q6_K: // four groups share the bytes of their upper bits
		d, scales := half(block[208:]), (*[16]byte)(block[192:])
		for g := range 8 {
			low, high := (*[32]byte)(block[g/4*64+g%2*32:]), (*[32]byte)(block[128+g/4*32:])
			codes := (*[32]int32)(x.codes[32*g:])
			for l := range codes {
				codes[l] = int32(low[l]>>(g%4/2*4)&15|high[l]>>(g%4*2)<<4&48) - zero
			}
			x.factors[2*g], x.factors[2*g+1] = d*float32(int8(scales[2*g])), d*float32(int8(scales[2*g+1]))
		}
		return
	}
	x.factors[0], x.factors[1] = half(block), half(block)
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

func half(b []byte) float32 { return float16.Widen(binary.LittleEndian.Uint16(b)) }
