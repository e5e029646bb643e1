// Command preview generates the scores of panels of codes of 7 bits, and of 2 bits, and of rows of these,
// and what a search of panels selects by them.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/learning-to-screen/l2s/gen/internal/emit"
)

// A panel has 16 rows. A step of a panel is a cache line: four neighbouring codes of 7 bits of each
// row, or sixteen of 2 bits, with the first four in the lowest quarters. A row of a table of lines is
// a line: 256 codes of 2 bits, with the first 64 in the lowest quarters.
const (
	line     = 64
	turn     = 2 // steps whose sums do not wait for each other (AVX-512)
	four     = 4 // bytes of a vector that a lane multiplies at once
	quarters = 4 // of a byte
	// Places of lists are far from each other, so their memory is asked for that many places ahead, into the
	// second cache: the first one waits for few lines at a time, and a list would wait for these.
	lookAhead = 16 // panels
	rowsAhead = 96
)

func main() {
	emit.Begin()
	for _, l := range emit.Levels {
		scores7(l)
		scores2(l)
		select2(l)
		lines2(l)
		keepRows(l)
		addReach(l)
	}
	Generate()
}

// broadcastInt returns a register with an int32 parameter in every lane.
func broadcastInt(l emit.Level, name string) reg.VecVirtual {
	x, v := XMM(), l.Vec()
	VMOVD(Load(Param(name), GP32()), x)
	VPBROADCASTD(x, v)
	return v
}

// bytes returns a register with the same byte in every place, or the same pair.
func bytes(l emit.Level, pattern uint32) reg.VecVirtual {
	bits, x, v := GP32(), XMM(), l.Vec()
	MOVL(U32(pattern), bits)
	VMOVD(bits, x)
	VPBROADCASTD(x, v)
	return v
}

// scores7 multiplies codes of 7 bits by a vector of two planes: 128 times the first, and the
// second.
func scores7(l emit.Level) {
	l.Function("Scores7", "func(dst *float32, data *byte, panels, steps int, high, low *int8, excessHigh, excessLow int32, scale float32)",
		"computes scale*(128*(H-excessHigh) + L-excessLow) for the 16 rows of each panel, H and L being the sums of the products of its codes, four times steps, with the codes of high and low. panels and steps are positive.")
	dst, p := Load(Param("dst"), GP64()), Load(Param("data"), GP64()).(reg.GPVirtual)
	panels := Load(Param("panels"), GP64())
	scale := l.BroadcastParam("scale")
	excess := []reg.VecVirtual{broadcastInt(l, "excessHigh"), broadcastInt(l, "excessLow")}
	factor := bytes(l, 0x43000000) // 128 in float32
	parts := line / l.Bytes
	sets := turn
	if l.Bytes == 32 {
		sets = 1 // of more registers than there are
	}
	acc := [2][]reg.VecVirtual{l.Vecs(parts * sets), l.Vecs(parts * sets)} // of the planes
	w := l.Vec()
	var one, t reg.VecVirtual
	if l.Bytes == 32 {
		one, t = bytes(l, 0x00010001), l.Vec()
	}
	Label("panel")
	for _, a := range acc {
		emit.Zero(a...)
	}
	steps := Load(Param("steps"), GP64())
	h := [2]reg.Register{Load(Param("high"), GP64()), Load(Param("low"), GP64())}
	q := l.Vecs(2)
	add := func(i int) {
		if l.Bytes == 64 {
			VMOVDQU64(Mem{Base: p, Disp: line * i}, w)
			for plane, a := range acc {
				VPDPBUSD_BCST(Mem{Base: h[plane], Disp: four * i}, w, a[i%sets])
			}
			return
		}
		for plane := range acc {
			VPBROADCASTD(Mem{Base: h[plane], Disp: four * i}, q[plane])
		}
		for part := range parts {
			VMOVDQU(Mem{Base: p, Disp: line*i + l.Bytes*part}, w)
			for plane, a := range acc {
				Comment("Sums of two products are at most 2*127*128 < 2^15 in magnitude.")
				VPMADDUBSW(q[plane], w, t)
				VPMADDWD(one, t, t)
				VPADDD(t, a[part], a[part])
			}
		}
	}
	advance := func(n int) {
		ADDQ(I32(line*n), p)
		for _, r := range h {
			ADDQ(I32(four*n), r)
		}
	}
	SUBQ(I32(turn), steps)
	JLT(LabelRef("rest"))
	Label("steps")
	for i := range turn {
		add(i)
	}
	advance(turn)
	SUBQ(I32(turn), steps)
	JGE(LabelRef("steps"))
	Label("rest")
	ADDQ(I32(turn), steps)
	JZ(LabelRef("sums"))
	Comment("Fewer steps than a turn has are left.")
	Label("step")
	add(0)
	advance(1)
	DECQ(steps)
	JNZ(LabelRef("step"))
	Label("sums")
	for part := range parts {
		x, y := acc[0][part], acc[1][part]
		for set := 1; set < sets; set++ {
			VPADDD(acc[0][parts*set+part], x, x)
			VPADDD(acc[1][parts*set+part], y, y)
		}
		VPSUBD(excess[0], x, x)
		VPSUBD(excess[1], y, y)
		VCVTDQ2PS(x, x)
		VCVTDQ2PS(y, y)
		VMULPS(factor, x, x)
		VADDPS(y, x, x)
		VMULPS(scale, x, x)
		VMOVUPS(x, Mem{Base: dst, Disp: l.Bytes * part})
	}
	ADDQ(I32(line), dst)
	DECQ(panels)
	JNZ(LabelRef("panel"))
	emit.End()
}

