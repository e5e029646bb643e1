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
	// The functions that most queries run come first, after the others that they run, which the
	// program together puts in the file before.
	floats32 := &floats{Element: emit.Float32}
	function(emit.AVX512, floats32, true)
	function(emit.AVX2, floats32, true)
	for _, l := range emit.Levels {
		for _, k := range []kind{floats32, &floats{Element: emit.Float16}, &floats{Element: emit.BFloat16}, &q80{}, &q6K{}} {
			function(l, k, false)
			if k != floats32 {
				function(l, k, true)
			}
		}
	}
	Generate()
}

// kind is a type of elements of rows.
type kind interface {
	// name returns the suffix of the functions' names, and the type of the elements in Go.
	name() (suffix, goType string)
	// begin prepares inner products with the d elements of h, and returns the size of a row.
	begin(l emit.Level, h, d reg.GPVirtual) (stride reg.GPVirtual)
	// blocks returns the numbers of rows that are processed together, the largest first.
	blocks() []int
	// of emits the inner products of the rows at p, each in lane 0 of an XMM register.
	of(p []reg.GPVirtual, label func(string) string) []reg.VecVirtual
}

func function(l emit.Level, k kind, gather bool) {
	suffix, goType := k.name()
	if gather {
		l.Function("RefGatherDot"+suffix, "func(dst *float64, rows *"+goType+", ids *uint32, n int, h *float32, d int)",
			"computes dst[j] = rows[ids[j]].h for n ids into rows of d elements by the reference arithmetic.")
	} else {
		l.Function("RefScan"+suffix, "func(dst *float64, rows *"+goType+", n int, h *float32, d int)",
			"computes dst[i] = rows[i].h for n rows of d elements by the reference arithmetic.")
	}
	dst := Load(Param("dst"), GP64()).(reg.GPVirtual)
	row := Load(Param("rows"), GP64()).(reg.GPVirtual)
	var ids reg.GPVirtual
	if gather {
		ids = Load(Param("ids"), GP64()).(reg.GPVirtual)
	}
	n := Load(Param("n"), GP64()).(reg.GPVirtual)
	h := Load(Param("h"), GP64()).(reg.GPVirtual)
	d := Load(Param("d"), GP64()).(reg.GPVirtual)
	stride := k.begin(l, h, d)
	for _, rows := range k.blocks() {
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
		sums := k.of(p, label)
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

// sums are the lanes of rows.
type sums [][]reg.VecVirtual

func newSums(l emit.Level, rows int) sums {
	acc := make(sums, rows)
	for r := range acc {
		acc[r] = l.Vecs(lanes / (l.Bytes / 8))
		emit.Zero(acc[r]...)
	}
	return acc
}

// combined returns the sums of the lanes of each row.
func (acc sums) combined(l emit.Level) []reg.VecVirtual {
	all := make([]reg.VecVirtual, len(acc))
	for r := range acc {
		all[r] = combine(l, acc[r])
	}
	return all
}

// floats are float32, float16 or bfloat16.
type floats struct {
	emit.Element
	l              emit.Level
	h, rest, whole reg.GPVirtual
	tail           tail
}

func (x *floats) name() (suffix, goType string) { return x.Suffix, x.Go }

func (x *floats) begin(l emit.Level, h, d reg.GPVirtual) (stride reg.GPVirtual) {
	Comment("rest is the elements that do not fill all lanes; whole is the elements before it.")
	x.l, x.h, x.rest, x.whole = l, h, GP64(), GP64()
	MOVQ(d, x.rest)
	ANDQ(I32(lanes-1), x.rest)
	MOVQ(d, x.whole)
	ANDQ(I32(-lanes), x.whole)
	stride = GP64()
	IMUL3Q(U32(x.Bytes), d, stride)
	x.tail = newTail(l, x.rest, lanes/(l.Bytes/8))
	return stride
}

func (x *floats) blocks() []int { return sideBySide(x.l) }

// sideBySide returns the sizes of the blocks of rows. The conversion of h to float64 costs as much
// as the conversion of a row: if there are registers for the lanes of four rows, four rows share
// it.
func sideBySide(l emit.Level) []int {
	if l.Bytes == 64 {
		return []int{4, 1}
	}
	return []int{1}
}

func (x *floats) of(p []reg.GPVirtual, label func(string) string) []reg.VecVirtual {
	perVec := x.l.Bytes / 8 // float64 in a vector
	acc, v, y, i := newSums(x.l, len(p)), x.l.Vec(), x.l.Vec(), GP64()
	XORQ(i, i)
	Label(label("lanes"))
	CMPQ(i, x.whole)
	JGE(LabelRef(label("rest")))
	for k := range acc[0] {
		emit.Float32.Widen64(x.l, emit.Float32.At(x.h, i, k*perVec), y)
		for r := range p {
			x.Widen64(x.l, x.At(p[r], i, k*perVec), v)
			VFMADD231PD(v, y, acc[r][k])
		}
	}
	ADDQ(I32(lanes), i)
	JMP(LabelRef(label("lanes")))
	Label(label("rest"))
	for k := range acc[0] {
		CMPQ(x.rest, U32(k*perVec))
		JLE(LabelRef(label("combine")))
		x.tail.load(emit.Float32, k, emit.Float32.At(x.h, i, k*perVec), y)
		for r := range p {
			x.tail.load(x.Element, k, x.At(p[r], i, k*perVec), v)
			VFMADD231PD(v, y, acc[r][k])
		}
	}
	Label(label("combine"))
	return acc.combined(x.l)
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
	masks []reg.Register // AVX-512: one per vector
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
