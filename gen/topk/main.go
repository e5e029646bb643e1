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
	atMost       = 2
	greaterEqual = 13
	greater      = 14
)

func main() {
	emit.Begin()
	for _, l := range emit.Levels {
		kthOfLanes(l)
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

// turn is the number of lanes that kthOfLanes compares in a turn of its loop: all of them would
// be 400 bytes of code, which queries often find in no cache.
const turn = 4

// kthOfLanes finds the k-th largest of sixteen partial maxima without a branch that depends on the
// scores: each lane counts the lanes above it, and the answer is the smallest lane with fewer than
// k lanes above it.
func kthOfLanes(l emit.Level) {
	l.Function("KthOfLanes", "func(lane *float32, scores *float32, n int, k int) float32",
		"stores the largest of the scores i, i+16, i+32, ... at lane[i], i < 16, and returns the k-th largest of the lanes, 1 <= k <= 16; n is a positive multiple of 16.")
	lane := Load(Param("lane"), GP64()).(reg.GPVirtual)
	p := Load(Param("scores"), GP64())
	n := Load(Param("n"), GP64())
	acc := l.Vecs(64 / l.Bytes)
	for v := range acc {
		VMOVUPS(Mem{Base: p, Disp: v * l.Bytes}, acc[v])
	}
	JMP(LabelRef("next"))
	Label("loop")
	for v := range acc {
		VMAXPS(Mem{Base: p, Disp: v * l.Bytes}, acc[v], acc[v])
	}
	Label("next")
	ADDQ(I32(64), p)
	SUBQ(I32(16), n)
	JNZ(LabelRef("loop"))
	for v := range acc {
		VMOVUPS(acc[v], Mem{Base: lane, Disp: v * l.Bytes})
	}

	above := l.Vecs(len(acc)) // lanes above, times -1
	emit.Zero(above...)
	x := l.Vec()
	left := GP64()
	MOVQ(I32(16/turn), left)
	Label("count")
	for i := range turn {
		VBROADCASTSS(Mem{Base: lane, Disp: 4 * i}, x)
		for v := range acc {
			countAbove(l, x, acc[v], above[v])
		}
	}
	ADDQ(I32(4*turn), lane)
	DECQ(left)
	JNZ(LabelRef("count"))
	k, limit := XMM(), l.Vec()
	n32 := Load(Param("k"), GP64()).(reg.GPVirtual)
	NEGQ(n32)
	VMOVD(n32.As32(), k)
	VPBROADCASTD(k, limit)
	inf := l.Vec()
	bits := GP32()
	MOVL(U32(0x7f800000), bits)
	low := XMM()
	VMOVD(bits, low)
	VPBROADCASTD(low, inf)
	Comment("-above > -k: fewer than k lanes are above.")
	for v := range acc {
		if l.Bytes == 64 {
			few := K()
			VPCMPGTD(limit, above[v], few)
			VBLENDMPS(acc[v], inf, few, acc[v])
		} else {
			VPCMPGTD(limit, above[v], above[v])
			VBLENDVPS(above[v], acc[v], inf, acc[v])
		}
	}
	Store(l.FoldFloats(acc, VMINPS, VMINSS), ReturnIndex(0))
	emit.End()
}

// countAbove subtracts 1 from each lane of above if x is greater than v.
func countAbove(l emit.Level, x, v, above reg.VecVirtual) {
	if l.Bytes == 64 {
		k := K()
		VCMPPS(U8(greater), v, x, k)
		mask := l.Vec()
		VPMOVM2D(k, mask)
		VPADDD(mask, above, above)
		return
	}
	mask := l.Vec()
	VCMPPS(U8(greater), v, x, mask)
	VPADDD(mask, above, above)
}

func nextAbove(l emit.Level) {
	lanes := l.Bytes / 4
	l.Function("NextAbove", "func(scores *float32, n int, threshold float32) int",
		"returns the first i < n with scores[i] > threshold, or n. It looks at whole vectors of 16 only; n is a multiple of 16.")
	p := Load(Param("scores"), GP64())
	n := Load(Param("n"), GP64()).(reg.GPVirtual)
	threshold := l.BroadcastParam("threshold")
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
	l.Function("SelectAtLeast", "func(dst *uint32, scores *float32, n int, threshold float32) int",
		"writes the i < n with scores[i] >= threshold to dst, ascending, and returns their number; n is a positive multiple of 16, and dst has room for n.")
	dst := Load(Param("dst"), GP64()).(reg.GPVirtual)
	p := Load(Param("scores"), GP64()).(reg.GPVirtual)
	n := Load(Param("n"), GP64()).(reg.GPVirtual)
	threshold := l.BroadcastParam("threshold")
	i, count := GP64(), GP64()
	XORQ(i, i)
	XORQ(count, count)
	var places, sixteen reg.VecVirtual
	if l.Bytes == 64 {
		places, sixteen = firstPlaces(l)
	}
	if l.Bytes == 64 {
		skipNone(l, dst, p, n, i, count, threshold, places, sixteen)
	}
	Label("loop")
	if l.Bytes == 64 {
		least := K()
		VCMPPS(U8(atMost), Mem{Base: p, Index: i, Scale: 4}, threshold, least)
		compress(l, dst, count, least, places, sixteen)
	} else {
		for _, first := range []int{0, 8} {
			selectOne(l, dst, p, i, count, threshold, first)
		}
	}
	ADDQ(I32(16), i)
	CMPQ(i, n)
	JLT(LabelRef("loop"))
	Label("end")
	Store(count, ReturnIndex(0))
	emit.End()
}

// compress writes the places of the selected scores of one vector, and goes to the next.
func compress(l emit.Level, dst, count reg.GPVirtual, least reg.Register, places, sixteen reg.VecVirtual) {
	Comment("The garbage written after the selected elements is within n. With a destination in memory VPCOMPRESSD is many times slower on some CPUs.")
	selected, bits := l.Vec(), GP32()
	VPCOMPRESSD_Z(places, least, selected)
	VMOVDQU32(selected, Mem{Base: dst, Index: count, Scale: 4})
	KMOVW(least, bits)
	POPCNTL(bits, bits)
	ADDQ(bits.As64(), count)
	VPADDD(sixteen, places, places)
}

// skipNone handles whole groups of 64 of many scores, most of which have none to select.
func skipNone(l emit.Level, dst, p, n, i, count reg.GPVirtual, threshold, places, sixteen reg.VecVirtual) {
	CMPQ(n, I32(manyScores))
	JLT(LabelRef("loop"))
	whole, group := GP64(), l.Vec()
	MOVQ(n, whole)
	ANDQ(I8(-64), whole)
	VPSLLD(U8(2), sixteen, group)
	Label("group")
	var least [4]reg.OpmaskVirtual
	for k := range least {
		least[k] = K()
		VCMPPS(U8(atMost), Mem{Base: p, Index: i, Scale: 4, Disp: 64 * k}, threshold, least[k])
	}
	some, others := K(), K()
	KORW(least[0], least[1], some)
	KORW(least[2], least[3], others)
	KORTESTW(some, others)
	JZ(LabelRef("none"))
	for _, k := range least {
		compress(l, dst, count, k, places, sixteen)
	}
	Label("next")
	ADDQ(I8(64), i)
	CMPQ(i, whole)
	JLT(LabelRef("group"))
	CMPQ(i, n)
	JEQ(LabelRef("end"))
	JMP(LabelRef("loop"))
	Label("none")
	VPADDD(group, places, places)
	JMP(LabelRef("next"))
}

// manyScores is the number of scores from which groups without a selected one are skipped. Of the
// few candidates of a screen most groups have one, and a branch on it would be foretold wrongly.
const manyScores = 1024

// firstPlaces returns the numbers 0 to 15, and 16 times the number 16, without a table in memory.
func firstPlaces(l emit.Level) (places, sixteen reg.VecVirtual) {
	places, sixteen = l.Vec(), l.Vec()
	bits, low := GP64(), XMM()
	MOVQ(U64(0x0706050403020100), bits)
	VMOVQ(bits, low)
	MOVQ(U64(0x0f0e0d0c0b0a0908), bits)
	VPINSRQ(U8(1), bits, low, low)
	VPMOVZXBD(low, places)
	MOVL(U32(16), bits.As32())
	VPBROADCASTD(bits.As32(), sixteen)
	return places, sixteen
}

// selectOne writes the places of the scores of one vector that are at least the threshold, one
// after the other.
func selectOne(l emit.Level, dst, p, i, count reg.GPVirtual, threshold reg.VecVirtual, first int) {
	bits := compare(l, greaterEqual, Mem{Base: p, Index: i, Scale: 4, Disp: 4 * first}, threshold)
	done, more := emit.Name("done", first), emit.Name("more", first)
	Comment("Few are selected: most vectors end here.")
	Label(more)
	TESTL(bits, bits)
	JZ(LabelRef(done))
	at := GP64()
	TZCNTL(bits, at.As32())
	LEAQ(Mem{Base: i, Index: at, Scale: 1, Disp: first}, at)
	MOVL(at.As32(), Mem{Base: dst, Index: count, Scale: 4})
	INCQ(count)
	BLSRL(bits, bits)
	JMP(LabelRef(more))
	Label(done)
}
