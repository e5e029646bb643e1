// Command int8 generates the int8 scans with their error envelope.
//
// A row's record is its codes plus 128, padded to a multiple of 64 bytes whose last 16 are four
// float32: scale, bias, error and norm; if the codes fill the 64 the floats follow them. The
// vector's codes are zero if a record holds padding or floats, so whole chunks of 64 go through the
// products.
package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/learning-to-screen/l2s/gen/internal/emit"
	"github.com/learning-to-screen/l2s/gen/internal/layout"
)

// groupRows returns the number of rows whose products are computed together: eight, whose addresses
// fit in registers; but four if rows follow each other on AVX-512, which is as fast from the caches
// and better for the prefetcher. (AVX2 has no registers for the floats of a first group.) Rows of a
// stream are processed one by one: the hardware reads one sequence of lines ahead twice as far as
// four.
func groupRows(l emit.Level, gather, stream bool) int {
	if stream {
		return 1
	}
	if l.Bytes == 64 && !gather {
		return 4
	}
	return 8
}

// chunk is the number of bytes that all levels step by, metaBytes is the size of the rest that a
// record may have after its last whole chunk.
const (
	chunk     = 64
	metaBytes = 16
)

func main() {
	emit.Begin()
	for _, l := range emit.Levels {
		bounds(l, false, false)
		bounds(l, true, false)
		batch(l, false)
		batch(l, true)
		nibbleBounds(l, false)
		panelBounds(l, false)
		panelBounds(l, true)
	}
	bounds(emit.AVX512, false, true)
	nibbleBounds(emit.AVX512, true)
	Generate()
}

func bounds(l emit.Level, gather, stream bool) {
	contract := fmt.Sprintf("n is at least the lanes of a vector, stride a multiple of 64, or 16 more. b is a %s.", layout.Bound)
	if gather {
		l.Function("Int8GatherBounds", "func(lower, upper *float32, data *byte, stride int, ids *uint32, n int, b *byte)",
			"computes the intervals of the rows ids. "+contract)
	} else {
		l.Function("Int8Bounds"+streamed(stream), "func(lower, upper *float32, data *byte, stride int, n int, b *byte)",
			"computes the intervals of n rows. "+contract)
	}
	scanBlocks(l, gather, stream, newProduct(l, 1))
}

// streamed returns the suffix of the names of functions for long rows.
func streamed(stream bool) string {
	if stream {
		return "Stream"
	}
	return ""
}

// multiplier is the way from the codes of rows and of a vector to sums of
// products.
type multiplier interface {
	// vectorAt returns the registers with the addresses of the end of the vector's codes.
	vectorAt(b, stride reg.Register) []reg.GPVirtual
	// set loads codes of the vector, at bytes off+at from the ends h.
	set(h []reg.GPVirtual, off reg.GPVirtual, at int)
	// add multiplies them by the codes of a row at m.
	add(m Mem, acc ...reg.VecVirtual)
}

// scanBlocks emits the loop over blocks of rows and the function's end.
func scanBlocks(l emit.Level, gather, stream bool, code multiplier) {
	rows := l.Bytes / 4 // a block: one float32 lane a row
	i := GP64()
	XORQ(i, i)
	row := GP64()
	if !gather {
		Load(Param("data"), row)
	}
	acc := l.Vecs(rows)
	meta := l.Vecs(4)

	Label("block")
	group := groupRows(l, gather, stream)
	var next reg.GPVirtual
	if gather {
		next = nextBlock(rows, i)
	}
	for g := 0; g < rows; g += group {
		if gather {
			prefetch(g, group, next)
		}
		p := addresses(gather, g, group, i, row)
		products(l, code, g, p, acc[g:g+group])
		for k := range p {
			loadMeta(l, g+k, p[k], meta)
		}
	}
	d := transposeSum(l, acc)
	transpose(l, meta)
	envelope(l, d, meta, i, 0)

	advance(rows, i, row, gather)
	emit.End()
}

// advance continues after the block at i, while there are rows. If less than a block remains, the
// last block overlaps the previous one: a row's interval depends on that row alone.
func advance(rows int, i, row reg.GPVirtual, gather bool) {
	ADDQ(I32(rows), i)
	left := Load(Param("n"), GP64()).(reg.GPVirtual)
	SUBQ(i, left)
	JZ(LabelRef("end"))
	SUBQ(I32(rows), left)
	JGE(LabelRef("block"))
	ADDQ(left, i)
	if !gather {
		IMULQ(Load(Param("stride"), GP64()), left)
		ADDQ(left, row)
	}
	JMP(LabelRef("block"))
	Label("end")
}

// addresses returns the ends of the records of the rows i+g, ... The
// records are read backwards from there with negative offsets, so that one
// register counts for all.
func addresses(gather bool, g, group int, i, row reg.GPVirtual) []reg.GPVirtual {
	p := make([]reg.GPVirtual, group)
	stride := Load(Param("stride"), GP64())
	if !gather {
		for k := range p {
			ADDQ(stride, row)
			p[k] = GP64()
			MOVQ(row, p[k])
		}
		return p
	}
	ids := Load(Param("ids"), GP64())
	end := Load(Param("data"), GP64())
	ADDQ(stride, end)
	for k := range p {
		p[k] = GP64()
		MOVL(Mem{Base: ids, Index: i, Scale: 4, Disp: 4 * (g + k)}, p[k].As32())
		IMULQ(stride, p[k])
		ADDQ(end, p[k])
	}
	return p
}

