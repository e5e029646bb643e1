package main

import (
	"fmt"
	"slices"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/learning-to-screen/l2s/gen/internal/emit"
	"github.com/learning-to-screen/l2s/gen/internal/layout"
)

// A panel has the codes of its rows in steps of a cache line, four codes of each row
// side by side; behind them the scales of all rows, their biases, errors and norms, a
// line each.
const (
	panelRows = chunk / 4 // kernels.PanelRows
	stepCodes = 4
	floats    = 4
)

// streams is the number of panels that a turn of the scan reads side by side, far apart: the
// CPU reads ahead in each of them, so memory is asked for more at a time, and the codes of
// the vector are fetched once for both.
const streams = 2

// panelBounds generates the scan of panels. A lane holds the sum of one row from the
// first step on, so that no sum is taken across lanes. The first half of the panels is one
// stream, the second half the other; the panel in the middle of an odd number is of both.
func panelBounds(l emit.Level) {
	l.Function("Int8PanelBounds", "func(lower, upper *float32, data *byte, panels, steps int, b *byte)",
		fmt.Sprintf("computes the intervals of the %d rows of each panel, of %d codes times steps. panels and steps are positive. b is a %s.", panelRows, stepCodes, layout.Bound))
	p := Load(Param("data"), GP64()).(reg.GPVirtual)
	panels := Load(Param("panels"), GP64()).(reg.GPVirtual)
	steps := Load(Param("steps"), GP64()).(reg.GPVirtual)
	i, far, farRows, left := GP64(), GP64(), GP64(), GP64()
	XORQ(i, i)
	parts := chunk / l.Bytes // registers that the lanes of a panel take
	code := newStep(l, parts)

	Comment("The second stream is far bytes behind the first, farRows rows.")
	MOVQ(panels, farRows)
	SHRQ(Imm(1), farRows)
	SUBQ(farRows, panels)
	LEAQ(Mem{Base: steps, Disp: floats}, far)
	IMULQ(farRows, far)
	IMUL3Q(I32(chunk), far, far)
	IMUL3Q(I32(panelRows), farRows, farRows)

	Label("panel")
	h := Load(Param("b"), GP64()).(reg.GPVirtual)
	MOVQ(Mem{Base: h, Disp: layout.Bound.At("codes")}, h)
	emit.Zero(code.all()...)
	MOVQ(steps, left)
	SUBQ(I32(code.unroll), left)
	JLT(LabelRef("rest"))
	Label("steps")
	for s := range code.unroll {
		code.add(p, far, h, s)
	}
	ADDQ(I32(chunk*code.unroll), p)
	ADDQ(I32(stepCodes*code.unroll), h)
	SUBQ(I32(code.unroll), left)
	JGE(LabelRef("steps"))
	Label("rest")
	ADDQ(I32(code.unroll), left)
	JZ(LabelRef("sums"))
	Label("step")
	code.add(p, far, h, 0)
	ADDQ(I32(chunk), p)
	ADDQ(I32(stepCodes), h)
	DECQ(left)
	JNZ(LabelRef("step"))
	Label("sums")
	for stream := range streams {
		at, row := p, i
		if stream > 0 {
			at, row = GP64(), GP64()
			LEAQ(Mem{Base: p, Index: far, Scale: 1}, at)
			LEAQ(Mem{Base: i, Index: farRows, Scale: 1}, row)
		}
		for k, d := range code.sums(stream) {
			meta := l.Vecs(floats)
			for f := range meta {
				VMOVUPS(Mem{Base: at, Disp: chunk*f + l.Bytes*k}, meta[f])
			}
			envelope(l, d, meta, row, l.Bytes*k)
		}
	}
	ADDQ(I32(panelRows), i)
	ADDQ(I32(floats*chunk), p)
	DECQ(panels)
	JNZ(LabelRef("panel"))
	emit.End()
}

// step multiplies four codes of each row of two panels by four codes of the vector.
type step struct {
	l            emit.Level
	unroll       int                       // steps of one turn of the loop
	parts        int                       // registers of the lanes of a panel
	acc          [streams][]reg.VecVirtual // sets of parts, which the steps of a turn take in turn
	w, h, flip   reg.VecVirtual
	x80, one, no reg.VecVirtual
}

func newStep(l emit.Level, parts int) step {
	s := step{l: l, unroll: 2, parts: parts, w: l.Vec(), h: l.Vec()}
	if l.Bytes == 64 {
		s.unroll = 4
		s.acc = [streams][]reg.VecVirtual{l.Vecs(2 * parts), l.Vecs(2 * parts)} // chains that do not wait for each other
		return s
	}
	s.acc = [streams][]reg.VecVirtual{l.Vecs(parts), l.Vecs(parts)}
	s.flip, s.no = l.Vec(), l.Vec()
	p := newProduct(l, 0)
	s.x80, s.one = p.x80, p.one
	emit.Zero(s.no)
	return s
}

// all returns the registers of all sums.
func (s step) all() []reg.VecVirtual { return slices.Concat(s.acc[:]...) }

// add adds the products of step i of a turn.
func (s step) add(p, far, h reg.GPVirtual, i int) {
	q := Mem{Base: h, Disp: stepCodes * i}
	at := func(stream, part int) Mem {
		m := Mem{Base: p, Disp: chunk*i + s.l.Bytes*part}
		if stream > 0 {
			m.Index, m.Scale = far, 1
		}
		return m
	}
	VPBROADCASTD(q, s.h)
	if s.l.Bytes == 64 {
		for stream, acc := range s.acc {
			VMOVDQU64(at(stream, 0), s.w)
			VPDPBUSD(s.h, s.w, acc[i%len(acc)])
		}
		return
	}
	Comment("See product.setVector.")
	VPCMPGTB(s.h, s.no, s.flip)
	VPXOR(s.x80, s.flip, s.flip)
	VPABSB(s.h, s.h)
	for stream, acc := range s.acc {
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
	acc := s.acc[stream]
	for n := len(acc) / 2; n >= s.parts; n /= 2 {
		for k := range n {
			VPADDD(acc[k+n], acc[k], acc[k])
		}
	}
	return acc[:s.parts]
}