// scores2 multiplies codes of 2 bits by a vector, for panels that follow each other.
func scores2(l emit.Level) {
	l.Function("Scores2", "func(dst *float32, table *byte, panels, steps int, vector *int8, excess int32)",
		"writes S-excess to dst for the 16 rows of each panel. S is the sum of the products of a row's codes, sixteen times steps, with the codes of the vector. panels and steps are positive, steps at most 5.")
	dst, panels := Load(Param("dst"), GP64()), Load(Param("panels"), GP64())
	p := Load(Param("table"), GP64()).(reg.GPVirtual)
	add := newSums2(l)
	Label("panel")
	add.panel(p, nil)
	for part, x := range add.sum {
		VMOVUPS(x, Mem{Base: dst, Disp: l.Bytes * part})
	}
	ADDQ(I32(line), dst)
	DECQ(panels)
	JNZ(LabelRef("panel"))
	emit.End()
}

// sums2 is what the sums of the products of codes of 2 bits of a panel take.
type sums2 struct {
	l      emit.Level
	sum    []reg.VecVirtual // of a panel, then its scores
	half   []reg.VecVirtual // AVX2: sums of the second and the last quarters, times 4
	times  []reg.VecVirtual // AVX-512: sums of codes where they are in a byte, times 1, 4, 16 and 64
	masks  []reg.VecVirtual
	one    reg.VecVirtual // AVX2
	excess reg.VecVirtual
}

func newSums2(l emit.Level) *sums2 {
	parts := line / l.Bytes
	s := &sums2{l: l, sum: l.Vecs(parts), masks: []reg.VecVirtual{bytes(l, 0x03030303), bytes(l, 0x0c0c0c0c)}, excess: broadcastInt(l, "excess")}
	if l.Bytes == 32 {
		s.half, s.one = l.Vecs(parts), bytes(l, 0x00010001)
		return s
	}
	s.times = append(s.sum, l.Vecs(quarters-1)...)
	s.masks = append(s.masks, bytes(l, 0x30303030), bytes(l, 0xc0c0c0c0))
	return s
}