// prefetchLines is the number of cache lines of a row that are prefetched one block ahead; the
// hardware continues from there.
const prefetchLines = 2

// nextBlock returns the index of the block of rows after the one at i, or of the last block if that
// comes earlier.
func nextBlock(rows int, i reg.GPVirtual) reg.GPVirtual {
	next, last := GP64(), Load(Param("n"), GP64()).(reg.GPVirtual)
	SUBQ(I32(rows), last)
	LEAQ(Mem{Base: i, Disp: rows}, next)
	CMPQ(next, last)
	CMOVQGT(last, next)
	return next
}

// prefetch asks for the starts of count gathered rows from ids[next+g] on.
func prefetch(g, count int, next reg.GPVirtual) {
	stride := Load(Param("stride"), GP64())
	ids := Load(Param("ids"), GP64())
	data := Load(Param("data"), GP64())
	for k := range count {
		p := GP64()
		MOVL(Mem{Base: ids, Index: next, Scale: 4, Disp: 4 * (g + k)}, p.As32())
		IMULQ(stride, p)
		ADDQ(data, p)
		for line := range prefetchLines {
			PREFETCHT0(Mem{Base: p, Disp: chunk * line})
		}
	}
}

// products clears acc and adds the products of the records with the
// vector's codes, four or more to an int32 lane.
func products(l emit.Level, code multiplier, g int, p []reg.GPVirtual, acc []reg.VecVirtual) {
	emit.Zero(acc...)
	stride := Load(Param("stride"), GP64())
	b := Load(Param("b"), GP64())
	h := code.vectorAt(b, stride)
	off := GP64()
	MOVQ(stride, off)
	NEGQ(off)
	label := emit.Name("products", g)
	Label(label)
	for at := 0; at < chunk; at += l.Bytes {
		code.set(h, off, at)
		for k := range p {
			code.add(emit.Ptr(p[k], off, at), acc[k])
		}
	}
	ADDQ(I32(chunk), off)
	CMPQ(off, I32(-metaBytes))
	JLT(LabelRef(label))
}

// behind returns the address in a field of b, plus the stride.
func behind(b, stride reg.Register, field string) reg.GPVirtual {
	h := GP64()
	MOVQ(Mem{Base: b, Disp: layout.Bound.At(field)}, h)
	ADDQ(stride, h)
	return h
}

func (p product) vectorAt(b, stride reg.Register) []reg.GPVirtual {
	return []reg.GPVirtual{behind(b, stride, "codes")}
}

func (p product) set(h []reg.GPVirtual, off reg.GPVirtual, at int) {
	p.setVector(0, emit.Ptr(h[0], off, at))
}

// product multiplies bytes c+128 by the signed codes of some vectors and
// adds up.
type product struct {
	l        emit.Level
	h        []reg.VecVirtual // one per vector: its codes; on AVX2 their magnitudes
	flip     []reg.VecVirtual // AVX2, one per vector: see setVector
	w        reg.VecVirtual   // scratch
	x80, one reg.VecVirtual
}

func newProduct(l emit.Level, vectors int) product {
	p := product{l: l, h: l.Vecs(vectors), w: l.Vec()}
	if l.Bytes == 32 {
		p.flip, p.x80, p.one = l.Vecs(vectors), l.Vec(), l.Vec()
		bits := GP32()
		x := XMM()
		MOVL(U32(0x80808080), bits)
		VMOVD(bits, x)
		VPBROADCASTD(x, p.x80)
		MOVL(U32(0x00010001), bits)
		VMOVD(bits, x)
		VPBROADCASTD(x, p.one)
	}
	return p
}

// setVector loads codes of vector c.
//
// AVX2 multiplies unsigned by signed bytes, with sums of two that saturate
// unless one factor is a magnitude |h| and the other is a code. So the sign of
// h goes to the row's code w, by a complement if h is negative: ~w = -w-1.
// One exclusive or does this, with the mask of h's sign combined with the bit of
// the 128 in the record's byte. The -1 add up to the sum of |h| over negative h,
// which is known beforehand.
func (p product) setVector(c int, m Mem) {
	if p.l.Bytes == 64 {
		VMOVUPS(m, p.h[c])
		return
	}
	VPXOR(p.w, p.w, p.w)
	VPCMPGTB(m, p.w, p.flip[c])
	VPXOR(p.x80, p.flip[c], p.flip[c])
	VPABSB(m, p.h[c])
}

