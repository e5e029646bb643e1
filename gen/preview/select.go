package main

import (
	"math/bits"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/learning-to-screen/l2s/gen/internal/emit"
)

// greaterEqual is the predicate of VCMPPS that is false for NaN.
const greaterEqual = 13

// select2 writes the rows of listed panels that more codes leave near a mark. It has no branch that depends
// on the scores: of some heads half of the rows are near.
func select2(l emit.Level) {
	l.Function("Select2", "func(rows *uint32, selected, least, scores, far, next *float32, near, nearer, table *byte, list *uint32, panels, size, steps int, vector *int8, excess int32, mark float32) int",
		"scores the 16 rows of each listed panel of a table, S-excess+scores[panel] each, and writes those rows to rows, with their scores in selected, of which the score and far[panel]*near[row] are at least mark, panel after panel, and mark - next[panel]*nearer[row] to least. It returns their number. S is the sum of the products of a row's codes, sixteen times steps, with the codes of the vector. panels and steps are positive, steps at most 5, a panel has size bytes, and rows, selected and least have room for all rows of the list.")
	list, panels, count := Load(Param("list"), GP64()), Load(Param("panels"), GP64()), GP64()
	XORQ(count, count)
	mark := l.BroadcastParam("mark")
	add, pack := newSums2(l), newPacker(l)
	pack.number()
	p, next, panel := GP64(), GP64(), GP64()
	find := func(to reg.GPVirtual, place Mem) {
		MOVL(place, panel.As32())
		MOVQ(panel, to)
		IMULQ(Load(Param("size"), GP64()), to)
		ADDQ(Load(Param("table"), GP64()), to)
	}
	row := func(name string) Mem { // of the panel
		return Mem{Base: Load(Param(name), GP64()), Index: panel, Scale: 1}
	}
	Label("panel")
	Comment("The panel some places ahead, or the last one, is prefetched.")
	ahead := GP64()
	MOVQ(I32(lookAhead), ahead)
	CMPQ(panels, ahead)
	JGT(LabelRef("ahead"))
	MOVQ(panels, ahead)
	DECQ(ahead)
	Label("ahead")
	find(next, Mem{Base: list, Index: ahead, Scale: four})
	SHLQ(U8(4), panel)
	PREFETCHT0(row("near"))
	PREFETCHT0(row("nearer"))
	find(p, Mem{Base: list})
	add.panel(p, next)
	far, further, score := l.Vec(), l.Vec(), l.Vec()
	for i, name := range []string{"far", "next", "scores"} {
		of := row(name)
		of.Scale = four
		VBROADCASTSS(of, []reg.VecVirtual{far, further, score}[i])
	}
	SHLQ(U8(4), panel)
	near, nearer := row("near"), row("nearer")
	lanes := l.Bytes / four
	pack.first(panel)
	for part, x := range add.sum {
		d := l.Vec()
		VADDPS(score, x, x)
		VPMOVZXBD(near.Offset(lanes*part), d)
		VCVTDQ2PS(d, d)
		VMULPS(far, d, d)
		VADDPS(d, x, d)
		pack.choose(d, mark)
		VPMOVZXBD(nearer.Offset(lanes*part), d)
		VCVTDQ2PS(d, d)
		VMULPS(further, d, d)
		VSUBPS(d, mark, d)
		pack.store(count, "rows", pack.ids)
		pack.store(count, "selected", x)
		pack.store(count, "least", d)
		pack.count(count)
		if part < len(add.sum)-1 {
			pack.next()
		}
	}
	ADDQ(I32(four), list)
	DECQ(panels)
	JNZ(LabelRef("panel"))
	Store(count, ReturnIndex(0))
	emit.End()
}

// keepRows keeps the rows with scores that are at least theirs, in place.
func keepRows(l emit.Level) {
	l.Function("KeepRows", "func(rows *uint32, scores, least *float32, n int) int",
		"writes those of the first n rows whose scores are at least their elements of least to the start of rows, and their scores to the start of scores, and returns their number. n is a positive multiple of 16.")
	rows, scores, least := Load(Param("rows"), GP64()), Load(Param("scores"), GP64()), Load(Param("least"), GP64())
	n, i, count := Load(Param("n"), GP64()), GP64(), GP64()
	XORQ(i, i)
	XORQ(count, count)
	pack := newPacker(l)
	x, bound := l.Vec(), l.Vec()
	Label("loop")
	Comment("What is written after the kept rows has been read.")
	VMOVUPS(Mem{Base: scores, Index: i, Scale: four}, x)
	VMOVUPS(Mem{Base: least, Index: i, Scale: four}, bound)
	VMOVUPS(Mem{Base: rows, Index: i, Scale: four}, pack.ids)
	pack.choose(x, bound)
	pack.store(count, "rows", pack.ids)
	pack.store(count, "scores", x)
	pack.count(count)
	ADDQ(I32(l.Bytes/four), i)
	CMPQ(i, n)
	JLT(LabelRef("loop"))
	Store(count, ReturnIndex(0))
	emit.End()
}

