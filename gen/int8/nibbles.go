package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/learning-to-screen/l2s/gen/internal/emit"
	"github.com/learning-to-screen/l2s/gen/internal/layout"
)

// nibbleBounds generates the scan of 4-bit codes. A byte of a record holds the
// code of element j in its low half and the code of element half+j in its high
// half, each plus 8; the vector's codes come in the same two halves.
func nibbleBounds(l emit.Level, stream bool) {
	l.Function("Int4Bounds"+streamed(stream), "func(lower, upper *float32, data *byte, stride int, n int, b *byte)",
		fmt.Sprintf("computes the intervals of n rows of 4-bit codes. n is at least the lanes of a vector, stride a multiple of 64, or 16 more. b is a %s.", layout.Bound))
	scanBlocks(l, false, stream, newNibbles(l))
}

// nibbles multiplies 4-bit codes by the codes of a vector.
type nibbles struct {
	l         emit.Level
	low, high reg.VecVirtual // the vector's codes
	w, t      reg.VecVirtual // scratch
	mask, one reg.VecVirtual
}

func newNibbles(l emit.Level) nibbles {
	n := nibbles{l: l, low: l.Vec(), high: l.Vec(), w: l.Vec(), t: l.Vec(), mask: l.Vec()}
	broadcast := func(bits uint32, v reg.VecVirtual) {
		r, x := GP32(), XMM()
		MOVL(U32(bits), r)
		VMOVD(r, x)
		VPBROADCASTD(x, v)
	}
	broadcast(0x0f0f0f0f, n.mask)
	if l.Bytes == 32 {
		n.one = l.Vec()
		broadcast(0x00010001, n.one)
	}
	return n
}

func (n nibbles) vectorAt(b, stride reg.Register) []reg.GPVirtual {
	return []reg.GPVirtual{behind(b, stride, "codes"), behind(b, stride, "high")}
}

func (n nibbles) set(h []reg.GPVirtual, off reg.GPVirtual, at int) {
	VMOVUPS(emit.Ptr(h[0], off, at), n.low)
	VMOVUPS(emit.Ptr(h[1], off, at), n.high)
}

func (n nibbles) add(m Mem, acc ...reg.VecVirtual) {
	if n.l.Bytes == 64 {
		VMOVDQU64(m, n.w)
		VPANDD(n.mask, n.w, n.t)
		VPDPBUSD(n.low, n.t, acc[0])
		VPSRLW(U8(4), n.w, n.w)
		VPANDD(n.mask, n.w, n.w)
		VPDPBUSD(n.high, n.w, acc[0])
		return
	}
	Comment("Sums of four products are at most 4*15*127 < 2^15.")
	VMOVDQU(m, n.w)
	VPAND(n.mask, n.w, n.t)
	VPMADDUBSW(n.low, n.t, n.t)
	VPSRLW(U8(4), n.w, n.w)
	VPAND(n.mask, n.w, n.w)
	VPMADDUBSW(n.high, n.w, n.w)
	VPADDW(n.t, n.w, n.w)
	VPMADDWD(n.one, n.w, n.w)
	VPADDD(n.w, acc[0], acc[0])
}