// add multiplies the codes of a row by the codes of the vectors: acc[c] is the
// sum for vector c.
func (p product) add(m Mem, acc ...reg.VecVirtual) {
	if p.l.Bytes == 64 {
		VMOVDQU64(m, p.w)
		for c := range p.h {
			VPDPBUSD(p.h[c], p.w, acc[c])
		}
		return
	}
	for c := range p.h {
		Comment("Sums of two products are at most 2*127*128 < 2^15 in magnitude.")
		VPXOR(m, p.flip[c], p.w)
		VPMADDUBSW(p.w, p.h[c], p.w)
		VPMADDWD(p.one, p.w, p.w)
		VPADDD(p.w, acc[c], acc[c])
	}
}

// loadMeta puts the last 16 bytes of the record that ends at p, row r of the block, in the 128-bit
// lane r/4 of meta[r%4]. The first write is to the whole register, so that the register needs no
// write before.
func loadMeta(l emit.Level, r int, p reg.GPVirtual, meta []reg.VecVirtual) {
	m, v := Mem{Base: p, Disp: -metaBytes}, meta[r%4]
	switch {
	case r < 4 && l.Bytes == 32:
		VBROADCASTF128(m, v)
	case r < 4:
		VBROADCASTF32X4(m, v)
	case l.Bytes == 32:
		VINSERTF128(U8(1), m, v, v)
	default:
		VINSERTF32X4(U8(r/4), m, v, v)
	}
}

// transpose turns each 128-bit lane of m, four rows of four floats, by a
// diagonal: m[f] is then float f of all rows in their order.
func transpose(l emit.Level, m []reg.VecVirtual) {
	t := l.Vecs(4)
	VUNPCKLPS(m[1], m[0], t[0])
	VUNPCKHPS(m[1], m[0], t[1])
	VUNPCKLPS(m[3], m[2], t[2])
	VUNPCKHPS(m[3], m[2], t[3])
	VUNPCKLPD(t[2], t[0], m[0])
	VUNPCKHPD(t[2], t[0], m[1])
	VUNPCKLPD(t[3], t[1], m[2])
	VUNPCKHPD(t[3], t[1], m[3])
}

// transposeSum returns a vector whose lane r is the sum of the lanes of
// acc[r].
func transposeSum(l emit.Level, acc []reg.VecVirtual) reg.VecVirtual {
	t := l.Vec()
	Comment("Pairs of rows, then fours: each 128-bit lane holds a part of four sums.")
	for r := 0; r < len(acc); r += 2 {
		VPUNPCKLDQ(acc[r+1], acc[r], t)
		VPUNPCKHDQ(acc[r+1], acc[r], acc[r])
		VPADDD(t, acc[r], acc[r])
	}
	for r := 0; r < len(acc); r += 4 {
		VPUNPCKLQDQ(acc[r+2], acc[r], t)
		VPUNPCKHQDQ(acc[r+2], acc[r], acc[r])
		VPADDD(t, acc[r], acc[r])
	}
	if l.Bytes == 32 {
		VPERM2I128(U8(0x20), acc[4], acc[0], t)
		VPERM2I128(U8(0x31), acc[4], acc[0], acc[0])
		VPADDD(t, acc[0], acc[0])
		return acc[0]
	}
	sum := func(a, b reg.VecVirtual) {
		VSHUFI32X4(U8(0x88), b, a, t)
		VSHUFI32X4(U8(0xdd), b, a, a)
		VPADDD(t, a, a)
	}
	sum(acc[0], acc[4])
	sum(acc[8], acc[12])
	sum(acc[0], acc[8])
	return acc[0]
}

// envelope computes the intervals of a block for one context and stores them at index i, and at
// bytes after it.
func envelope(l emit.Level, d reg.VecVirtual, meta []reg.VecVirtual, i reg.GPVirtual, at int) {
	b := Load(Param("b"), GP64())
	c := l.Vec()
	Comment("Subtract the excess of the products over the products of the codes.")
	VPBROADCASTD(Mem{Base: b, Disp: layout.Bound.At("excess")}, c)
	VPSUBD(c, d, d)
	lo, up := interval(d, meta, func(field string) Op {
		VBROADCASTSS(Mem{Base: b, Disp: layout.Bound.At(field)}, c)
		return c
	})
	lower := Load(Param("lower"), GP64())
	upper := Load(Param("upper"), GP64())
	VMOVUPS(lo, Mem{Base: lower, Index: i, Scale: 4, Disp: at})
	VMOVUPS(up, Mem{Base: upper, Index: i, Scale: 4, Disp: at})
}

// interval computes the interval from the sums of products d, the rows'
// floats and the fields of the vector, in the order of kernels.interval and
// without fused multiply-adds.
func interval(d reg.VecVirtual, meta []reg.VecVirtual, of func(field string) Op) (lower, upper reg.VecVirtual) {
	a, bias, r, n := meta[0], meta[1], meta[2], meta[3]
	VCVTDQ2PS(d, d)
	VMULPS(of("scale"), a, a)
	VMULPS(d, a, a)
	VADDPS(bias, a, a)
	VMULPS(of("norm"), r, r)
	VMULPS(of("err"), n, n)
	VADDPS(n, r, r)
	VADDPS(of("slack"), r, r)
	VSUBPS(r, a, d)
	VADDPS(r, a, a)
	return d, a
}
