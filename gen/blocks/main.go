// Command blocks generates the intervals of logits from rows of quantised blocks, as in a file, and
// contexts of 15 bits.
//
// An element of a context is an int16 H of 15 bits. A row gives one signed byte X for each weight,
// and each four of them make one int32 lane, I = 256 sum X H:
//
//	X = q          for types with a minimum
//	X = q 128/B    for the others, with B half of the range of q
//
// A shift makes words X << 8 of the even weights, and a mask makes the words of the odd weights, so
// that two products of words make a lane without a shuffle. Each lane is within 2^31 and exact in
// float32. Lane j of group g, of 32 weights, is added to float32 lane j + 8 (g mod 2) with one
// fused multiply-add by the factor of its weights.
package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/learning-to-screen/l2s/gen/internal/emit"
	"github.com/learning-to-screen/l2s/gen/internal/layout"
)

const (
	// aheadRows is the number of rows by which the prefetches of a list of rows are ahead. The
	// caller gives the number of bytes for rows that follow each other.
	aheadRows = 8
)

func main() {
	emit.Begin()
	for _, l := range emit.Levels {
		for _, k := range kinds {
			for _, contexts := range []int{1, layout.BatchContexts} {
				function(l, k, contexts)
			}
		}
	}
	Generate()
}

// kind is a type of blocks.
type kind struct {
	suffix  string
	weights int // of a block
	bytes   int
	mins    bool // a block has a minimum too
	// codes emits X of group g of a unit at p, and of group g+1 on AVX-512. Without a group g+1 its
	// bytes are undefined.
	codes func(f *fn, p reg.GPVirtual, g int, last bool) reg.VecVirtual
}

// pairBytes is the size of two groups in the planes of a context: 64 bytes of the H of even
// weights, 64 of the H of odd weights, and for types with a minimum 16 lanes, which are 256 sum H
// as float32.
func (k kind) pairBytes() int {
	if k.mins {
		return 192
	}
	return 128
}

var kinds = []kind{
	{"Q80", 32, 34, false, (*fn).codes80},
	{"Q40", 32, 18, false, (*fn).codes40},
	{"Q50", 32, 22, false, (*fn).codes50},
	{"Q41", 32, 20, true, (*fn).codes41},
	{"Q51", 32, 24, true, (*fn).codes51},
	{"Q4K", 256, 144, true, (*fn).codes4K},
	{"Q5K", 256, 176, true, (*fn).codes5K},
	{"Q6K", 256, 210, false, (*fn).codes6K},
}

// fn is a function that is generated.
type fn struct {
	kind
	l        emit.Level
	contexts int
	ahead    reg.GPVirtual             // bytes
	planes   reg.GPVirtual             // of the contexts, at the groups at hand
	offset   int                       // bytes from planes to the groups at hand, in a large block
	acc      []reg.VecVirtual          // AVX2: for each context the lanes of even groups, then of odd ones
	upper    reg.Register              // AVX-512: the mask of the upper 8 of 16 elements
	lower    reg.Register              // of the others
	d8, m8   reg.VecVirtual            // the factors of a large block
	d8more   reg.VecVirtual            // AVX2: of the upper half
	m8more   reg.VecVirtual            // AVX2
	qh       reg.VecVirtual            // the upper bits of the codes of several groups of Q5_K or Q6_K
	held     map[string]reg.VecVirtual // AVX2, large blocks: constants, by their names
	odd      reg.VecVirtual            // AVX-512: the mask of the odd bytes
	mask     reg.VecVirtual            // AVX-512, codes of 4 to 6 bits without a minimum: the mask of their bits at their place in a byte
	spread   []reg.VecVirtual          // AVX-512: from four factors to the factors of two pairs
}

func (f *fn) wide() bool { return f.l.Bytes == 64 }

func function(l emit.Level, k kind, contexts int) {
	name, doc := "BlockBounds", "one context"
	if contexts > 1 {
		name, doc = "BlockBatch", fmt.Sprintf("%d contexts, with the intervals of context c at [c*ld]", contexts)
	}
	l.Function(name+k.suffix, "func(lower, upper *float32, ld int, rows *byte, ids *uint32, n, blocks int, b *byte)",
		fmt.Sprintf("computes the intervals of n rows, the rows ids or, if ids is nil, the first from rows on, for %s. blocks is the number of blocks of a row. b is a %s.", doc, layout.BlockBound))
	f := &fn{kind: k, l: l, contexts: contexts}
	f.acc = l.Vecs(contexts * 64 / l.Bytes)
	f.begin()

	i := GP64()
	XORQ(i, i)
	b := Load(Param("b"), GP64()).(reg.GPVirtual)
	f.ahead = GP64()
	MOVQ(field(b, "ahead"), f.ahead)
	Label("row")
	p, id := GP64(), GP64()
	size := GP64()
	MOVQ(field(b, "bytes"), size)
	ids := Load(Param("ids"), GP64()).(reg.GPVirtual)
	MOVQ(i, id)
	TESTQ(ids, ids)
	JZ(LabelRef("named"))
	MOVL(Mem{Base: ids, Index: i, Scale: 4}, id.As32())
	f.prefetchGathered(ids, i, size)
	Label("named")
	MOVQ(id, p)
	IMULQ(size, p)
	ADDQ(Load(Param("rows"), GP64()), p)
	f.planes = GP64()
	MOVQ(field(b, "planes"), f.planes)
	emit.Zero(f.acc...)
	f.row(p)
	f.finish(b, i, id)
	INCQ(i)
	CMPQ(i, Load(Param("n"), GP64()))
	JLT(LabelRef("row"))
	emit.End()
}

