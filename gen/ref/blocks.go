package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/learning-to-screen/l2s/gen/internal/emit"
)

// The quantised types, as internal/codes/kernels/quantised.go has them. A value is the product of an
// integer and of one or two small factors, which is exact in float64 and in float32.

// q80 is a scale and then 32 codes.
type q80 struct {
	l    emit.Level
	h, d reg.GPVirtual
}

const q80Bytes = 34

func (x *q80) name() (suffix, goType string) { return "Q80", "byte" }

func (x *q80) begin(l emit.Level, h, d reg.GPVirtual) (stride reg.GPVirtual) {
	x.l, x.h, x.d, stride = l, h, d, GP64()
	IMUL3Q(U32(q80Bytes), d, stride)
	SHRQ(U8(5), stride)
	return stride
}

func (x *q80) blocks() []int { return sideBySide(x.l) }

func (x *q80) of(p []reg.GPVirtual, label func(string) string) []reg.VecVirtual {
	perVec := x.l.Bytes / 8
	acc, v, y, i := newSums(x.l, len(p)), x.l.Vec(), x.l.Vec(), GP64()
	scales := x.l.Vecs(len(p))
	XORQ(i, i)
	Label(label("lanes"))
	for r := range p {
		broadcastHalf(x.l, Mem{Base: p[r]}, scales[r])
	}
	for k := range acc[0] {
		emit.Float32.Widen64(x.l, emit.Float32.At(x.h, i, k*perVec), y)
		for r := range p {
			half := x.l.Half()
			VPMOVSXBD(Mem{Base: p[r], Disp: 2 + k*perVec}, half)
			VCVTDQ2PD(half, v)
			VMULPD(scales[r], v, v)
			VFMADD231PD(v, y, acc[r][k])
		}
	}
	for r := range p {
		ADDQ(I32(q80Bytes), p[r])
	}
	ADDQ(I32(lanes), i)
	CMPQ(i, x.d)
	JLT(LabelRef(label("lanes")))
	return acc.combined(x.l)
}

// broadcastHalf writes a float16 to all of v as float64.
func broadcastHalf(l emit.Level, m Mem, v reg.VecVirtual) {
	x := XMM()
	VPBROADCASTW(m, x)
	emit.Float16.Widen64(l, x, v)
}

// q6K are blocks of two halves with 128 codes each: 64 bytes with their lower 4 bits, 32 with their
// upper 2, and 8 factors, one for each 16 codes. The lower bits of both halves come first, then the
// upper ones, the factors, and the scale.
type q6K struct {
	l                 emit.Level
	h, d              reg.GPVirtual
	low, high, centre reg.VecVirtual // 15, 48 and 32 in all lanes
}

const (
	q6KBytes   = 210
	q6KHigh    = 128
	q6KFactors = 192
	q6KScale   = 208
)

func (x *q6K) name() (suffix, goType string) { return "Q6K", "byte" }

func (x *q6K) begin(l emit.Level, h, d reg.GPVirtual) (stride reg.GPVirtual) {
	x.l, x.h, x.d, stride = l, h, d, GP64()
	IMUL3Q(U32(q6KBytes), d, stride)
	SHRQ(U8(8), stride)
	for _, c := range []struct {
		v *reg.VecVirtual
		x int
	}{{&x.low, 15}, {&x.high, 48}, {&x.centre, 32}} {
		*c.v = l.Half()
		r, lane := GP32(), XMM()
		MOVL(U32(c.x), r)
		VMOVD(r, lane)
		VPBROADCASTD(lane, *c.v)
	}
	return stride
}

// Four rows side by side are too much code.
func (x *q6K) blocks() []int { return []int{1} }

func (x *q6K) of(p []reg.GPVirtual, label func(string) string) []reg.VecVirtual {
	perVec := x.l.Bytes / 8
	acc, v, y, scale, i := newSums(x.l, 1), x.l.Vec(), x.l.Vec(), x.l.Vec(), GP64()
	block, half := p[0], GP64() // half is 8 in the second one
	XORQ(i, i)
	XORQ(half, half)
	Label(label("half"))
	for part := range 4 { // of 32 codes; two share the bytes of their lower bits, four share the bytes of their upper bits
		for k := range acc[0] {
			code := k * perVec
			if code%16 == 0 {
				broadcastHalf(x.l, Mem{Base: block, Disp: q6KScale}, scale)
				b, ints := XMM(), x.l.Half()
				VPBROADCASTB(Mem{Base: block, Index: half, Scale: 1, Disp: q6KFactors + 2*part + code/16}, b)
				VPMOVSXBD(b, ints)
				VCVTDQ2PD(ints, v)
				VMULPD(v, scale, scale)
			}
			low, high := x.l.Half(), x.l.Half()
			VPMOVZXBD(Mem{Base: block, Index: half, Scale: 8, Disp: part%2*32 + code}, low)
			if part >= 2 {
				VPSRLD(U8(4), low, low)
			}
			VPAND(x.low, low, low)
			VPMOVZXBD(Mem{Base: block, Index: half, Scale: 4, Disp: q6KHigh + code}, high)
			switch part {
			case 0:
				VPSLLD(U8(4), high, high)
			case 1:
				VPSLLD(U8(2), high, high)
			case 3:
				VPSRLD(U8(2), high, high)
			}
			VPAND(x.high, high, high)
			VPOR(high, low, low)
			VPSUBD(x.centre, low, low)
			VCVTDQ2PD(low, v)
			VMULPD(scale, v, v)
			emit.Float32.Widen64(x.l, emit.Float32.At(x.h, i, 32*part+code), y)
			VFMADD231PD(v, y, acc[0][k])
		}
	}
	ADDQ(I32(128), i)
	XORQ(I8(8), half)
	JNZ(LabelRef(label("half")))
	ADDQ(I32(q6KBytes), block)
	CMPQ(i, x.d)
	JLT(LabelRef(label("half")))
	return acc.combined(x.l)
}
