package main

import (
	"fmt"

	"github.com/learning-to-screen/l2s/gen/internal/arm64"
	"github.com/learning-to-screen/l2s/gen/internal/layout"
)

// batchRows is the number of rows of a block: a register holds one float32 of each,
// for one context.
const batchRows = 4

// batch generates the intervals of rows for up to four contexts: each record is loaded once for all
// of them. Two contexts have their own loop, which is not worth it for three.
func batch(f *arm64.Func, gather bool) {
	b, contexts := f.Param("b"), f.Param("contexts")
	r := newRecords(f, gather, batchRows)
	code := newProduct(f, false, 1)
	slack := f.V()
	p, t := f.Xs(batchRows), f.X()
	lower, upper, ld := f.Param("lower"), f.Param("upper"), f.Param("ld")
	f.I("lsl %x, %x, #2", ld, ld)
	f.I("add %x, %x, #%d", t, b, layout.BatchBound.At("slack"))
	f.I("ld1r {%v.4s}, [%x]", slack, t)
	f.I("cmp %x, #2", contexts)
	f.I("b.gt block%d", layout.BatchContexts)
	for _, most := range []int{2, layout.BatchContexts} {
		label := fmt.Sprint(most)
		h, left := f.Xs(most), f.X()
		codes, w := f.Vs(most), f.Vs(batchRows)
		f.Label("block%s", label)
		r.addresses(p)
		for c := range h {
			f.I("ldr %x, [%x, #%d]", h[c], b, layout.BatchBound.At("codes")+8*c)
		}
		acc := f.Zeros(most * batchRows) // row k of context c at c*batchRows+k
		f.I("lsr %x, %x, #4", left, r.stride)
		f.Label("products%s", label)
		for c := range h {
			f.I("ldr %q, [%x], #16", codes[c], h[c])
		}
		for k := range p {
			f.I("ldr %q, [%x], #16", w[k], p[k])
			code.decode(w[k], w[k])
			for c := range h {
				code.add(acc[c*batchRows+k], w[k:k+1], codes[c:c+1], code.t[0])
			}
		}
		f.I("subs %x, %x, #1", left, left)
		f.I("b.ne products%s", label)

		f.Free(codes...)
		meta := w
		scaled, v := f.Vs(4), f.V()
		floats(f, p, meta, scaled)
		lo, up := h[0], h[1]
		f.I("mov %x, %x", lo, lower)
		f.I("mov %x, %x", up, upper)
		for c := range most {
			if c == 3 {
				f.I("cmp %x, #3", contexts)
				f.I("b.eq stored")
			}
			d := acc[c*batchRows:]
			f.I("addp %v.4s, %v.4s, %v.4s", d[0], d[0], d[1])
			f.I("addp %v.4s, %v.4s, %v.4s", d[2], d[2], d[3])
			f.I("addp %v.4s, %v.4s, %v.4s", d[0], d[0], d[2])
			for i, name := range []string{0: "scale", 2: "norm", 3: "err"} {
				if name == "" { // the bias
					continue
				}
				f.I("add %x, %x, #%d", t, b, layout.BatchBound.At(name)+16*c)
				f.I("ldr %q, [%x]", v, t)
				f.I("fmul %v.4s, %v.4s, %v.4s", scaled[i], meta[i], v)
			}
			interval(f, d[0], []arm64.V{scaled[0], meta[1], scaled[2], scaled[3]}, slack)
			f.I("str %q, [%x]", d[0], lo)
			f.I("str %q, [%x]", scaled[0], up)
			if c < most-1 {
				f.I("add %x, %x, %x", lo, lo, ld)
				f.I("add %x, %x, %x", up, up, ld)
			}
		}
		if most > 2 {
			f.Label("stored")
		}
		f.I("add %x, %x, #16", lower, lower)
		f.I("add %x, %x, #16", upper, upper)
		r.advance("block"+label, lower, upper)
		f.Free(v)
		f.Free(scaled...)
		f.Free(acc...)
		f.Free(w...)
		f.FreeX(left)
		f.FreeX(h...)
	}
}
