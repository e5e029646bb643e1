package main

import "github.com/learning-to-screen/l2s/gen/internal/arm64"

// scan is the dense float32 row scan.
func scan() *arm64.File {
	file := &arm64.File{}
	f := file.Func(arm64.NEON, "Scan", "func(dst, rows *float32, n int, h *float32, d int)",
		"computes dst[i] = rows[i].h for n rows of d elements.")
	done4, done1 := storeSums(f)
	rows{Func: f, done4: done4, done1: done1}.emit()

	f = file.Func(arm64.NEON, "Add", "func(dst, x *float32, n int)",
		"computes dst[i] += x[i] for n elements, a positive multiple of 16.")
	dst, x, n := f.Param("dst"), f.Param("x"), f.Param("n")
	a, b, from := f.Vs(4), f.Vs(4), f.X()
	f.I("mov %x, %x", from, dst) // as in axpy
	f.Label("loop")
	f.I("ld1 %s, [%x], #64", list(a, "4s"), from)
	f.I("ld1 %s, [%x], #64", list(b, "4s"), x)
	for k := range a {
		f.I("fadd %v.4s, %v.4s, %v.4s", a[k], a[k], b[k])
	}
	f.I("st1 %s, [%x], #64", list(a, "4s"), dst)
	f.I("subs %x, %x, #16", n, n)
	f.I("b.ne loop")
	f.I("ret")
	return file
}
