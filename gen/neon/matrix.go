package main

import (
	"fmt"

	"github.com/learning-to-screen/l2s/gen/internal/arm64"
	"github.com/learning-to-screen/l2s/gen/internal/layout"
)

// matrix is batch by products of matrices: USMMLA multiplies two rows of eight bytes, unsigned, by
// two contexts of eight, signed, and adds to four sums. So eight rows are processed at once, in
// pairs, and the rows' 128 are in the sums: kernels.excess8 is their part.
func matrix(f *arm64.Func, gather bool) {
	contexts := f.Param("contexts")
	r := newRecords(f, gather, group)
	lower, upper := f.Param("lower"), f.Param("upper")
	p, t := f.Xs(group), f.X()
	slack := f.V()
	f.Load("b", t)
	f.I("add %x, %x, #%d", t, t, layout.BatchBound.At("slack"))
	f.I("ld1r {%v.4s}, [%x]", slack, t)
	f.I("cmp %x, #2", contexts)
	f.I("b.gt block%d", layout.BatchContexts)
	for _, most := range []int{2, layout.BatchContexts} {
		label := fmt.Sprint(most)
		h, left := f.Xs(most), f.X()
		f.Label("block%s", label)
		r.addresses(p)
		f.Load("b", t)
		for c := range h {
			f.I("ldr %x, [%x, #%d]", h[c], t, layout.BatchBound.At("codes")+8*c)
		}
		pairs := most / 2
		acc := f.Zeros(group / 2 * pairs) // rows 2i, 2i+1 and contexts 2j, 2j+1 at i*pairs+j
		codes, zipped := f.Vs(4), f.Vs(4)
		w := f.Vs(4)
		f.I("lsr %x, %x, #4", left, r.stride)
		f.Label("products%s", label)
		for c := range h {
			f.I("ldr %q, [%x], #16", codes[c], h[c])
		}
		zip := func(to, from []arm64.V) {
			f.I("zip1 %v.2d, %v.2d, %v.2d", to[0], from[0], from[1])
			f.I("zip2 %v.2d, %v.2d, %v.2d", to[1], from[0], from[1])
		}
		for j := range pairs {
			zip(zipped[2*j:], codes[2*j:])
		}
		for i := range group / 2 {
			f.I("ldr %q, [%x], #16", w[0], p[2*i])
			f.I("ldr %q, [%x], #16", w[1], p[2*i+1])
			zip(w[2:], w)
			for half := range 2 {
				for j := range pairs {
					f.I("usmmla %v.4s, %v.16b, %v.16b", acc[i*pairs+j], w[2+half], zipped[2*j+half])
				}
			}
		}
		f.I("subs %x, %x, #1", left, left)
		f.I("b.ne products%s", label)

		lo, up, ld, v := h[0], h[1], left, f.V()
		f.Load("ld", ld)
		f.I("lsl %x, %x, #2", ld, ld)
		for g := 0; g < group; g += 4 {
			meta, scaled, d := codes, zipped, w[0]
			floats(f, p[g:g+4], meta, scaled)
			f.I("add %x, %x, #%d", lo, lower, 4*g)
			f.I("add %x, %x, #%d", up, upper, 4*g)
			for c := range most {
				if c == 3 {
					f.I("cmp %x, #3", contexts)
					f.I("b.eq stored_%d", g)
				}
				f.Load("b", t)
				f.I("add %x, %x, #%d", t, t, 16*c)
				field := func(name string) arm64.V {
					f.I("ldr %q, [%x, #%d]", v, t, layout.BatchBound.At(name))
					return v
				}
				f.I([]string{"uzp1", "uzp2"}[c%2]+" %v.4s, %v.4s, %v.4s", d, acc[g/2*pairs+c/2], acc[(g/2+1)*pairs+c/2])
				f.I("sub %v.4s, %v.4s, %v.4s", d, d, field("excess"))
				for i, name := range []string{0: "scale", 2: "norm", 3: "err"} {
					if name != "" { // the bias
						f.I("fmul %v.4s, %v.4s, %v.4s", scaled[i], meta[i], field(name))
					}
				}
				interval(f, d, []arm64.V{scaled[0], meta[1], scaled[2], scaled[3]}, slack)
				f.I("str %q, [%x]", d, lo)
				f.I("str %q, [%x]", scaled[0], up)
				if c < most-1 {
					f.I("add %x, %x, %x", lo, lo, ld)
					f.I("add %x, %x, %x", up, up, ld)
				}
			}
			if most > 3 {
				f.Label("stored_%d", g)
			}
		}
		f.I("add %x, %x, #%d", lower, lower, 4*group)
		f.I("add %x, %x, #%d", upper, upper, 4*group)
		r.advance("block"+label, lower, upper)
		f.Free(v)
		f.Free(w...)
		f.Free(zipped...)
		f.Free(codes...)
		f.Free(acc...)
		f.FreeX(left)
		f.FreeX(h...)
	}
}
