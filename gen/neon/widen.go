package main

import "github.com/learning-to-screen/l2s/gen/internal/arm64"

// widen is the conversion of float16 and bfloat16 to float32.
func widen() *arm64.File {
	file := &arm64.File{}
	for _, e := range elements {
		if e.widen == "" {
			continue
		}
		f := file.Func(arm64.NEON, "Widen"+e.name, "func(dst *float32, x *uint16, n int)",
			"writes n elements as float32, n a positive multiple of 16.")
		dst, p, n := f.Param("dst"), f.Param("x"), f.Param("n")
		x, wide := f.Vs(2), f.Vs(4)
		f.Label("loop")
		f.I("ldp %q, %q, [%x], #32", x[0], x[1], p)
		for k := range wide {
			f.I([]string{e.widen, e.widen2}[k%2], wide[k], x[k/2])
		}
		f.I("st1 %s, [%x], #64", list(wide, "4s"), dst)
		f.I("subs %x, %x, #16", n, n)
		f.I("b.ne loop")
		f.I("ret")
	}
	return file
}