func field(b reg.Register, name string) Mem {
	return Mem{Base: b, Disp: layout.BlockBound.At(name)}
}

// prefetchGathered asks for all lines of the row that comes some rows after row i.
func (f *fn) prefetchGathered(ids, i, size reg.GPVirtual) {
	next, at, end := GP64(), GP64(), GP64()
	LEAQ(Mem{Base: i, Disp: aheadRows}, next)
	CMPQ(next, Load(Param("n"), GP64()))
	JGE(LabelRef("named"))
	MOVL(Mem{Base: ids, Index: next, Scale: 4}, at.As32())
	IMULQ(size, at)
	ADDQ(Load(Param("rows"), GP64()), at)
	LEAQ(emit.Ptr(at, size, 0), end)
	Label("ask")
	PREFETCHT1(Mem{Base: at})
	ADDQ(I32(64), at)
	CMPQ(at, end)
	JLT(LabelRef("ask"))
}

// row adds the products of a row.
func (f *fn) row(p reg.GPVirtual) {
	left := Load(Param("blocks"), GP64()).(reg.GPVirtual)
	if f.weights == 256 {
		Label("block")
		for line := 0; line < f.bytes; line += 64 {
			PREFETCHT0(emit.Ptr(p, f.ahead, line))
		}
		f.factors(p)
		for g := 0; g < 8; g += 2 {
			f.pair(p, g, false)
			f.offset += f.pairBytes() * f.contexts
		}
		ADDQ(I32(f.offset), f.planes)
		f.offset = 0
		ADDQ(I32(f.bytes), p)
		DECQ(left)
		JNZ(LabelRef("block"))
		return
	}
	if f.wide() && !f.mins {
		f.quads(p, left)
	}
	SUBQ(I32(2), left)
	JLT(LabelRef("single"))
	Label("pair")
	PREFETCHT0(emit.Ptr(p, f.ahead, 0))
	f.pair(p, 0, false)
	ADDQ(I32(2*f.bytes), p)
	ADDQ(I32(f.pairBytes()*f.contexts), f.planes)
	SUBQ(I32(2), left)
	JGE(LabelRef("pair"))
	Label("single")
	CMPQ(left, I32(-1))
	JLT(LabelRef("sums"))
	f.pair(p, 0, true)
	Label("sums")
}

// quads adds the products of four blocks at a time. Their scales are brought together in the
// general registers: the loop waits for the vector unit.
func (f *fn) quads(p, left reg.GPVirtual) {
	SUBQ(I32(4), left)
	JLT(LabelRef("rest"))
	Label("quad")
	all := GP64()
	MOVWQZX(Mem{Base: p}, all)
	for k := 1; k < 4; k++ { // in order, as the CPU's prefetcher expects
		one := GP64()
		MOVWQZX(Mem{Base: p, Disp: k * f.bytes}, one)
		SHLQ(U8(16*k), one)
		ORQ(one, all)
	}
	four := ZMM()
	VMOVQ(all, four.AsX())
	VCVTPH2PS(four.AsX(), four.AsX())
	for half := range 2 {
		PREFETCHT0(emit.Ptr(p, f.ahead, 2*half*f.bytes))
		d := ZMM()
		VPERMPS(four, f.spread[half], d)
		f.products(f.codes(f, p, 2*half, false), d, nil)
		ADDQ(I32(f.pairBytes()*f.contexts), f.planes)
	}
	ADDQ(I32(4*f.bytes), p)
	SUBQ(I32(4), left)
	JGE(LabelRef("quad"))
	Label("rest")
	ADDQ(I32(4), left)
}

// pair adds the products of groups g and g+1, or of g alone if it is the last one.
func (f *fn) pair(p reg.GPVirtual, g int, last bool) {
	if f.wide() {
		x := f.codes(f, p, g, last)
		d := f.factor(p, g, last, 0)
		var m reg.VecVirtual
		if f.mins {
			m = f.factor(p, g, last, 2)
		}
		f.products(x, d, m)
		return
	}
	for odd := range 2 {
		if last && odd == 1 {
			return
		}
		even, odds := f.words(f.codes(f, p, g+odd, last))
		d := f.factor(p, g+odd, last, 0)
		var m reg.VecVirtual
		if f.mins {
			m = f.factor(p, g+odd, last, 2)
		}
		t, u := YMM(), YMM()
		for c := range f.contexts {
			at := func(part int) Mem { return Mem{Base: f.planes, Disp: f.offset + f.pairBytes()*c + 64*part + 32*odd} }
			VPMADDWD(at(0), even, t)
			VPMADDWD(at(1), odds, u)
			VPADDD(u, t, t)
			VCVTDQ2PS(t, t)
			VFMADD231PS(t, d, f.acc[2*c+odd])
			if f.mins {
				f.minimum(at(2), m, f.acc[2*c+odd])
			}
		}
	}
}

