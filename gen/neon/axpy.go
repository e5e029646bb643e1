package main

import "github.com/learning-to-screen/l2s/gen/internal/arm64"

// axpy is dst += a*x with exact float64 products.
func axpy() *arm64.File {
	file := &arm64.File{}
	f := file.Func(arm64.NEON, "Axpy", "func(dst *float64, a float64, x *float32, n int)",
		"computes dst[i] += a*float64(x[i]) for n elements.")
	dst, x, n, left := f.Param("dst"), f.Param("x"), f.Param("n"), f.X()
	a := f.ParamFloat64("a")
	v, wide, sum := f.Vs(2), f.Vs(4), f.Vs(4)
	// A separate register for the loads: the register of the stores advances only when their data
	// is there.
	from := f.X()
	f.I("mov %x, %x", from, dst)
	f.I("lsr %x, %x, #3", left, n)
	f.I("cbz %x, elements", left)
	f.Label("vectors")
	f.I("ldp %q, %q, [%x], #32", v[0], v[1], x)
	f.I("ld1 %s, [%x], #64", list(sum, "2d"), from)
	for k := range wide {
		high := map[int]string{0: "fcvtl %v.2d, %v.2s", 1: "fcvtl2 %v.2d, %v.4s"}[k%2]
		f.I(high, wide[k], v[k/2])
		f.I("fmla %v.2d, %v.2d, %v.2d", sum[k], wide[k], a)
	}
	f.I("st1 %s, [%x], #64", list(sum, "2d"), dst)
	f.I("subs %x, %x, #1", left, left)
	f.I("b.ne vectors")
	f.Label("elements")
	f.I("and %x, %x, #7", n, n)
	f.I("cbz %x, end", n)
	f.Label("element")
	f.I("ldr %s, [%x], #4", v[0], x)
	f.I("fcvt %d, %s", v[0], v[0])
	f.I("ldr %d, [%x]", sum[0], dst)
	f.I("fmadd %d, %d, %d, %d", sum[0], v[0], a, sum[0])
	f.I("str %d, [%x], #8", sum[0], dst)
	f.I("subs %x, %x, #1", n, n)
	f.I("b.ne element")
	f.Label("end")
	f.I("ret")
	return file
}
