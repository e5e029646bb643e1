// Command topk generates the passes over scores that top-k selection is
// made of.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/learning-to-screen/l2s/gen/internal/emit"
)

// Predicates of VCMPPS, false for NaN.
const (
	greaterEqual = 13
	greater      = 14
)

func main() {
	emit.Begin()
	for _, l := range emit.Levels {
		nextAbove(l)
		selectAtLeast(l)
	}
	Generate()
}

// compare leaves the lanes of the vector at m that satisfy the predicate
// against the threshold as bits in a general register.
func compare(l emit.Level, predicate int, m Mem, threshold reg.VecVirtual) reg.GPVirtual {
	bits := GP32()
	v := l.Vec()
	VMOVUPS(m, v)
	if l.Bytes == 64 {
		k := K()
		VCMPPS(U8(predicate), threshold, v, k)
		KMOVW(k, bits)
	} else {
		VCMPPS(U8(predicate), threshold, v, v)
		VMOVMSKPS(v, bits)
	}
	return bits
}

func nextAbove(l emit.Level) {
	lanes := l.Bytes / 4
	l.Function("NextAbove", "func(scores *float32, n int, threshold float32) int",
		"returns the first i < n with scores[i] > threshold, or n. It looks at whole vectors of 16 only; n is a multiple of 16.")
	p := Load(Param("scores"), GP64())
	n := Load(Param("n"), GP64()).(reg.GPVirtual)
	threshold := l.Vec()
	a, err := Param("threshold").Resolve()
	if err != nil {
		panic(err)
	}
	VBROADCASTSS(a.Addr, threshold)
	i := GP64()
	XORQ(i, i)
	Label("loop")
	CMPQ(i, n)
	JGE(LabelRef("none"))
	for k := 0; k < 16/lanes; k++ {
		bits := compare(l, greater, Mem{Base: p, Index: i, Scale: 4, Disp: k * l.Bytes}, threshold)
		TESTL(bits, bits)
		JZ(LabelRef(emit.Name("next", k)))
		TZCNTL(bits, bits)
		LEAQ(Mem{Base: i, Index: bits.As64(), Scale: 1, Disp: k * lanes}, i)
		Store(i, ReturnIndex(0))
		emit.End()
		Label(emit.Name("next", k))
	}
	ADDQ(I32(16), i)
	JMP(LabelRef("loop"))
	Label("none")
	Store(n, ReturnIndex(0))
	emit.End()
}

func selectAtLeast(l emit.Level) {
	lanes := l.Bytes / 4
	l.Function("SelectAtLeast", "func(dst *uint32, scores *float32, n int, threshold float32) int",
		"writes the i < n with scores[i] >= threshold to dst, ascending, and returns their number; n is a positive multiple of 16, and dst has room for n.")
	dst := Load(Param("dst"), GP64())
	p := Load(Param("scores"), GP64())
	n := Load(Param("n"), GP64())
	threshold := l.Vec()
	a, err := Param("threshold").Resolve()
	if err != nil {
		panic(err)
	}
	VBROADCASTSS(a.Addr, threshold)
	i, count := GP64(), GP64()
	XORQ(i, i)
	XORQ(count, count)
	Label("loop")
	for k := 0; k < 16/lanes; k++ {
		bits := compare(l, greaterEqual, Mem{Base: p, Index: i, Scale: 4, Disp: k * l.Bytes}, threshold)
		done := emit.Name("done", k)
		Comment("Few are selected: most vectors end here.")
		Label(emit.Name("more", k))
		TESTL(bits, bits)
		JZ(LabelRef(done))
		at := GP64()
		TZCNTL(bits, at.As32())
		LEAQ(Mem{Base: i, Index: at, Scale: 1, Disp: k * lanes}, at)
		MOVL(at.As32(), Mem{Base: dst, Index: count, Scale: 4})
		INCQ(count)
		BLSRL(bits, bits)
		JMP(LabelRef(emit.Name("more", k)))
		Label(done)
	}
	ADDQ(I32(16), i)
	CMPQ(i, n)
	JLT(LabelRef("loop"))
	Store(count, ReturnIndex(0))
	emit.End()
}
