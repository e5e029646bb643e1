// Command ref generates the reference arithmetic: exact products of elements of
// rows and float32, summed in float64, element i in lane i mod 32, lanes combined
// by halves.
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
	// Those that most queries run come first, behind the others that they run, which
	// together puts in the file before.
	gather(emit.AVX512, emit.Float32)
	gather(emit.AVX2, emit.Float32)
	for _, l := range emit.Levels {
		for _, e := range emit.Elements {
			l.Function("RefScan"+e.Suffix, "func(dst *float64, rows *"+e.Go+", n int, h *float32, d int)",
				"computes dst[i] = rows[i].h for n rows of d elements by the reference arithmetic.")
			refRows(l, e, false)
			if e.Suffix != emit.Float32.Suffix {
				gather(l, e)
			}
		}
	}
	Generate()
}

func gather(l emit.Level, e emit.Element) {
	l.Function("RefGatherDot"+e.Suffix, "func(dst *float64, rows *"+e.Go+", ids *uint32, n int, h *float32, d int)",
		"computes dst[j] = rows[ids[j]].h for n ids into rows of d elements by the reference arithmetic.")
	refRows(l, e, true)
}

func refRows(l emit.Level, e emit.Element, gather bool) {
	dst := Load(Param("dst"), GP64()).(reg.GPVirtual)
	row := Load(Param("rows"), GP64()).(reg.GPVirtual)
	var ids reg.GPVirtual
	if gather {
		ids = Load(Param("ids"), GP64()).(reg.GPVirtual)
	}
	n := Load(Param("n"), GP64()).(reg.GPVirtual)
	h := Load(Param("h"), GP64()).(reg.GPVirtual)
	d := Load(Param("d"), GP64()).(reg.GPVirtual)

	Comment("rest is what does not fill all lanes; whole is the elements before it.")
	rest := GP64()
	MOVQ(d, rest)
	ANDQ(I32(lanes-1), rest)
	whole := GP64()
	MOVQ(d, whole)
	ANDQ(I32(-lanes), whole)
	stride := GP64()
	IMUL3Q(U32(e.Bytes), d, stride)
	tail := newTail(l, rest, lanes/(l.Bytes/8))

	// The conversion of h to float64 costs as much as the conversion of a row: if
	// there are registers for the lanes of four rows, they share it.
	blocks := []int{1}
	if l.Bytes == 64 {
		blocks = []int{4, 1}
	}
	for _, rows := range blocks {
		label := func(name string) string { return emit.Name(name+"_", rows) }
		Label(label("rows"))
		CMPQ(n, I32(rows))
		JLT(LabelRef(label("done")))
		p := make([]reg.GPVirtual, rows)
		for r := range p {
			p[r] = GP64()
			switch {
			case gather:
				MOVL(Mem{Base: ids, Disp: 4 * r}, p[r].As32())
				IMULQ(stride, p[r])
				ADDQ(row, p[r])
			default:
				MOVQ(row, p[r])
				ADDQ(stride, row)
			}
		}
		sums := dots(l, e, p, h, rest, whole, tail, label)
		for r, sum := range sums {
			VMOVSD(sum, Mem{Base: dst, Disp: 8 * r})
		}
		ADDQ(I32(8*rows), dst)
		if gather {
			ADDQ(I32(4*rows), ids)
		}
		SUBQ(I32(rows), n)
		JMP(LabelRef(label("rows")))
		Label(label("done"))
	}
	emit.End()
}

// dots emits the inner products of the rows at p with h, each in lane 0 of an
// XMM register.
func dots(l emit.Level, e emit.Element, p []reg.GPVirtual, h, rest, whole reg.GPVirtual, tail tail, label func(string) string) []reg.VecVirtual {
	perVec := l.Bytes / 8 // float64 in a vector
	accs := lanes / perVec

	acc := make([][]reg.VecVirtual, len(p))
	for r := range acc {
		acc[r] = l.Vecs(accs)
		emit.Zero(acc[r]...)
	}
	x, y := l.Vec(), l.Vec()
	i := GP64()
	XORQ(i, i)
	Label(label("lanes"))
	CMPQ(i, whole)
	JGE(LabelRef(label("rest")))
	for k := range accs {
		emit.Float32.Widen64(l, emit.Float32.At(h, i, k*perVec), y)
		for r := range p {
			e.Widen64(l, e.At(p[r], i, k*perVec), x)
			VFMADD231PD(x, y, acc[r][k])
		}
	}
	ADDQ(I32(lanes), i)
	JMP(LabelRef(label("lanes")))
	Label(label("rest"))
	for k := range accs {
		CMPQ(rest, U32(k*perVec))
		JLE(LabelRef(label("combine")))
		tail.load(emit.Float32, k, emit.Float32.At(h, i, k*perVec), y)
		for r := range p {
			tail.load(e, k, e.At(p[r], i, k*perVec), x)
			VFMADD231PD(x, y, acc[r][k])
		}
	}
	Label(label("combine"))
	sums := make([]reg.VecVirtual, len(p))
	for r := range p {
		sums[r] = combine(l, acc[r])
	}
	return sums
}

// combine adds the lanes by halves.
func combine(l emit.Level, acc []reg.VecVirtual) reg.VecVirtual {
	for s := len(acc) / 2; s > 0; s /= 2 {
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
	return sum
}

// tail loads the k-th vector of the last, partial set of lanes, zeros if
// the row has ended.
type tail struct {
	l     emit.Level
	rest  reg.GPVirtual
	masks []reg.Register // AVX-512: one a vector
	end   reg.GPVirtual  // AVX2: where the table's ones end
}

func newTail(l emit.Level, rest reg.GPVirtual, accs int) tail {
	t := tail{l: l, rest: rest}
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

func (t tail) load(e emit.Element, k int, m Mem, v reg.VecVirtual) {
	half := t.l.Half()
	switch {
	case t.l.Bytes == 64 && e.Bytes == 4:
		VMOVUPS_Z(m, t.masks[k], half)
	case t.l.Bytes == 64:
		half = XMM()
		VMOVDQU16_Z(m, t.masks[k], half)
	case e.Bytes == 4:
		mask := XMM()
		VMOVDQU(Mem{Base: t.end, Disp: 16 * k}, mask)
		VMASKMOVPS(m, mask, half)
	default:
		t.load16(k, m, half)
	}
	e.Widen64(t.l, half, v)
}

// load16 loads up to four elements of 16 bits: AVX2 has no mask for them.
func (t tail) load16(k int, m Mem, v reg.VecVirtual) {
	some, loaded := emit.Name("some_", k), emit.Name("loaded_", k)
	CMPQ(t.rest, U32(4*k+4))
	JLT(LabelRef(some))
	VMOVQ(m, v)
	JMP(LabelRef(loaded))
	Label(some)
	VPXOR(v, v, v)
	for j := range 3 {
		if j > 0 {
			CMPQ(t.rest, U32(4*k+j))
			JLE(LabelRef(loaded))
		}
		VPINSRW(U8(j), m.Offset(2*j), v, v)
	}
	Label(loaded)
}
