// Command ref generates the reference arithmetic: exact products of float32
// summed in float64, element i in lane i mod 32, lanes combined by halves.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/learning-to-screen/l2s/gen/internal/emit"
)

const lanes = 32

func main() {
	emit.Begin()
	for _, l := range emit.Levels {
		l.Function("RefScan", "func(dst *float64, rows *float32, n int, h *float32, d int)",
			"computes dst[i] = rows[i].h for n rows of d elements by the reference arithmetic.")
		refRows(l, false)
		l.Function("RefGatherDot", "func(dst *float64, rows *float32, ids *uint32, n int, h *float32, d int)",
			"computes dst[j] = rows[ids[j]].h for n ids into rows of d elements by the reference arithmetic.")
		refRows(l, true)
	}
	Generate()
}

func refRows(l emit.Level, gather bool) {
	dst := Load(Param("dst"), GP64())
	row := Load(Param("rows"), GP64()).(reg.GPVirtual)
	var ids reg.Register
	if gather {
		ids = Load(Param("ids"), GP64())
	}
	n := Load(Param("n"), GP64())
	h := Load(Param("h"), GP64()).(reg.GPVirtual)
	d := Load(Param("d"), GP64()).(reg.GPVirtual)

	perVec := l.Bytes / 8 // float64 in a vector
	step := 4 * perVec    // bytes of float32 that fill one
	accs := lanes / perVec

	Comment("rest is what does not fill all lanes; whole is the bytes before it.")
	rest := GP64()
	MOVQ(d, rest)
	ANDQ(I32(lanes-1), rest)
	stride := GP64()
	MOVQ(d, stride)
	SHLQ(U8(2), stride)
	whole := GP64()
	MOVQ(stride, whole)
	ANDQ(I32(-4*lanes), whole)

	tail := newTail(l, rest, accs)

	Label("row")
	TESTQ(n, n)
	JZ(LabelRef("end"))
	p := row
	if gather {
		p = GP64()
		MOVL(Mem{Base: ids}, p.As32())
		IMULQ(stride, p)
		ADDQ(row, p)
	}
	acc := l.Vecs(accs)
	emit.Zero(acc...)
	x, y := l.Vec(), l.Vec()
	off := GP64()
	XORQ(off, off)
	Label("lanes")
	CMPQ(off, whole)
	JGE(LabelRef("rest"))
	for k := range acc {
		VCVTPS2PD(emit.Ptr(p, off, k*step), x)
		VCVTPS2PD(emit.Ptr(h, off, k*step), y)
		VFMADD231PD(x, y, acc[k])
	}
	ADDQ(I32(4*lanes), off)
	JMP(LabelRef("lanes"))
	Label("rest")
	for k := range acc {
		CMPQ(rest, U32(k*perVec))
		JLE(LabelRef("combine"))
		tail.load(k, emit.Ptr(p, off, k*step), x)
		tail.load(k, emit.Ptr(h, off, k*step), y)
		VFMADD231PD(x, y, acc[k])
	}
	Label("combine")
	for s := accs / 2; s > 0; s /= 2 {
		for k := 0; k < s; k++ {
			VADDPD(acc[k+s], acc[k], acc[k])
		}
	}
	v := acc[0]
	if l.Bytes == 64 {
		hi := YMM()
		VEXTRACTF64X4(U8(1), v, hi)
		VADDPD(hi, v.AsY(), hi)
		v = hi
	}
	sum, t := XMM(), XMM()
	VEXTRACTF128(U8(1), v.AsY(), sum)
	VADDPD(sum, v.AsX(), sum)
	VPERMILPD(U8(1), sum, t)
	VADDSD(t, sum, sum)
	VMOVSD(sum, Mem{Base: dst})
	ADDQ(I32(8), dst)
	DECQ(n)
	if gather {
		ADDQ(I32(4), ids)
	} else {
		ADDQ(stride, row)
	}
	JMP(LabelRef("row"))
	Label("end")
	emit.End()
}

// tail loads the k-th vector of the last, partial set of lanes, zeros where
// the row has ended.
type tail struct {
	l     emit.Level
	masks []reg.Register // AVX-512: one a vector
	end   reg.GPVirtual  // AVX2: where the table's ones end
}

func newTail(l emit.Level, rest reg.GPVirtual, accs int) tail {
	t := tail{l: l}
	if l.Bytes == 64 {
		bits := GP32()
		MOVL(U32(0xffffffff), bits)
		BZHIL(rest.As32(), bits, bits)
		for range accs {
			k := K()
			KMOVB(bits, k)
			SHRL(U8(8), bits)
			t.masks = append(t.masks, k)
		}
		return t
	}
	t.end = GP64()
	at, back := GP64(), GP64()
	LEAQ(emit.TailTable(), at)
	MOVQ(rest, back)
	NEGQ(back)
	LEAQ(Mem{Base: at, Index: back, Scale: 4, Disp: 4 * lanes}, t.end)
	return t
}

func (t tail) load(k int, m Mem, v reg.VecVirtual) {
	if t.l.Bytes == 64 {
		half := YMM()
		VMOVUPS_Z(m, t.masks[k], half)
		VCVTPS2PD(half, v)
		return
	}
	half, mask := XMM(), XMM()
	VMOVDQU(Mem{Base: t.end, Disp: 16 * k}, mask)
	VMASKMOVPS(m, mask, half)
	VCVTPS2PD(half, v)
}
