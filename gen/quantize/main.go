// Command quantize generates the passes that turn vectors into codes: a context
// vector, and rows.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/learning-to-screen/l2s/gen/internal/emit"
)

func main() {
	emit.Begin()
	for _, l := range emit.Levels {
		maxAbs(l)
		quantize(l)
		encode(l)
	}
	Generate()
}

// and clears bits of v by a mask, at either width.
func and(l emit.Level, mask, v reg.VecVirtual) {
	if l.Bytes == 64 {
		VPANDD(mask, v, v)
	} else {
		VPAND(mask, v, v)
	}
}

// maxAbs generates the largest magnitude.
func maxAbs(l emit.Level) {
	l.Function("MaxAbsBits", "func(x *float32, n int) uint32",
		"returns the largest of the bits of |x[i]| for n elements, a positive multiple of 16.")
	x := Load(Param("x"), GP64())
	n := Load(Param("n"), GP64())
	bits := GP32()
	MOVL(U32(0x7fffffff), bits)
	low := XMM()
	VMOVD(bits, low)
	mask := l.Vec()
	VPBROADCASTD(low, mask)
	acc := l.Vecs(64 / l.Bytes)
	emit.Zero(acc...)
	v := l.Vec()
	Label("loop")
	for k := range acc {
		VMOVUPS(Mem{Base: x, Disp: k * l.Bytes}, v)
		and(l, mask, v)
		VPMAXUD(v, acc[k], acc[k])
	}
	ADDQ(I32(64), x)
	SUBQ(I32(16), n)
	JNZ(LabelRef("loop"))
	Store(l.FoldInts(acc, VPMAXUD), ReturnIndex(0))
	emit.End()
}

func quantize(l emit.Level) {
	l.Function("Quantize", "func(codes *int8, h *float32, n int, inv float32) (norm2, err2 float32, code, negative int32)",
		"rounds u = h[i]*inv to codes for n elements, a positive multiple of 16, and returns the sums of u^2 and (u-code)^2 in 16 lanes combined by halves, of the codes, and of the negative codes.")
	codes := Load(Param("codes"), GP64())
	h := Load(Param("h"), GP64())
	n := Load(Param("n"), GP64())
	inv := l.BroadcastParam("inv")
	vecs := 64 / l.Bytes
	norm2, err2, sum, negative := l.Vecs(vecs), l.Vecs(vecs), l.Vecs(vecs), l.Vecs(vecs)
	zero, below := l.Vec(), l.Vec()
	emit.Zero(zero)
	emit.Zero(negative...)
	emit.Zero(norm2...)
	emit.Zero(err2...)
	emit.Zero(sum...)
	Label("loop")
	q := l.Vecs(vecs)
	for k := range vecs {
		u, e := l.Vec(), l.Vec()
		VMOVUPS(Mem{Base: h, Disp: k * l.Bytes}, u)
		VMULPS(inv, u, u)
		VCVTPS2DQ(u, q[k])
		VPADDD(q[k], sum[k], sum[k])
		VPMINSD(zero, q[k], below)
		VPADDD(below, negative[k], negative[k])
		VCVTDQ2PS(q[k], e)
		VSUBPS(e, u, e)
		Comment("No fused multiply-add: the sums are the same on every level.")
		VMULPS(u, u, u)
		VADDPS(u, norm2[k], norm2[k])
		VMULPS(e, e, e)
		VADDPS(e, err2[k], err2[k])
	}
	storeCodes(l, q, Mem{Base: codes})
	ADDQ(I32(64), h)
	ADDQ(I32(16), codes)
	SUBQ(I32(16), n)
	JNZ(LabelRef("loop"))
	Store(l.FoldFloats(norm2, VADDPS, VADDSS), ReturnIndex(0))
	Store(l.FoldFloats(err2, VADDPS, VADDSS), ReturnIndex(1))
	Store(l.FoldInts(sum, VPADDD), ReturnIndex(2))
	Store(l.FoldInts(negative, VPADDD), ReturnIndex(3))
	emit.End()
}

// storeCodes stores sixteen int32 as bytes.
func storeCodes(l emit.Level, q []reg.VecVirtual, m Mem) {
	if l.Bytes == 64 {
		VPMOVSDB(q[0], m)
		return
	}
	x, y := XMM(), XMM()
	VEXTRACTI128(U8(1), q[0], x)
	VPACKSSDW(x, q[0].AsX(), x)
	VEXTRACTI128(U8(1), q[1], y)
	VPACKSSDW(y, q[1].AsX(), y)
	VPACKSSWB(y, x, x)
	VMOVDQU(x, m)
}

func encode(l emit.Level) {
	l.Function("Encode", "func(codes *int8, x *float32, n int, inv, most float32) (err2, norm2 float32)",
		"rounds u = x[i]*inv, brought within most, to codes for n elements, a positive multiple of 16, and returns the sums of (u-code)^2 and of code^2 in 16 lanes combined by halves.")
	codes := Load(Param("codes"), GP64())
	x := Load(Param("x"), GP64())
	n := Load(Param("n"), GP64())
	inv, most := l.BroadcastParam("inv"), l.BroadcastParam("most")
	vecs := 64 / l.Bytes
	err2, norm2, least := l.Vecs(vecs), l.Vecs(vecs), l.Vec()
	emit.Zero(least)
	VSUBPS(most, least, least)
	emit.Zero(err2...)
	emit.Zero(norm2...)
	Label("loop")
	q := l.Vecs(vecs)
	for k := range vecs {
		u, c := l.Vec(), l.Vec()
		VMULPS(Mem{Base: x, Disp: k * l.Bytes}, inv, u)
		VMINPS(most, u, c)
		VMAXPS(least, c, c)
		VCVTPS2DQ(c, q[k])
		VCVTDQ2PS(q[k], c)
		VSUBPS(c, u, u)
		Comment("No fused multiply-add: the sums are the same on every level.")
		VMULPS(u, u, u)
		VADDPS(u, err2[k], err2[k])
		VMULPS(c, c, c)
		VADDPS(c, norm2[k], norm2[k])
	}
	storeCodes(l, q, Mem{Base: codes})
	ADDQ(I32(64), x)
	ADDQ(I32(16), codes)
	SUBQ(I32(16), n)
	JNZ(LabelRef("loop"))
	Store(l.FoldFloats(err2, VADDPS, VADDSS), ReturnIndex(0))
	Store(l.FoldFloats(norm2, VADDPS, VADDSS), ReturnIndex(1))
	emit.End()
}
