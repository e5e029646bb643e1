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

// selectRows writes the rows of listed panels whose scores reach a bound of the panel, and their scores.
// It has no branch that depends on the scores: of some heads half of the rows are selected.
func selectRows(l emit.Level) {
	l.Function("SelectRows", "func(rows *uint32, selected, scores *float32, list *uint32, least *float32, panels int) int",
		"writes the rows of listed panels whose scores are at least the element of least of the panel, panel after panel, and their scores to selected, and returns their number. panels is positive, and rows and selected have room for all rows of the list.")
	rows, selected := Load(Param("rows"), GP64()), Load(Param("selected"), GP64())
	scores, list := Load(Param("scores"), GP64()), Load(Param("list"), GP64())
	least, panels := Load(Param("least"), GP64()), Load(Param("panels"), GP64())
	lanes := l.Bytes / four
	count, panel, one := GP64(), GP64(), GP32()
	XORQ(count, count)
	first := l.Vec() // 0 to the number of lanes
	low := XMM()
	places := GP64()
	MOVQ(U64(0x0706050403020100), places)
	VMOVQ(places, low)
	if lanes == 16 {
		MOVQ(U64(0x0f0e0d0c0b0a0908), places)
		VPINSRQ(U8(1), places, low, low)
	}
	VPMOVZXBD(low, first)
	table := GP64()
	if lanes == 8 {
		LEAQ(packTable(), table)
	}
	bound, x, ids, next, mask := l.Vec(), l.Vec(), l.Vec(), l.Vec(), l.Vec()
	Label("panel")
	MOVL(Mem{Base: list}, panel.As32())
	SHLQ(U8(4), panel)
	VBROADCASTSS(Mem{Base: least}, bound)
	VMOVD(panel.As32(), low)
	VPBROADCASTD(low, ids)
	VPADDD(first, ids, ids)
	Comment("What is written after the selected rows is within the rows of the list so far.")
	for at := 0; at < 16; at += lanes {
		VMOVUPS(Mem{Base: scores, Index: panel, Scale: 4, Disp: four * at}, x)
		if lanes == 16 {
			k := K()
			VCMPPS(U8(greaterEqual), bound, x, k)
			VPCOMPRESSD_Z(ids, k, ids)
			VCOMPRESSPS_Z(x, k, x)
			VMOVDQU32(ids, Mem{Base: rows, Index: count, Scale: 4})
			KMOVW(k, one)
		} else {
			VCMPPS(U8(greaterEqual), bound, x, mask)
			VMOVMSKPS(mask, one)
			VPMOVZXBD(Mem{Base: table, Index: one.As64(), Scale: 8}, mask)
			VPERMD(ids, mask, next)
			VMOVDQU(next, Mem{Base: rows, Index: count, Scale: 4})
			VPERMPS(x, mask, x)
			if at == 0 {
				eight := GP32()
				MOVL(U32(8), eight)
				VMOVD(eight, low)
				VPBROADCASTD(low, mask)
				VPADDD(mask, ids, ids)
			}
		}
		VMOVUPS(x, Mem{Base: selected, Index: count, Scale: 4})
		POPCNTL(one, one)
		ADDQ(one.As64(), count)
	}
	ADDQ(I32(four), list)
	ADDQ(I32(four), least)
	DECQ(panels)
	JNZ(LabelRef("panel"))
	Store(count, ReturnIndex(0))
	emit.End()
}

// packTable has, for each set of eight lanes, the numbers of its lanes, a byte each.
func packTable() Mem {
	m := GLOBL("packed", RODATA|NOPTR)
	for set := range 256 {
		var lanes uint64
		for left, i := uint8(set), 0; left != 0; left, i = left&(left-1), i+8 {
			lanes |= uint64(bits.TrailingZeros8(left)) << i
		}
		DATA(8*set, U64(lanes))
	}
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
