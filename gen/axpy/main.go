// Command axpy generates dst += a*x with exact float64 products.
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
		axpy(l)
	}
	Generate()
}

func axpy(l emit.Level) {
	perVec := l.Bytes / 8
	l.Function("Axpy", "func(dst *float64, a float64, x *float32, n int)",
		"computes dst[i] += a*float64(x[i]) for n elements.")
	dst := Load(Param("dst"), GP64()).(reg.GPVirtual)
	x := Load(Param("x"), GP64()).(reg.GPVirtual)
	n := Load(Param("n"), GP64()).(reg.GPVirtual)
	a := l.Vec()
	m, err := Param("a").Resolve()
	if err != nil {
		panic(err)
	}
	VBROADCASTSD(m.Addr, a)
	const unroll = 4
	loop := func(label string, count int) {
		Label(label)
		CMPQ(n, I32(count*perVec))
		JLT(LabelRef(label + "_end"))
		v, sum := l.Vecs(count), l.Vecs(count)
		for k := range count {
			VCVTPS2PD(Mem{Base: x, Disp: 4 * perVec * k}, v[k])
			VMOVUPD(Mem{Base: dst, Disp: l.Bytes * k}, sum[k])
			VFMADD231PD(v[k], a, sum[k])
			VMOVUPD(sum[k], Mem{Base: dst, Disp: l.Bytes * k})
		}
		ADDQ(I32(4*perVec*count), x)
		ADDQ(I32(l.Bytes*count), dst)
		SUBQ(I32(perVec*count), n)
		JMP(LabelRef(label))
		Label(label + "_end")
	}
	loop("unrolled", unroll)
	loop("vector", 1)
	Label("element")
	TESTQ(n, n)
	JZ(LabelRef("end"))
	t, s := XMM(), XMM()
	VMOVSS(Mem{Base: x}, t)
	VCVTSS2SD(t, t, t)
	VMOVSD(Mem{Base: dst}, s)
	VFMADD231SD(t, a.AsX(), s)
	VMOVSD(s, Mem{Base: dst})
	ADDQ(I32(4), x)
	ADDQ(I32(8), dst)
	DECQ(n)
	JMP(LabelRef("element"))
	Label("end")
	emit.End()
}
