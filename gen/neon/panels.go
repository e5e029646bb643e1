package main

import (
	"fmt"

	"github.com/learning-to-screen/l2s/gen/internal/arm64"
)

const (
	panelRows    = 32  // kernels.panelRows
	panelBlock   = 128 // elements that are summed together: kernels.panelBlock
	panelVectors = 3   // that leave registers for the sums of all
)

// panels is the product of 32 rows, whose elements lie side by side, with a few vectors.
func panels() *arm64.File {
	file := &arm64.File{}
	f := file.Func(arm64.NEON, "AddPanel", "func(dst *float32, ldd int, panel *float32, d int, x *float32, ldx int, n int)",
		fmt.Sprintf("adds the sums of panel[%d*j+i]*x[ldx*s+j], over blocks of %d of j = 0..d-1, to dst[ldd*s+i], i = 0..%d, s = 0..n-1. d is positive, n is 1 to %d.",
			panelRows, panelBlock, panelRows-1, panelVectors))
	dst, x := f.Xs(panelVectors), f.Xs(panelVectors)
	f.Load("dst", dst[0])
	f.Load("x", x[0])
	ldd, ldx, n := f.Param("ldd"), f.Param("ldx"), f.Param("n")
	panel, d, left := f.Param("panel"), f.Param("d"), f.X()
	for s := 1; s < panelVectors; s++ {
		f.I("add %x, %x, %x, lsl #2", dst[s], dst[s-1], ldd)
		f.I("add %x, %x, %x, lsl #2", x[s], x[s-1], ldx)
	}
	for c := 1; c < panelVectors; c++ {
		f.I("cmp %x, #%d", n, c)
		f.I("b.eq vectors%d", c)
	}
	const quads = panelRows / 4
	for c := panelVectors; c > 0; c-- {
		f.Label("vectors%d", c)
		sum, v, w := f.Vs(c*quads), f.Vs(c), f.Vs(4)
		f.Clear(sum...)
		f.Constant(left, panelBlock)
		f.I("cmp %x, %x", d, left)
		f.I("csel %x, %x, %x, lt", left, d, left)
		f.I("sub %x, %x, %x", d, d, left)
		f.Label("loop%d", c)
		for s := range c {
			f.I("ld1r {%v.4s}, [%x], #4", v[s], x[s])
		}
		for k := 0; k < quads; k += 2 {
			pair := w[k%4 : k%4+2]
			f.I("ldp %q, %q, [%x], #32", pair[0], pair[1], panel)
			for i, w := range pair {
				for s := range c {
					f.I("fmla %v.4s, %v.4s, %v.4s", sum[s*quads+k+i], w, v[s])
				}
			}
		}
		f.I("subs %x, %x, #1", left, left)
		f.I("b.ne loop%d", c)
		for i, y := range sum {
			out, at := dst[i/quads], 16*(i%quads)
			f.I("ldr %q, [%x, #%d]", w[0], out, at)
			f.I("fadd %v.4s, %v.4s, %v.4s", y, y, w[0])
			f.I("str %q, [%x, #%d]", y, out, at)
		}
		f.I("cbnz %x, vectors%d", d, c)
		f.I("ret")
		f.Free(w...)
		f.Free(v...)
		f.Free(sum...)
	}
	return file
}