// panel leaves the scores of the panel at p in s.sum, and moves p behind it. It asks for the memory at
// next, which moves on as p does, unless that is nil.
func (s *sums2) panel(p, next reg.GPVirtual) {
	const shift = 2
	emit.Zero(s.sum...)
	if s.half != nil {
		emit.Zero(s.half...)
	} else {
		emit.Zero(s.times[1:]...)
	}
	h, steps := Load(Param("vector"), GP64()), Load(Param("steps"), GP64())
	Label("steps")
	Comment("Sums of four products a step, of five steps, with up to 4*3 are at most 20*12*128 in magnitude.")
	if next != nil {
		PREFETCHT1(Mem{Base: next})
		ADDQ(I32(line), next)
	}
	if s.l.Bytes == 64 {
		w, t := s.l.Vec(), s.l.Vec()
		VMOVDQU64(Mem{Base: p}, w)
		for i, mask := range s.masks {
			VPANDD(mask, w, t)
			VPDPBUSD_BCST(Mem{Base: h, Disp: four * i}, t, s.times[i])
		}
	} else {
		v, w, t := s.l.Vecs(quarters), s.l.Vec(), s.l.Vec()
		for i := range v {
			VPBROADCASTD(Mem{Base: h, Disp: four * i}, v[i])
		}
		for part := range s.sum {
			VMOVDQU(Mem{Base: p, Disp: s.l.Bytes * part}, w)
			quarterSums(v, w, t, s.sum[part], s.half[part], s.masks)
		}
	}
	ADDQ(I32(line), p)
	ADDQ(I32(quarters*four), h)
	DECQ(steps)
	JNZ(LabelRef("steps"))
	for part, x := range s.sum {
		if s.l.Bytes == 64 {
			for i, a := range s.times[1:] {
				VPSRAD(U8(shift*(i+1)), a, a)
				VPADDD(a, x, x)
			}
		} else {
			VPSRAW(U8(shift), s.half[part], s.half[part])
			VPADDW(s.half[part], x, x)
			VPMADDWD(s.one, x, x)
		}
		VPSUBD(s.excess, x, x)
		VCVTDQ2PS(x, x)
	}
}

// quarterSums adds the products of the quarters of the bytes of w with the vectors v, in pairs of bytes:
// of the first and the third to sum, and of the others, times 4, to half. It uses t.
func quarterSums(v []reg.VecVirtual, w, t, sum, half reg.VecVirtual, masks []reg.VecVirtual) {
	for i := range v {
		if i == 2 {
			VPSRLW(U8(4), w, w)
		}
		VPAND(masks[i%2], w, t)
		VPMADDUBSW(v[i], t, t)
		to := []reg.VecVirtual{sum, half}[i%2]
		VPADDW(t, to, to)
	}
}

