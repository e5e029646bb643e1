// Command cell generates the nonlinearities of an LSTM layer.
//
// The operations and their order are the same as in the plain Go forms in kernels, without
// fused multiply-adds, so that every level gives the same bits.
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
		cell(l)
		tanh(l)
	}
	Generate()
}

var constants = map[float64]Mem{}

// broadcast returns a register with c in every lane.
func broadcast(l emit.Level, c float64) reg.VecVirtual {
	m, ok := constants[c]
	if !ok {
		m = ConstData(emit.Name("f64_", len(constants)), U64(math.Float64bits(c)))
		constants[c] = m
	}
	v := l.Vec()
	VBROADCASTSD(m, v)
	return v
}

// expNeg replaces each x by e^-x, as kernels.expNeg does. The vectors take turns, so
// that their chains of operations overlap.
func expNeg(l emit.Level, xs ...reg.VecVirtual) {
	ps, ts := l.Vecs(len(xs)), l.Vecs(len(xs))
	each := func(c float64, f func(c reg.VecVirtual, i int)) {
		v := broadcast(l, c)
		for i := range xs {
			f(v, i)
		}
	}
	Comment("x within the bounds; NaN stays.")
	each(40, func(c reg.VecVirtual, i int) { VMINPD(xs[i], c, xs[i]) })
	each(-40, func(c reg.VecVirtual, i int) { VMAXPD(xs[i], c, xs[i]) })
	Comment("-x = n ln(2) + r; n is in the low bits of t.")
	each(-math.Log2E, func(c reg.VecVirtual, i int) { VMULPD(c, xs[i], ts[i]) })
	each(0x1.8p52, func(c reg.VecVirtual, i int) {
		VADDPD(c, ts[i], ts[i])
		VSUBPD(c, ts[i], ps[i])
	})
	each(-math.Ln2, func(c reg.VecVirtual, i int) {
		VMULPD(c, ps[i], ps[i])
		VSUBPD(xs[i], ps[i], xs[i])
	})
	Comment("The series of e^r.")
	const terms = 9
	for k := terms; k >= 0; k-- {
		f := 1.0
		for j := 2; j <= k; j++ {
			f *= float64(j)
		}
		each(1/f, func(c reg.VecVirtual, i int) {
			switch k {
			case terms:
				VMULPD(c, xs[i], ps[i])
			case 0:
				VADDPD(c, ps[i], ps[i])
			default:
				VADDPD(c, ps[i], ps[i])
				VMULPD(xs[i], ps[i], ps[i])
			}
		})
	}
	Comment("Add the exponent.")
	for i := range xs {
		VPSLLQ(U8(52), ts[i], ts[i])
		VPADDQ(ts[i], ps[i], xs[i])
	}
}

// narrow rounds a vector of float64 and stores it.
func narrow(l emit.Level, v reg.VecVirtual, m Mem) {
	half := l.Half()
	if l.Bytes == 64 {
		VCVTPD2PS(v, half)
	} else {
		VCVTPD2PSY(v, half)
	}
	VMOVUPS(half, m)
}

func cell(l emit.Level) {
	lanes := l.Bytes / 8
	l.Function("LSTMCell", "func(c, h, gates *float32, stride, n int)",
		"advances n cells, a positive multiple of 8, whose gates i, f, g, o lie stride apart.")
	c, h := Load(Param("c"), GP64()), Load(Param("h"), GP64())
	gates := Load(Param("gates"), GP64()).(reg.GPVirtual)
	stride := Load(Param("stride"), GP64()).(reg.GPVirtual)
	n := Load(Param("n"), GP64())
	triple := GP64()
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, triple)
	Label("loop")
	ei, ef, eg, eo := l.Vec(), l.Vec(), l.Vec(), l.Vec()
	VCVTPS2PD(Mem{Base: gates}, ei)
	VCVTPS2PD(Mem{Base: gates, Index: stride, Scale: 4}, ef)
	VCVTPS2PD(Mem{Base: gates, Index: stride, Scale: 8}, eg)
	VCVTPS2PD(Mem{Base: gates, Index: triple, Scale: 4}, eo)
	VADDPD(eg, eg, eg)
	expNeg(l, ei, ef, eg, eo)
	v, top, t := l.Vec(), l.Vec(), l.Vec()
	one := broadcast(l, 1)
	Comment("v = c/(1+ef) + (1-eg)/((1+ei)*(1+eg)).")
	VCVTPS2PD(Mem{Base: c}, v)
	VADDPD(one, ef, ef)
	VDIVPD(ef, v, v)
	VSUBPD(eg, one, top)
	VADDPD(one, ei, ei)
	VADDPD(one, eg, eg)
	VMULPD(eg, ei, t)
	VDIVPD(t, top, top)
	VADDPD(top, v, v)
	narrow(l, v, Mem{Base: c})
	VADDPD(v, v, v)
	expNeg(l, v)
	Comment("(1-ev)/((1+eo)*(1+ev)).")
	one = broadcast(l, 1)
	VSUBPD(v, one, top)
	VADDPD(one, eo, eo)
	VADDPD(one, v, v)
	VMULPD(v, eo, t)
	VDIVPD(t, top, top)
	narrow(l, top, Mem{Base: h})
	for _, p := range []reg.Register{c, h, gates} {
		ADDQ(I32(4*lanes), p)
	}
	SUBQ(I32(lanes), n)
	JNZ(LabelRef("loop"))
	emit.End()
}

func tanh(l emit.Level) {
	l.Function("Tanh", "func(x *float32, n int)", "replaces n elements, a positive multiple of 8, by their tanh.")
	x, n := Load(Param("x"), GP64()), Load(Param("n"), GP64())
	Label("loop")
	v := l.Vecs(64 / l.Bytes)
	for k := range v {
		VCVTPS2PD(Mem{Base: x, Disp: k * l.Bytes / 2}, v[k])
		VADDPD(v[k], v[k], v[k])
	}
	expNeg(l, v...)
	one := broadcast(l, 1)
	for k := range v {
		top := l.Vec()
		VSUBPD(v[k], one, top)
		VADDPD(one, v[k], v[k])
		VDIVPD(v[k], top, top)
		narrow(l, top, Mem{Base: x, Disp: k * l.Bytes / 2})
	}
	ADDQ(I32(32), x)
	SUBQ(I32(8), n)
	JNZ(LabelRef("loop"))
	emit.End()
}
