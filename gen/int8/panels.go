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
// side by side; behind them the scales of all rows, their biases, errors and norms, a
// line each.
const (
	panelRows = chunk / 4 // kernels.PanelRows
	stepCodes = 4
)

// panelBounds generates the scan of panels. A lane holds the sum of one row from the
// first step on, so that no sum is taken across lanes.
func panelBounds(l emit.Level) {
	l.Function("Int8PanelBounds", "func(lower, upper *float32, data *byte, panels, steps int, b *byte)",
		fmt.Sprintf("computes the intervals of the %d rows of each panel, of %d codes times steps. panels and steps are positive. b is a %s.", panelRows, stepCodes, layout.Bound))
	p := Load(Param("data"), GP64()).(reg.GPVirtual)
	panels := Load(Param("panels"), GP64()).(reg.GPVirtual)
	steps := Load(Param("steps"), GP64()).(reg.GPVirtual)
	b := Load(Param("b"), GP64())
	i, h, left := GP64(), GP64(), GP64()
	XORQ(i, i)
	parts := chunk / l.Bytes // registers that the lanes of a panel take
	code := newStep(l, parts)

	Label("panel")
	MOVQ(Mem{Base: b, Disp: layout.Bound.At("codes")}, h)
	emit.Zero(code.acc...)
	MOVQ(steps, left)
	SUBQ(I32(code.unroll), left)
	JLT(LabelRef("rest"))
	Label("steps")
	for s := range code.unroll {
		code.add(p, h, s)
	}
	ADDQ(I32(chunk*code.unroll), p)
	ADDQ(I32(stepCodes*code.unroll), h)
	SUBQ(I32(code.unroll), left)
	JGE(LabelRef("steps"))
	Label("rest")
	ADDQ(I32(code.unroll), left)
	JZ(LabelRef("sums"))
	Label("step")
	code.add(p, h, 0)
	ADDQ(I32(chunk), p)
	ADDQ(I32(stepCodes), h)
	DECQ(left)
	JNZ(LabelRef("step"))
	Label("sums")
	for k, d := range code.sums() {
		meta := l.Vecs(4)
		for f := range meta {
			VMOVUPS(Mem{Base: p, Disp: chunk*f + l.Bytes*k}, meta[f])
		}
		envelope(l, d, meta, i)
		ADDQ(I32(l.Bytes/4), i)
	}
	ADDQ(I32(4*chunk), p)
	DECQ(panels)
	JNZ(LabelRef("panel"))
	emit.End()
}

// step multiplies four codes of each row of a panel by four codes of the vector.
type step struct {
	l            emit.Level
	unroll       int              // steps of one turn of the loop
	parts        int              // registers of the lanes of a panel
	acc          []reg.VecVirtual // one set of parts for each step of a turn, or one for all
	w, h, flip   reg.VecVirtual
	x80, one, no reg.VecVirtual
}

func newStep(l emit.Level, parts int) step {
	s := step{l: l, parts: parts, w: l.Vec()}
	if l.Bytes == 64 {
		s.unroll = 4 // chains that do not wait for each other
		s.acc = l.Vecs(s.unroll * parts)
		return s
	}
	s.unroll, s.acc = 2, l.Vecs(parts)
	s.h, s.flip, s.no = l.Vec(), l.Vec(), l.Vec()
	p := newProduct(l, 0)
	s.x80, s.one = p.x80, p.one
	emit.Zero(s.no)
	return s
}

// add adds the products of step i of a turn.
func (s step) add(p, h reg.GPVirtual, i int) {
	q := Mem{Base: h, Disp: stepCodes * i}
	at := func(part int) Mem { return Mem{Base: p, Disp: chunk*i + s.l.Bytes*part} }
	if s.l.Bytes == 64 {
		VMOVDQU64(at(0), s.w)
		VPDPBUSD_BCST(q, s.w, s.acc[i])
		return
	}
	Comment("See product.setVector.")
	VPBROADCASTD(q, s.h)
	VPCMPGTB(s.h, s.no, s.flip)
	VPXOR(s.x80, s.flip, s.flip)
	VPABSB(s.h, s.h)
	for part := range s.parts {
		VPXOR(at(part), s.flip, s.w)
		VPMADDUBSW(s.w, s.h, s.w)
		VPMADDWD(s.one, s.w, s.w)
		VPADDD(s.w, s.acc[part], s.acc[part])
	}
}

// sums returns the sums of all steps.
func (s step) sums() []reg.VecVirtual {
	for n := len(s.acc) / 2; n >= s.parts; n /= 2 {
		for k := range n {
			VPADDD(s.acc[k+n], s.acc[k], s.acc[k])
		}
	}
	return s.acc[:s.parts]
}
