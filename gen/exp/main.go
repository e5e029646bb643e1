// Command exp generates the exponentials of log-sum-exp and softmax.
//
// The operations and their order are the same as in kernels.Exp, without fused
// multiply-adds, so that every level gives the same bits.
package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/learning-to-screen/l2s/gen/internal/emit"
)

func main() {
	emit.Begin()
	for _, l := range emit.Levels {
		expBlocks(l, "ExpSum", false)
		expBlocks(l, "ExpStore", true)
		maxBlocks(l)
	}
	Generate()
}

var constants = map[float64]Mem{}

// broadcast returns a register with c in every lane.
func broadcast(l emit.Level, c float64) reg.VecVirtual {
	v := l.Vec()
	VBROADCASTSD(constant(c), v)
	return v
}

func constant(c float64) Mem {
	m, ok := constants[c]
	if !ok {
		m = ConstData(emit.Name("f64_", len(constants)), U64(math.Float64bits(c)))
		constants[c] = m
	}
	return m
}

func expBlocks(l emit.Level, name string, store bool) {
	const lanes = 8
	if store {
		l.Function(name, "func(lane *float64, dst, x *float64, n int, m float64)",
			"stores e^(x[i]-m) in dst and adds it to lane[i%8], for n elements, a positive multiple of 8.")
	} else {
		l.Function(name, "func(lane *float64, x *float64, n int, m float64)",
			"adds e^(x[i]-m) to lane[i%8] for n elements, a positive multiple of 8.")
	}
	lane := Load(Param("lane"), GP64())
	var dst reg.Register
	if store {
		dst = Load(Param("dst"), GP64())
	}
	x := Load(Param("x"), GP64())
	n := Load(Param("n"), GP64())
	m := l.Vec()
	p, err := Param("m").Resolve()
	if err != nil {
		panic(err)
	}
	VBROADCASTSD(p.Addr, m)
	vecs := 64 / l.Bytes
	sum := l.Vecs(vecs)
	for k := range sum {
		VMOVUPD(Mem{Base: lane, Disp: k * l.Bytes}, sum[k])
	}
	log2e := broadcast(l, math.Log2E)
	hi := broadcast(l, 0x1.62e42fee00000p-1)
	lo := broadcast(l, 0x1.a39ef35793c76p-33)
	least := broadcast(l, -708)
	v, q, r, t := l.Vec(), l.Vec(), l.Vec(), l.Vec()
	coef := l.Vec()
	Label("loop")
	for k := range sum {
		VMOVUPD(Mem{Base: x, Disp: k * l.Bytes}, v)
		VSUBPD(m, v, v)
		Comment("Below the least exponent the result is replaced by zero.")
		keep := below(l, least, v)
		VMAXPD(least, v, v)
		VMULPD(log2e, v, q)
		if l.Bytes == 64 {
			VRNDSCALEPD(U8(0), q, q)
		} else {
			VROUNDPD(U8(0), q, q)
		}
		VMULPD(hi, q, t)
		VSUBPD(t, v, r)
		VMULPD(lo, q, t)
		VSUBPD(t, r, r)
		c := 1.0
		for i := 2; i <= 13; i++ {
			c *= float64(i)
		}
		VBROADCASTSD(constant(1/c), t)
		for i := 12; i >= 0; i-- {
			f := 1.0
			for j := 2; j <= i; j++ {
				f *= float64(j)
			}
			VMULPD(r, t, t)
			VBROADCASTSD(constant(1/f), coef)
			VADDPD(coef, t, t)
		}
		Comment("Add the exponent.")
		half := l.Half()
		if l.Bytes == 64 {
			VCVTPD2DQ(q, half)
		} else {
			VCVTPD2DQY(q, half)
		}
		VPMOVSXDQ(half, q)
		VPSLLQ(U8(52), q, q)
		VPADDQ(q, t, t)
		keep(t)
		VADDPD(t, sum[k], sum[k])
		if store {
			VMOVUPD(t, Mem{Base: dst, Disp: k * l.Bytes})
		}
	}
	ADDQ(I32(64), x)
	if store {
		ADDQ(I32(64), dst)
	}
	SUBQ(I32(lanes), n)
	JNZ(LabelRef("loop"))
	for k := range sum {
		VMOVUPD(sum[k], Mem{Base: lane, Disp: k * l.Bytes})
	}
	emit.End()
}

// below compares v with least and returns a function that clears the lanes
// that were below.
func below(l emit.Level, least, v reg.VecVirtual) func(reg.VecVirtual) {
	const ge = 13 // v >= least, false for NaN
	if l.Bytes == 64 {
		k := K()
		VCMPPD(U8(ge), least, v, k)
		return func(t reg.VecVirtual) { VMOVAPD_Z(t, k, t) }
	}
	mask := l.Vec()
	VCMPPD(U8(ge), least, v, mask)
	return func(t reg.VecVirtual) { VANDPD(mask, t, t) }
}

func maxBlocks(l emit.Level) {
	l.Function("MaxFloat64", "func(x *float64, n int) float64",
		"returns the largest of n elements, a positive multiple of 16.")
	x := Load(Param("x"), GP64())
	n := Load(Param("n"), GP64())
	acc := l.Vecs(128 / l.Bytes)
	for k := range acc {
		VMOVUPD(Mem{Base: x, Disp: k * l.Bytes}, acc[k])
	}
	JMP(LabelRef("next"))
	Label("loop")
	for k := range acc {
		VMAXPD(Mem{Base: x, Disp: k * l.Bytes}, acc[k], acc[k])
	}
	Label("next")
	ADDQ(I32(128), x)
	SUBQ(I32(16), n)
	JNZ(LabelRef("loop"))
	for s := len(acc) / 2; s > 0; s /= 2 {
		for k := 0; k < s; k++ {
			VMAXPD(acc[k+s], acc[k], acc[k])
		}
	}
	y := acc[0]
	if l.Bytes == 64 {
		hi := YMM()
		VEXTRACTF64X4(U8(1), y, hi)
		VMAXPD(y.AsY(), hi, hi)
		y = hi
	}
	r, t := XMM(), XMM()
	VEXTRACTF128(U8(1), y.AsY(), r)
	VMAXPD(y.AsX(), r, r)
	VPERMILPD(U8(1), r, t)
	VMAXSD(t, r, r)
	Store(r, ReturnIndex(0))
	emit.End()
}
