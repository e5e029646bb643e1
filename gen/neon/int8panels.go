package main

import (
	"github.com/learning-to-screen/l2s/gen/internal/arm64"
	"github.com/learning-to-screen/l2s/gen/internal/layout"
)

// A panel has the codes of its rows in steps of 64 bytes, four neighbouring codes of each row;
// after them the scales of all rows, their biases, errors and norms. Narrow panels have eight codes
// of each row in a step: four in the low halves of the bytes, four in the high ones.
const (
	codeRows  = chunk / stepCodes // kernels.PanelRows
	stepCodes = 4
)

// panelBounds emits the scan of panels. With dot products a lane has the sum of one row from the
// first step on, without them two lanes have it.
func panelBounds(f *arm64.Func, narrow bool) {
	lower, upper, data, panels, steps, b := f.Param("lower"), f.Param("upper"), f.Param("data"), f.Param("panels"), f.Param("steps"), f.Param("b")
	h, left := f.X(), f.X()
	fields, names := map[string]arm64.V{}, []string{"scale", "norm", "err", "slack"}
	if narrow {
		names = append(names, "excess")
	}
	for _, name := range names {
		v := f.V()
		fields[name] = v
		f.I("add %x, %x, #%d", left, b, layout.Bound.At(name))
		f.I("ld1r {%v.4s}, [%x]", v, left)
	}
	code := newProduct(f, narrow, 2)

	f.Label("panel")
	f.I("ldr %x, [%x, #%d]", h, b, layout.Bound.At("codes"))
	f.I("mov %x, %x", left, steps)
	const parts = 4 // registers of a step
	sums := parts
	if f.Level != arm64.NEONDot {
		sums *= 2
	}
	acc := f.Zeros(sums)
	w, q, high := f.Vs(parts), f.Vs(code.parts()), f.V()
	f.Label("step")
	for i := range q {
		f.I("ld1r {%v.4s}, [%x]", q[i], h)
		f.I("add %x, %x, #%d", h, h, stepCodes)
	}
	f.I("ld1 %s, [%x], #%d", list(w, "16b"), data, chunk)
	for k := range w {
		code.decode(w[k], high)
		for i, w := range []arm64.V{w[k], high}[:len(q)] {
			if f.Level == arm64.NEONDot {
				f.I("sdot %v.4s, %v.16b, %v.16b", acc[k], w, q[i])
				continue
			}
			f.I("smull %v.8h, %v.8b, %v.8b", code.t[0], w, q[i])
			f.I("smull2 %v.8h, %v.16b, %v.16b", code.t[1], w, q[i])
			f.I("sadalp %v.4s, %v.8h", acc[2*k], code.t[0])
			f.I("sadalp %v.4s, %v.8h", acc[2*k+1], code.t[1])
		}
	}
	f.I("subs %x, %x, #1", left, left)
	f.I("b.ne step")
	if f.Level != arm64.NEONDot {
		for k := range parts {
			f.I("addp %v.4s, %v.4s, %v.4s", acc[k], acc[2*k], acc[2*k+1])
		}
	}
	if narrow {
		for k := range parts {
			f.I("sub %v.4s, %v.4s, %v.4s", acc[k], acc[k], fields["excess"])
		}
	}
	f.Free(append(w, acc[parts:]...)...)
	meta := make([][]arm64.V, 4)
	for i := range meta {
		meta[i] = f.Vs(parts)
		f.I("ld1 %s, [%x], #%d", list(meta[i], "4s"), data, chunk)
	}
	for k := range parts {
		m := []arm64.V{meta[0][k], meta[1][k], meta[2][k], meta[3][k]}
		f.I("fmul %v.4s, %v.4s, %v.4s", m[0], m[0], fields["scale"])
		f.I("fmul %v.4s, %v.4s, %v.4s", m[2], m[2], fields["norm"])
		f.I("fmul %v.4s, %v.4s, %v.4s", m[3], m[3], fields["err"])
		interval(f, acc[k], m, fields["slack"])
		f.I("str %q, [%x], #16", acc[k], lower)
		f.I("str %q, [%x], #16", m[0], upper)
	}
	f.I("subs %x, %x, #1", panels, panels)
	f.I("b.ne panel")
	f.I("ret")
}
