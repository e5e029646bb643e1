// Command exp generates the exponentials of log-sum-exp and softmax, and of the centres
// of intervals in float32.
//
// The operations and their order are the same as in kernels.Exp and
// kernels.SumExpCentres, without fused multiply-adds, so that every level gives the
// same bits.
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
		maxCentre(l)
		expCentres(l)
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

var constants32 = map[float32]Mem{}

// broadcast32 returns a register with the float32 c in every lane.
func broadcast32(l emit.Level, c float32) reg.VecVirtual {
	v := l.Vec()
	spread32(c, v)
	return v
}

// spread32 puts the float32 c in every lane of v.
func spread32(c float32, v reg.VecVirtual) {
	m, ok := constants32[c]
	if !ok {
		m = ConstData(emit.Name("f32_", len(constants32)), U32(math.Float32bits(c)))
		constants32[c] = m
	}
	VBROADCASTSS(m, v)
}

// centre puts the centres of the intervals at disp in v.
func centre(lower, upper reg.GPVirtual, disp int, half, v reg.VecVirtual) {
	VMOVUPS(Mem{Base: lower, Disp: disp}, v)
	VADDPS(Mem{Base: upper, Disp: disp}, v, v)
	VMULPS(half, v, v)
}

// intervals returns the registers of the parameters that the passes over centres share.
func intervals() (lower, upper, n reg.GPVirtual) {
	return Load(Param("lower"), GP64()).(reg.GPVirtual), Load(Param("upper"), GP64()).(reg.GPVirtual), Load(Param("n"), GP64()).(reg.GPVirtual)
}

// nextCentres advances to the next 16 intervals, if there are any.
func nextCentres(lower, upper, n reg.GPVirtual) {
	ADDQ(I32(64), lower)
	ADDQ(I32(64), upper)
	SUBQ(I32(16), n)
	JNZ(LabelRef("loop"))
}

func maxCentre(l emit.Level) {
	l.Function("MaxCentre", "func(lower, upper *float32, n int) float32",
		"returns the largest of n centres (lower[i]+upper[i])/2, n a positive multiple of 16.")
	lower, upper, n := intervals()
	half, v := broadcast32(l, 0.5), l.Vec()
	acc := l.Vecs(64 / l.Bytes)
	for k := range acc {
		spread32(float32(math.Inf(-1)), acc[k])
	}
	Label("loop")
	for k := range acc {
		centre(lower, upper, k*l.Bytes, half, v)
		VMAXPS(v, acc[k], acc[k])
	}
	nextCentres(lower, upper, n)
	if len(acc) == 2 {
		VMAXPS(acc[1], acc[0], acc[0])
	}
	y := acc[0]
	if l.Bytes == 64 {
		hi := YMM()
		VEXTRACTF64X4(U8(1), y, hi)
		VMAXPS(y.AsY(), hi, hi)
		y = hi
	}
	r, t := XMM(), XMM()
	VEXTRACTF128(U8(1), y.AsY(), r)
	VMAXPS(y.AsX(), r, r)
	VPERMILPS(U8(0x4e), r, t)
	VMAXPS(t, r, r)
	VPERMILPS(U8(0xb1), r, t)
	VMAXSS(t, r, r)
	Store(r, ReturnIndex(0))
	emit.End()
}

func expCentres(l emit.Level) {
	l.Function("ExpCentres", "func(lane *float64, lower, upper *float32, n int, m, scale float32)",
		"adds e^((c-m)scale), c = (lower[i]+upper[i])/2, to lane[i%16], for n intervals, a positive multiple of 16.")
	lane := Load(Param("lane"), GP64())
	lower, upper, n := intervals()
	spread := func(name string) reg.VecVirtual {
		v := l.Vec()
		p, err := Param(name).Resolve()
		if err != nil {
			panic(err)
		}
		VBROADCASTSS(p.Addr, v)
		return v
	}
	m, scale := spread("m"), spread("scale")
	sum := l.Vecs(128 / l.Bytes)
	for k := range sum {
		VMOVUPD(Mem{Base: lane, Disp: k * l.Bytes}, sum[k])
	}
	half, least := broadcast32(l, 0.5), broadcast32(l, -86)
	v, q, t, coef := l.Vec(), l.Vec(), l.Vec(), l.Vec()
	use := func(c float32) reg.VecVirtual {
		spread32(c, coef)
		return coef
	}
	Label("loop")
	for k := range 64 / l.Bytes {
		centre(lower, upper, k*l.Bytes, half, v)
		VSUBPS(m, v, v)
		VMULPS(scale, v, v)
		Comment("Below the least exponent the result is replaced by zero.")
		keep := below32(l, least, v)
		VMAXPS(least, v, v)
		VMULPS(use(0x1.715476p+0), v, q)
		if l.Bytes == 64 {
			VRNDSCALEPS(U8(0), q, q)
		} else {
			VROUNDPS(U8(0), q, q)
		}
		VMULPS(use(0x1.62p-1), q, t)
		VSUBPS(t, v, v)
		VMULPS(use(math.Ln2-0x1.62p-1), q, t)
		VSUBPS(t, v, v)
		spread32(1.0/5040, t)
		for _, c := range []float32{1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1, 1} {
			VMULPS(v, t, t)
			VADDPS(use(c), t, t)
		}
		Comment("Add the exponent.")
		VCVTPS2DQ(q, q)
		VPSLLD(U8(23), q, q)
		VPADDD(q, t, t)
		keep(t)
		Comment("Sum in float64: the lower half, then the upper.")
		low, high := l.Half(), l.Half()
		if l.Bytes == 64 {
			VEXTRACTF64X4(U8(0), t, low)
			VEXTRACTF64X4(U8(1), t, high)
		} else {
			VEXTRACTF128(U8(0), t, low)
			VEXTRACTF128(U8(1), t, high)
		}
		for j, part := range []reg.VecVirtual{low, high} {
			VCVTPS2PD(part, v)
			VADDPD(v, sum[2*k+j], sum[2*k+j])
		}
	}
	nextCentres(lower, upper, n)
	for k := range sum {
		VMOVUPD(sum[k], Mem{Base: lane, Disp: k * l.Bytes})
	}
	emit.End()
}

// below32 is below for float32.
func below32(l emit.Level, least, v reg.VecVirtual) func(reg.VecVirtual) {
	if l.Bytes == 64 {
		k := K()
		VCMPPS(U8(atLeast), least, v, k)
		return func(t reg.VecVirtual) { VMOVAPS_Z(t, k, t) }
	}
	mask := l.Vec()
	VCMPPS(U8(atLeast), least, v, mask)
	return func(t reg.VecVirtual) { VANDPS(mask, t, t) }
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

// atLeast is the comparison v >= least, false for NaN.
const atLeast = 13

// below compares v with least and returns a function that clears the lanes
// that were below.
func below(l emit.Level, least, v reg.VecVirtual) func(reg.VecVirtual) {
	if l.Bytes == 64 {
		k := K()
		VCMPPD(U8(atLeast), least, v, k)
		return func(t reg.VecVirtual) { VMOVAPD_Z(t, k, t) }
	}
	mask := l.Vec()
	VCMPPD(U8(atLeast), least, v, mask)
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
