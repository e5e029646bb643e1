package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/learning-to-screen/l2s/gen/internal/emit"
	"github.com/learning-to-screen/l2s/gen/internal/layout"
)

// A panel has the codes of its rows in steps of a cache line, four codes of each row
// side by side, each plus 128 in a byte. After them come the scales of all rows, their biases,
// errors and norms, a line each:
//
//	step 0: row 0, codes 0 to 3 | row 1, codes 0 to 3 | ... | row 15, codes 0 to 3
//	step 1: row 0, codes 4 to 7 | row 1, codes 4 to 7 | ... | row 15, codes 4 to 7
//	...
//	scale of row 0 | scale of row 1 | ... | scale of row 15
//	bias ...
//	error ...
//	norm ...
//
// Narrow panels have codes of 4 bits: a step holds eight codes of each row, four in the low halves
// of its bytes, the next four in the high halves, each plus 8.
const (
	panelRows = chunk / 4 // kernels.PanelRows
	stepCodes = 4
	floats    = 4
)

// streams is the number of panels that a turn of the scan reads side by side, far apart: the
// CPU reads ahead in each of them, so memory is asked for more at a time, and the codes of
// the vector are fetched once for both.
const streams = 2

// panelBounds generates the scan of panels. A lane has the sum of one row from the first step on,
// so that no sum goes across lanes. The first half of the panels is one stream, the second half the
// other; the last of an odd number is processed alone.
func panelBounds(l emit.Level, narrow bool) {
	name, codes := "Int8PanelBounds", stepCodes
	if narrow {
		name, codes = "Int4PanelBounds", 2*stepCodes
	}
	l.Function(name, "func(lower, upper *float32, data *byte, panels, steps int, b *byte)",
		fmt.Sprintf("computes the intervals of the %d rows of each panel, of %d codes times steps. panels and steps are positive. b is a %s.", panelRows, codes, layout.Bound))
	s := newPanelScan(l, narrow)
	pairs := GP64()

	Comment("The second stream is far bytes after the first, farRows rows.")
	MOVQ(s.panels, pairs)
	SHRQ(Imm(1), pairs)
	LEAQ(Mem{Base: s.steps, Disp: floats}, s.far)
	IMUL3Q(I32(chunk), s.far, s.far)
	IMULQ(pairs, s.far)
	IMUL3Q(I32(panelRows), pairs, s.farRows)
	TESTQ(pairs, pairs)
	JZ(LabelRef("alone"))
	Label("pair")
	s.scan("pair", streams)
	DECQ(pairs)
	JNZ(LabelRef("pair"))
	ADDQ(s.far, s.p)
	ADDQ(s.farRows, s.i)
	TESTQ(U32(1), s.panels)
	JZ(LabelRef("done"))
	Label("alone")
	s.scan("alone", 1)
	Label("done")
	emit.End()
}

// panelScan has the registers of the scan of panels.
type panelScan struct {
	step
	panels, steps reg.GPVirtual
	p, i          reg.GPVirtual // the first stream: its next panel, and that panel's first row
	far, farRows  reg.GPVirtual // the distance of the second stream, in bytes and in rows
}

func newPanelScan(l emit.Level, narrow bool) panelScan {
	s := panelScan{
		p:      Load(Param("data"), GP64()).(reg.GPVirtual),
		panels: Load(Param("panels"), GP64()).(reg.GPVirtual),
		steps:  Load(Param("steps"), GP64()).(reg.GPVirtual),
		i:      GP64(), far: GP64(), farRows: GP64(),
		step: newStep(l, narrow),
	}
	XORQ(s.i, s.i)
	return s
}

// scan computes the intervals of the next panel of each of n streams.
func (s panelScan) scan(label string, n int) {
	left := GP64()
	h := Load(Param("b"), GP64()).(reg.GPVirtual)
	MOVQ(Mem{Base: h, Disp: layout.Bound.At("codes")}, h)
	for stream := range n {
		emit.Zero(s.acc[stream]...)
		emit.Zero(s.high[stream]...)
	}
	MOVQ(s.steps, left)
	SUBQ(I32(s.unroll), left)
	JLT(LabelRef(label + "_rest"))
	Label(label + "_steps")
	for i := range s.unroll {
		s.add(s.p, s.far, h, i, n)
	}
	ADDQ(I32(chunk*s.unroll), s.p)
	ADDQ(I32(s.codes*s.unroll), h)
	SUBQ(I32(s.unroll), left)
	JGE(LabelRef(label + "_steps"))
	Label(label + "_rest")
	ADDQ(I32(s.unroll), left)
	JZ(LabelRef(label + "_sums"))
	Label(label + "_step")
	s.add(s.p, s.far, h, 0, n)
	ADDQ(I32(chunk), s.p)
	ADDQ(I32(s.codes), h)
	DECQ(left)
	JNZ(LabelRef(label + "_step"))
	Label(label + "_sums")
	for stream := range n {
		at, row := s.p, s.i
		if stream > 0 {
			at, row = GP64(), GP64()
			LEAQ(Mem{Base: s.p, Index: s.far, Scale: 1}, at)
			LEAQ(Mem{Base: s.i, Index: s.farRows, Scale: 1}, row)
		}
		for k, d := range s.sums(stream) {
			meta := s.l.Vecs(floats)
			for f := range meta {
				VMOVUPS(Mem{Base: at, Disp: chunk*f + s.l.Bytes*k}, meta[f])
			}
			envelope(s.l, d, meta, row, s.l.Bytes*k)
		}
	}
	ADDQ(I32(panelRows), s.i)
	ADDQ(I32(floats*chunk), s.p)
}

