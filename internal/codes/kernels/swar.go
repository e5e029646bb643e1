package kernels

import (
	"encoding/binary"
	"unsafe"
)

// The plain forms of the int8 products are SIMD within a register: one product of two uint64 is the
// sum of several products of codes. With numbers a_0, a_1 in the lanes of one factor and b_1, b_0,
// in reverse order, in the lanes of the other,
//
//	(a_0 + a_1 2^32) (b_1 + b_0 2^32) = a_0 b_1 + (a_0 b_0 + a_1 b_1) 2^32  mod 2^64
//
// The factor a is bytes of a record under a mask, so that no code is extracted by itself; b is made
// once per context. Its codes are signed, which is no problem for arithmetic modulo 2^64 as long as
// the lanes can be separated at the end.

// plainCodes8 returns q for dot8: four factors for eight codes, where factor j belongs to the bytes
// j and 4+j.
func (v *Int8Vector) plainCodes8() [][4]uint64 {
	if v.plain8 == nil {
		v.plain8 = make([][4]uint64, (v.dim+7)/8)
	}
	if !v.has8 {
		for i := range v.plain8 {
			q := v.codes[8*i : 8*i+8]
			for j := range v.plain8[i] {
				v.plain8[i][j] = uint64(int64(q[4+j]) + int64(q[j])<<32)
			}
		}
		v.has8 = true
	}
	return v.plain8
}

// words returns the first n words of eight bytes of a record.
func words(rec []byte, n int) [][8]byte {
	rec = rec[:8*n]
	return unsafe.Slice((*[8]byte)(unsafe.Pointer(unsafe.SliceData(rec))), n)
}

// dot8 returns the sum of the products of a record's bytes with the codes of h.
//
// The lower lane of the sum is of half the products, the upper lane of all: 255 * 127 * 2^16 < 2^31
// in magnitude at MaxInt8Dim. So both are int32, and the sign of the lower one tells whether it
// borrows from the upper one.
func dot8(rec []byte, h [][4]uint64) int32 {
	const mask = 0x000000ff000000ff
	var even, odd uint64 // two sums, so that additions do not wait for each other
	for i, w := range words(rec, len(h)) {
		x, p := binary.LittleEndian.Uint64(w[:]), &h[i]
		even += (x & mask) * p[0]
		odd += (x >> 8 & mask) * p[1]
		even += (x >> 16 & mask) * p[2]
		odd += (x >> 24 & mask) * p[3]
	}
	sum := int64(even + odd)
	return int32((sum - int64(int32(sum))) >> 32)
}

// plainCodes4 returns q for dot4: four factors for eight bytes of a record, with
// lanes of 16 bits. Factors 0 and 2 belong to the lower halves of the even and of
// the odd bytes, 1 and 3 to the higher ones.
func (v *Int8Vector) plainCodes4() [][4]uint64 {
	half := (v.dim + 1) / 2
	if v.plain4 == nil {
		v.plain4 = make([][4]uint64, (half+7)/8)
	}
	if !v.has4 {
		clear(v.plain4)
		for i, q := range v.codes[:v.dim] {
			at, factor := i, 0
			if i >= half {
				at, factor = i-half, 1
			}
			// Lane 3 - l of the factor meets byte 2l, or 2l + 1.
			lane := 3 - at%8/2
			v.plain4[at/8][at%2*2+factor] += uint64(int64(q)) << (16 * lane)
		}
		v.has4 = true
	}
	return v.plain4
}

// dot4 returns the sum of the products of the halves of bytes with the codes of h.
//
// Of eight bytes, 16 products meet in the upper lane, 16 * 15 * 127 < 2^15 in
// magnitude; the lanes below are together less than 2^47, so that rounding to the
// nearest multiple of 2^48 leaves the upper one.
func dot4(rec []byte, h [][4]uint64) (dot int32) {
	const mask = 0x000f000f000f000f
	for i, w := range words(rec, len(h)) {
		x, p := binary.LittleEndian.Uint64(w[:]), &h[i]
		sum := (x&mask)*p[0] + (x>>4&mask)*p[1] + (x>>8&mask)*p[2] + (x>>12&mask)*p[3]
		dot += int32(int64(sum+1<<47) >> 48)
	}
	return dot
}