// lines2 adds the products of 256 codes of 2 bits with a vector to scores, for listed rows of a line
// each.
func lines2(l emit.Level) {
	l.Function("Lines2", "func(dst *float32, table *byte, list *uint32, rows int, vector *int8, excess int32)",
		"adds S-excess to the element of dst of each listed row of a table. S is the sum of the products of the row's 256 codes with the codes of the vector. rows is positive, and a row has 64 bytes.")
	dst, table := Load(Param("dst"), GP64()), Load(Param("table"), GP64())
	list, rows := Load(Param("list"), GP64()), Load(Param("rows"), GP64())
	h, parts := Load(Param("vector"), GP64()), line/l.Bytes
	v := make([][]reg.VecVirtual, parts) // of each part, of its quarters
	for part := range v {
		v[part] = l.Vecs(quarters)
		for i, x := range v[part] {
			from := Mem{Base: h, Disp: line*i + l.Bytes*part}
			if l.Bytes == 64 {
				VMOVDQU64(from, x)
			} else {
				VMOVDQU(from, x)
			}
		}
	}
	masks, excess := []reg.VecVirtual{bytes(l, 0x03030303), bytes(l, 0x0c0c0c0c)}, GP32()
	Load(Param("excess"), excess)
	var one reg.VecVirtual
	if l.Bytes == 32 {
		one = bytes(l, 0x00010001)
	}
	row := GP64()
	find := func(place Mem) {
		MOVL(place, row.As32())
		SHLQ(U8(6), row)
	}
	// ask asks for n rows some places ahead, or for the last ones.
	ask := func(n int) {
		Comment("The rows some places ahead, or the last ones, are prefetched.")
		ahead, label := GP64(), emit.Name("ahead", n)
		MOVQ(rows, ahead)
		SUBQ(I32(n), ahead)
		CMPQ(ahead, I32(rowsAhead))
		JLE(LabelRef(label))
		MOVQ(I32(rowsAhead), ahead)
		Label(label)
		for k := range n {
			find(Mem{Base: list, Index: ahead, Scale: 4, Disp: four * k})
			PREFETCHT1(Mem{Base: table, Index: row, Scale: 1})
		}
	}
	// products leaves the sums of the products of the row in the lanes of sum.
	products := func(sum reg.VecVirtual) {
		w, t := l.Vec(), l.Vec()
		VMOVDQU64(Mem{Base: table, Index: row, Scale: 1}, w)
		for i := range quarters {
			if i > 0 {
				VPSRLW(U8(2), w, w)
			}
			VPANDD(masks[0], w, t)
			VPDPBUSD(v[0][i], t, sum)
		}
	}
	if l.Bytes == 64 {
		taken := XMM()
		VMOVD(excess.As32(), taken)
		VPBROADCASTD(taken, taken)
		Label("rows")
		CMPQ(rows, I32(four))
		JL(LabelRef("rest"))
		ask(four)
		sums := l.Vecs(four)
		emit.Zero(sums...)
		for k, sum := range sums {
			find(Mem{Base: list, Disp: four * k})
			products(sum)
		}
		x := sumsOfFour(sums)
		VPSUBD(taken, x, x)
		VCVTDQ2PS(x, x)
		VADDPS(Mem{Base: dst}, x, x)
		VMOVUPS(x, Mem{Base: dst})
		ADDQ(I32(four*four), dst)
		ADDQ(I32(four*four), list)
		SUBQ(I32(four), rows)
		JMP(LabelRef("rows"))
		Label("rest")
		TESTQ(rows, rows)
		JZ(LabelRef("end"))
	}
	Label("row")
	ask(1)
	find(Mem{Base: list})
	sum := l.Vec()
	emit.Zero(sum)
	if l.Bytes == 64 {
		products(sum)
	} else {
		w, t := l.Vec(), l.Vec()
		half := l.Vec() // sums of the second and the last quarters, times 4
		emit.Zero(half)
		for part := range parts {
			VMOVDQU(Mem{Base: table, Index: row, Scale: 1, Disp: l.Bytes * part}, w)
			quarterSums(v[part], w, t, sum, half, masks)
		}
		Comment("Sums of eight products with up to 4*3 are at most 8*12*128 in magnitude.")
		VPSRAW(U8(2), half, half)
		VPADDW(half, sum, sum)
		VPMADDWD(one, sum, sum)
	}
	total := l.SumInts(sum)
	SUBL(excess, total)
	score := XMM()
	VXORPS(score, score, score)
	VCVTSI2SSL(total, score, score)
	VADDSS(Mem{Base: dst}, score, score)
	VMOVSS(score, Mem{Base: dst})
	ADDQ(I32(four), dst)
	ADDQ(I32(four), list)
	DECQ(rows)
	JNZ(LabelRef("row"))
	Label("end")
	emit.End()
}

// sumsOfFour returns the sums of the int32 lanes of four registers of AVX-512 in a register.
func sumsOfFour(v []reg.VecVirtual) reg.VecVirtual {
	t := emit.AVX512.Vec()
	for r := 0; r < four; r += 2 {
		VPUNPCKLDQ(v[r+1], v[r], t)
		VPUNPCKHDQ(v[r+1], v[r], v[r])
		VPADDD(t, v[r], v[r])
	}
	VPUNPCKLQDQ(v[2], v[0], t)
	VPUNPCKHQDQ(v[2], v[0], v[0])
	VPADDD(t, v[0], v[0])
	y, x := YMM(), XMM()
	VEXTRACTI64X4(U8(1), v[0], y)
	VPADDD(v[0].AsY(), y, y)
	VEXTRACTI128(U8(1), y, x)
	VPADDD(y.AsX(), x, x)
	return x
}
