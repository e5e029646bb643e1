// Package emit holds the common parts of the generators of kernels/asm: vectors of a level's width,
// masked tails, horizontal sums and the loop over rows.
//
// A generator is written once and parameterised by the level; nothing in it names YMM or ZMM.
package emit

import (
	"strings"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Level is the vector width that a kernel is generated for.
type Level struct {
	Suffix string // of the function's name
	Bytes  int    // of a vector register
}

// The levels of the kernels.
var (
	AVX2   = Level{"AVX2", 32}
	AVX512 = Level{"AVX512", 64}
)

// Levels are all levels.
var Levels = []Level{AVX2, AVX512}

// Begin sets the common header of all generated files.
func Begin() {
	ConstraintExpr("amd64")
	ConstraintExpr("!purego")
}

// Function starts a form of the operation name, whose contract is the doc.
func (l Level) Function(name, signature, doc string) {
	TEXT(strings.ToLower(name[:1])+name[1:]+l.Suffix, NOSPLIT, signature)
	Pragma("noescape")
	Comment(doc)
}

// Vec returns a new full-width vector register.
func (l Level) Vec() reg.VecVirtual {
	if l.Bytes == 64 {
		return ZMM()
	}
	return YMM()
}

// Half returns a new register of half the width.
func (l Level) Half() reg.VecVirtual {
	if l.Bytes == 64 {
		return YMM()
	}
	return XMM()
}

// Vecs returns n new full-width registers.
func (l Level) Vecs(n int) []reg.VecVirtual {
	v := make([]reg.VecVirtual, n)
	for i := range v {
		v[i] = l.Vec()
	}
	return v
}

// Zero clears registers.
func Zero(regs ...reg.VecVirtual) {
	for _, r := range regs {
		VXORPS(r, r, r)
	}
}

// End emits the function's end.
func End() {
	VZEROUPPER()
	RET()
}

// Ptr is the memory at base+index+disp.
func Ptr(base, index reg.GPVirtual, disp int) Mem {
	return Mem{Base: base, Index: index, Scale: 1, Disp: disp}
}

// Tail loads the first count elements of a vector of float32 followed by zeros, without touching
// memory after them.
type Tail struct {
	level Level
	mask  reg.Register
}

// tailTable is the table of TailTable, once it is defined in the file.
var tailTable *Mem

// TailTable returns the table of 32 all-ones int32 followed by 32 zeros: a load
// that starts count elements before the zeros is the mask of count elements.
func TailTable() Mem {
	if tailTable == nil {
		m := GLOBL("tailmask", RODATA|NOPTR)
		for i := 0; i < 32; i++ {
			DATA(4*i, U32(0xffffffff))
		}
		for i := 32; i < 64; i++ {
			DATA(4*i, U32(0))
		}
		tailTable = &m
	}
	return *tailTable
}

// NewTail prepares loads of count < lanes float32; count is kept.
func (l Level) NewTail(count reg.GPVirtual) Tail {
	if l.Bytes == 64 {
		k := K()
		bits := GP32()
		MOVL(U32(0xffffffff), bits)
		BZHIL(count.As32(), bits, bits)
		KMOVW(bits, k)
		return Tail{l, k}
	}
	mask := YMM()
	at := GP64()
	Comment("The mask's ones end where the table's do.")
	LEAQ(TailTable(), at)
	back := GP64()
	MOVQ(count, back)
	NEGQ(back)
	VMOVDQU(Mem{Base: at, Index: back, Scale: 4, Disp: 128}, mask)
	return Tail{l, mask}
}

// Load loads the tail at m.
func (t Tail) Load(m Mem, v reg.VecVirtual) {
	if t.level.Bytes == 64 {
		VMOVUPS_Z(m, t.mask, v)
	} else {
		VMASKMOVPS(m, t.mask, v)
	}
}

// Fold adds the upper half of a vector of float32 to its lower half, down to
// 128 bits.
func (l Level) Fold(v reg.VecVirtual) reg.VecVirtual {
	if l.Bytes == 64 {
		hi := YMM()
		VEXTRACTF64X4(U8(1), v, hi)
		VADDPS(v.AsY(), hi, hi)
		v = hi
	}
	hi := XMM()
	VEXTRACTF128(U8(1), v.AsY(), hi)
	VADDPS(v.AsX(), hi, hi)
	return hi
}

// Sum1 returns the sum of a vector of float32 in lane 0 of an XMM register.
func (l Level) Sum1(v reg.VecVirtual) reg.VecVirtual {
	x := l.Fold(v)
	t := XMM()
	VPERMILPS(U8(0b1110), x, t)
	VADDPS(t, x, x)
	VPERMILPS(U8(1), x, t)
	VADDSS(t, x, x)
	return x
}

// Sum4 returns the sums of four vectors of float32 in the lanes of an XMM
// register.
func (l Level) Sum4(v []reg.VecVirtual) reg.VecVirtual {
	y := make([]reg.VecVirtual, 4)
	for i := range y {
		y[i] = v[i]
		if l.Bytes == 64 {
			hi := YMM()
			VEXTRACTF64X4(U8(1), v[i], hi)
			VADDPS(v[i].AsY(), hi, hi)
			y[i] = hi
		}
	}
	VHADDPS(y[1].AsY(), y[0].AsY(), y[0].AsY())
	VHADDPS(y[3].AsY(), y[2].AsY(), y[2].AsY())
	VHADDPS(y[2].AsY(), y[0].AsY(), y[0].AsY())
	x := XMM()
	VEXTRACTF128(U8(1), y[0].AsY(), x)
	VADDPS(y[0].AsX(), x, x)
	return x
}

// BroadcastParam returns a register with a float32 parameter in every lane.
func (l Level) BroadcastParam(name string) reg.VecVirtual {
	v := l.Vec()
	p, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	VBROADCASTSS(p.Addr, v)
	return v
}

// FoldInts folds sixteen int32 lanes, in one or two registers, by halves with
// op and returns the result in a general register.
func (l Level) FoldInts(v []reg.VecVirtual, op func(...Op)) reg.GPVirtual {
	y := YMM()
	if l.Bytes == 64 {
		VEXTRACTI64X4(U8(1), v[0], y)
		op(v[0].AsY(), y, y)
	} else {
		op(v[0], v[1], y)
	}
	return foldInts(y, op)
}

// SumInts returns the sum of the int32 lanes of a register.
func (l Level) SumInts(v reg.VecVirtual) reg.GPVirtual {
	add := func(x ...Op) { VPADDD(x[0], x[1], x[2]) }
	if l.Bytes == 64 {
		return l.FoldInts([]reg.VecVirtual{v}, add)
	}
	return foldInts(v, add)
}

// foldInts is FoldInts for eight lanes.
func foldInts(y reg.VecVirtual, op func(...Op)) reg.GPVirtual {
	x, t := XMM(), XMM()
	VEXTRACTI128(U8(1), y.AsY(), x)
	op(y.AsX(), x, x)
	VPSHUFD(U8(0b1110), x, t)
	op(t, x, x)
	VPSHUFD(U8(1), x, t)
	op(t, x, x)
	r := GP32()
	VMOVD(x, r)
	return r
}

// FoldFloats folds sixteen float32 lanes, in one or two registers, by halves
// with op, and with last in the end, and returns the result in lane 0.
func (l Level) FoldFloats(v []reg.VecVirtual, op, last func(...Op)) reg.VecVirtual {
	y := YMM()
	if l.Bytes == 64 {
		VEXTRACTF64X4(U8(1), v[0], y)
		op(v[0].AsY(), y, y)
	} else {
		op(v[0], v[1], y)
	}
	x, t := XMM(), XMM()
	VEXTRACTF128(U8(1), y, x)
	op(y.AsX(), x, x)
	VPERMILPS(U8(0b1110), x, t)
	op(t, x, x)
	VPERMILPS(U8(1), x, t)
	last(t, x, x)
	return x
}