// words makes words of X << 8 of the even weights and of the odd ones.
func (f *fn) words(x reg.VecVirtual) (even, odd reg.VecVirtual) {
	even = f.l.Vec()
	VPSLLW(U8(8), x, even)
	if f.wide() {
		VPANDD(f.odd, x, x)
	} else {
		VPAND(f.hold(oddBytes()), x, x)
	}
	return even, x
}

// minimum takes the minima times the sums of a context out: small blocks add theirs.
func (f *fn) minimum(sums Mem, m, acc reg.VecVirtual) {
	if f.weights == 32 {
		VFMADD231PS(sums, m, acc)
	} else {
		VFNMADD231PS(sums, m, acc)
	}
}

// products adds the products of two groups on AVX-512: their codes, their factors, their minima.
func (f *fn) products(x, d, m reg.VecVirtual) {
	even, odd := f.words(x)
	for c := range f.contexts {
		at := func(part int) Mem { return Mem{Base: f.planes, Disp: f.offset + f.pairBytes()*c + 64*part} }
		t := ZMM()
		VPMADDWD(at(0), even, t)
		VPDPWSSD(at(1), odd, t)
		VCVTDQ2PS(t, t)
		VFMADD231PS(t, d, f.acc[c])
		if f.mins {
			f.minimum(at(2), m, f.acc[c])
		}
	}
}

// finish makes intervals of the sums of row i, whose number is id, and stores them.
func (f *fn) finish(b, i, id reg.GPVirtual) {
	y := make([]reg.VecVirtual, f.contexts)
	for c := range y {
		y[c] = YMM()
		if f.wide() {
			VEXTRACTF64X4(U8(1), f.acc[c], y[c])
			VADDPS(f.acc[c].AsY(), y[c], y[c])
		} else {
			VADDPS(f.acc[2*c], f.acc[2*c+1], y[c])
		}
	}
	meta := GP64()
	MOVQ(field(b, "meta"), meta)
	SHLQ(U8(4), id)
	norm, bias, rest := emit.Ptr(meta, id, 0), emit.Ptr(meta, id, 4), emit.Ptr(meta, id, 8)
	a, r := XMM(), XMM()
	lower, upper := Load(Param("lower"), GP64()).(reg.GPVirtual), Load(Param("upper"), GP64()).(reg.GPVirtual)
	to := func(p reg.GPVirtual) Mem { return Mem{Base: p, Index: i, Scale: 4} }
	if f.contexts == 1 {
		VHADDPS(y[0], y[0], y[0])
		VHADDPS(y[0], y[0], y[0])
		VEXTRACTF128(U8(1), y[0], a)
		VADDSS(y[0].AsX(), a, a)
		VMULSS(field(b, "scale"), a, a)
		VADDSS(bias, a, a)
		VMOVSS(norm, r)
		VMULSS(field(b, "err"), r, r)
		lo := XMM()
		VMOVSS(rest, lo)
		VMULSS(field(b, "norm"), lo, lo)
		VADDSS(lo, r, r)
		VADDSS(field(b, "slack"), r, r)
		VSUBSS(r, a, lo)
		VADDSS(r, a, a)
		VMOVSS(lo, to(lower))
		VMOVSS(a, to(upper))
		return
	}
	t := XMM()
	VHADDPS(y[1], y[0], y[0])
	VHADDPS(y[3], y[2], y[2])
	VHADDPS(y[2], y[0], y[0])
	VEXTRACTF128(U8(1), y[0], a)
	VADDPS(y[0].AsX(), a, a)
	VMULPS(field(b, "scale"), a, a)
	VBROADCASTSS(bias, t)
	VADDPS(t, a, a)
	VBROADCASTSS(norm, r)
	VMULPS(field(b, "err"), r, r)
	VBROADCASTSS(rest, t)
	VMULPS(field(b, "norm"), t, t)
	VADDPS(t, r, r)
	VBROADCASTSS(field(b, "slack"), t)
	VADDPS(t, r, r)
	VSUBPS(r, a, t)
	VADDPS(r, a, a)
	ld := Load(Param("ld"), GP64()).(reg.GPVirtual)
	for c := range f.contexts {
		VEXTRACTPS(U8(c), t, to(lower))
		VEXTRACTPS(U8(c), a, to(upper))
		if c < f.contexts-1 {
			LEAQ(Mem{Base: lower, Index: ld, Scale: 4}, lower)
			LEAQ(Mem{Base: upper, Index: ld, Scale: 4}, upper)
		}
	}
}