// step multiplies the codes of a step of each row of one or two panels by the same number of codes
// of the vector.
type step struct {
	l            emit.Level
	codes        int                       // of each row: 4, or 8 narrow ones
	unroll       int                       // steps of one turn of the loop
	parts        int                       // registers of the lanes of a panel
	acc          [streams][]reg.VecVirtual // one set of parts (AVX2), or two, which the steps of a turn use alternately
	high         [streams][]reg.VecVirtual // the same for the high halves of bytes (AVX-512), times 16
	w, h, flip   reg.VecVirtual
	x80, one, no reg.VecVirtual
	narrow       *nibbles
}

func newStep(l emit.Level, narrow bool) step {
	parts := chunk / l.Bytes
	s := step{l: l, codes: stepCodes, unroll: 2, parts: parts}
	sets := func() [streams][]reg.VecVirtual { return [streams][]reg.VecVirtual{l.Vecs(parts), l.Vecs(parts)} }
	if l.Bytes == 64 {
		s.unroll = 4
		sets = func() [streams][]reg.VecVirtual {
			return [streams][]reg.VecVirtual{l.Vecs(2 * parts), l.Vecs(2 * parts)}
		} // chains that do not wait for each other
	}
	if narrow {
		n := newNibbles(l)
		s.codes, s.unroll, s.narrow = 2*stepCodes, 2, &n
		if l.Bytes == 64 {
			s.high = sets()
		}
	} else {
		s.w, s.h = l.Vec(), l.Vec()
	}
	s.acc = sets()
	if !narrow && l.Bytes == 32 {
		s.flip, s.no = l.Vec(), l.Vec()
		p := newProduct(l, 0)
		s.x80, s.one = p.x80, p.one
		emit.Zero(s.no)
	}
	return s
}

// add adds the products of step i of a turn for n streams.
func (s step) add(p, far, h reg.GPVirtual, i, n int) {
	q := Mem{Base: h, Disp: s.codes * i}
	at := func(stream, part int) Mem {
		m := Mem{Base: p, Disp: chunk*i + s.l.Bytes*part}
		if stream > 0 {
			m.Index, m.Scale = far, 1
		}
		return m
	}
	if s.narrow != nil {
		VPBROADCASTD(q, s.narrow.low)
		VPBROADCASTD(q.Offset(stepCodes), s.narrow.high)
		for stream, acc := range s.acc[:n] {
			if s.l.Bytes == 64 {
				x, high := s.narrow, s.high[stream]
				VMOVDQU64(at(stream, 0), x.w)
				VPANDD(x.mask, x.w, x.t)
				VPDPBUSD(x.low, x.t, acc[i%len(acc)])
				VPANDND(x.w, x.mask, x.w)
				VPDPBUSD(x.high, x.w, high[i%len(acc)])
				continue
			}
			for part := range s.parts {
				s.narrow.add(at(stream, part), acc[part])
			}
		}
		return
	}
	VPBROADCASTD(q, s.h)
	if s.l.Bytes == 64 {
		// The row's bytes are the unsigned factor, so they cannot be the operand in memory.
		// envelope subtracts the part of the 128 in each byte.
		for stream, acc := range s.acc[:n] {
			VMOVDQU64(at(stream, 0), s.w)
			VPDPBUSD(s.h, s.w, acc[i%len(acc)])
		}
		return
	}
	Comment("See product.setVector.")
	VPCMPGTB(s.h, s.no, s.flip)
	VPXOR(s.x80, s.flip, s.flip)
	VPABSB(s.h, s.h)
	for stream, acc := range s.acc[:n] {
		for part := range s.parts {
			VPXOR(at(stream, part), s.flip, s.w)
			VPMADDUBSW(s.w, s.h, s.w)
			VPMADDWD(s.one, s.w, s.w)
			VPADDD(s.w, acc[part], acc[part])
		}
	}
}

// sums returns the sums of all steps of a stream.
func (s step) sums(stream int) []reg.VecVirtual {
	acc, high := s.acc[stream], s.high[stream]
	for n := len(acc) / 2; n >= s.parts; n /= 2 {
		for k := range n {
			VPADDD(acc[k+n], acc[k], acc[k])
			if high != nil {
				VPADDD(high[k+n], high[k], high[k])
			}
		}
	}
	if high != nil {
		VPSRAD(U8(4), high[0], high[0])
		VPADDD(high[0], acc[0], acc[0])
	}
	return acc[:s.parts]
}