// packer moves chosen lanes of registers to the front.
type packer struct {
	l     emit.Level
	ids   reg.VecVirtual // rows
	lanes reg.VecVirtual // 0 to the number of lanes
	to    reg.VecVirtual // AVX2: where a lane comes from
	mask  reg.VecVirtual // AVX2
	out   reg.VecVirtual
	table reg.GPVirtual // AVX2
	few   reg.GPVirtual // a bit for each chosen lane
	k     reg.OpmaskVirtual
}

func newPacker(l emit.Level) *packer {
	p := &packer{l: l, ids: l.Vec(), out: l.Vec(), few: GP64()}
	if l.Bytes == 64 {
		p.k = K()
		return p
	}
	p.to, p.mask, p.table = l.Vec(), l.Vec(), GP64()
	LEAQ(packTable(), p.table)
	return p
}

// first leaves the numbers of the rows of lanes from row on in ids.
func (p *packer) first(row reg.GPVirtual) {
	low := XMM()
	VMOVD(row.As32(), low)
	VPBROADCASTD(low, p.ids)
	VPADDD(p.lanes, p.ids, p.ids)
}

// number readies p for first.
func (p *packer) number() {
	low, places := XMM(), GP64()
	p.lanes = p.l.Vec()
	MOVQ(U64(0x0706050403020100), places)
	VMOVQ(places, low)
	if p.l.Bytes == 64 {
		MOVQ(U64(0x0f0e0d0c0b0a0908), places)
		VPINSRQ(U8(1), places, low, low)
	}
	VPMOVZXBD(low, p.lanes)
}

// next adds the number of lanes to ids.
func (p *packer) next() {
	lanes, low := GP32(), XMM()
	MOVL(U32(p.l.Bytes/four), lanes)
	VMOVD(lanes, low)
	VPBROADCASTD(low, p.out)
	VPADDD(p.out, p.ids, p.ids)
}

// choose chooses the lanes in which x is at least bound.
func (p *packer) choose(x, bound reg.VecVirtual) {
	if p.l.Bytes == 64 {
		VCMPPS(U8(greaterEqual), bound, x, p.k)
		KMOVW(p.k, p.few.As32())
		return
	}
	VCMPPS(U8(greaterEqual), bound, x, p.mask)
	VMOVMSKPS(p.mask, p.few.As32())
	VPMOVZXBD(Mem{Base: p.table, Index: p.few, Scale: 8}, p.to)
}

// store writes the chosen lanes of x, and further ones, behind as many elements of a list as count tells.
func (p *packer) store(count reg.Register, list string, x reg.VecVirtual) {
	to := Mem{Base: Load(Param(list), GP64()), Index: count, Scale: four}
	if p.l.Bytes == 64 {
		VPCOMPRESSD_Z(x, p.k, p.out)
		VMOVDQU32(p.out, to)
		return
	}
	VPERMD(x, p.to, p.out)
	VMOVDQU(p.out, to)
}

// count adds the number of the chosen lanes to count.
func (p *packer) count(count reg.Register) {
	POPCNTL(p.few.As32(), p.few.As32())
	ADDQ(p.few, count)
}

// packed is the table of packTable, which has one place.
var packed *Mem

// packTable has, for each set of eight lanes, the numbers of its lanes, a byte each.
func packTable() Mem {
	if packed != nil {
		return *packed
	}
	m := GLOBL("packed", RODATA|NOPTR)
	for set := range 256 {
		var lanes uint64
		for left, i := uint8(set), 0; left != 0; left, i = left&(left-1), i+8 {
			lanes |= uint64(bits.TrailingZeros8(left)) << i
		}
		DATA(8*set, U64(lanes))
	}
	packed = &m
	return m
}

// addReach adds to scores of panels how far their labels may be from them: what codes leave of any label,
// or of one that leads.
func addReach(l emit.Level) {
	l.Function("AddReach", "func(dst, gauge, share, level *float32, n int, reach, margin, mark, steps float32)",
		"adds max(reach*gauge[i], share[i]*(mark-level[i])*steps + margin*gauge[i]) to dst[i], i < n, in float32 in this order. n is a positive multiple of 16.")
	dst := Load(Param("dst"), GP64())
	gauge, share, level := Load(Param("gauge"), GP64()), Load(Param("share"), GP64()), Load(Param("level"), GP64())
	n := Load(Param("n"), GP64())
	reach, margin := l.BroadcastParam("reach"), l.BroadcastParam("margin")
	mark, steps := l.BroadcastParam("mark"), l.BroadcastParam("steps")
	i := GP64()
	XORQ(i, i)
	g, far, rise := l.Vec(), l.Vec(), l.Vec()
	at := func(base reg.Register, k int) Mem {
		return Mem{Base: base, Index: i, Scale: 4, Disp: k * l.Bytes}
	}
	Label("loop")
	for k := range line / l.Bytes {
		VMOVUPS(at(gauge, k), g)
		VSUBPS(at(level, k), mark, rise)
		VMULPS(at(share, k), rise, rise)
		VMULPS(steps, rise, rise)
		VMULPS(reach, g, far)
		VMULPS(margin, g, g)
		VADDPS(g, rise, rise)
		VMAXPS(far, rise, far)
		VADDPS(at(dst, k), far, far)
		VMOVUPS(far, at(dst, k))
	}
	ADDQ(I32(16), i)
	CMPQ(i, n)
	JLT(LabelRef("loop"))
	emit.End()
}
