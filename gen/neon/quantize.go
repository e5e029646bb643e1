package main

import "github.com/learning-to-screen/l2s/gen/internal/arm64"

// quantize is the passes that turn vectors into codes: a context vector, and rows.
func quantize() *arm64.File {
	file := &arm64.File{}
	f := file.Func(arm64.NEON, "MaxAbsBits", "func(x *float32, n int) uint32",
		"returns the largest of the bits of |x[i]| for n elements, a positive multiple of 16.")
	maxBits(f, "x", func(v arm64.V) { f.I("fabs %v.4s, %v.4s", v, v) })

	f = file.Func(arm64.NEON, "Quantize", "func(codes *int8, h *float32, n int, inv float32) (norm2, err2 float32, code, negative int32)",
		"rounds u = h[i]*inv to codes for n elements, a positive multiple of 16, and returns the sums of u^2 and (u-code)^2 in 16 lanes combined by halves, of the codes, and of the negative codes.")
	codes, h, n := f.Param("codes"), f.Param("h"), f.Param("n")
	inv := f.ParamFloat32("inv")
	norm2, err2 := f.Zeros(4), f.Zeros(4)
	sums := f.Zeros(3) // of the codes, of the negative ones; zero
	u, q, e := f.Vs(4), f.Vs(4), f.V()
	f.Label("loop")
	f.I("ld1 %s, [%x], #64", list(u, "4s"), h)
	for k := range u {
		f.I("fmul %v.4s, %v.4s, %v.4s", u[k], u[k], inv)
		f.I("fcvtns %v.4s, %v.4s", q[k], u[k])
		f.I("scvtf %v.4s, %v.4s", e, q[k])
		f.I("fsub %v.4s, %v.4s, %v.4s", e, u[k], e)
		f.Comment("No fused multiply-add: the sums are the same on every level.")
		f.I("fmul %v.4s, %v.4s, %v.4s", u[k], u[k], u[k])
		f.I("fadd %v.4s, %v.4s, %v.4s", norm2[k], norm2[k], u[k])
		f.I("fmul %v.4s, %v.4s, %v.4s", e, e, e)
		f.I("fadd %v.4s, %v.4s, %v.4s", err2[k], err2[k], e)
		f.I("add %v.4s, %v.4s, %v.4s", sums[0], sums[0], q[k])
		f.I("smin %v.4s, %v.4s, %v.4s", e, q[k], sums[2])
		f.I("add %v.4s, %v.4s, %v.4s", sums[1], sums[1], e)
	}
	storeCodes(f, codes, q)
	f.I("subs %x, %x, #16", n, n)
	f.I("b.ne loop")
	returnSum(f, "norm2", norm2)
	returnSum(f, "err2", err2)
	x := f.X()
	for i, name := range []string{"code", "negative"} {
		f.I("addv %s, %v.4s", e, sums[i])
		f.I("fmov %u, %s", x, e)
		f.Return32(name, x)
	}
	f.I("ret")

	f = file.Func(arm64.NEON, "Encode", "func(codes *int8, x *float32, n int, inv, most float32) (err2, norm2 float32)",
		"rounds u = x[i]*inv, brought within most, to codes for n elements, a positive multiple of 16, and returns the sums of (u-code)^2 and of code^2 in 16 lanes combined by halves.")
	encode(f)
	return file
}

func encode(f *arm64.Func) {
	codes, x, n := f.Param("codes"), f.Param("x"), f.Param("n")
	inv, most, least := f.ParamFloat32("inv"), f.ParamFloat32("most"), f.Zeros(1)[0]
	f.I("fsub %v.4s, %v.4s, %v.4s", least, least, most)
	err2, norm2 := f.Zeros(4), f.Zeros(4)
	u, q, c := f.Vs(4), f.Vs(4), f.V()
	f.Label("loop")
	f.I("ld1 %s, [%x], #64", list(u, "4s"), x)
	for k := range u {
		f.I("fmul %v.4s, %v.4s, %v.4s", u[k], u[k], inv)
		f.I("fminnm %v.4s, %v.4s, %v.4s", c, u[k], most)
		f.I("fmaxnm %v.4s, %v.4s, %v.4s", c, c, least)
		f.I("fcvtns %v.4s, %v.4s", q[k], c)
		f.I("scvtf %v.4s, %v.4s", c, q[k])
		f.I("fsub %v.4s, %v.4s, %v.4s", u[k], u[k], c)
		f.Comment("No fused multiply-add: the sums are the same on every level.")
		f.I("fmul %v.4s, %v.4s, %v.4s", u[k], u[k], u[k])
		f.I("fadd %v.4s, %v.4s, %v.4s", err2[k], err2[k], u[k])
		f.I("fmul %v.4s, %v.4s, %v.4s", c, c, c)
		f.I("fadd %v.4s, %v.4s, %v.4s", norm2[k], norm2[k], c)
	}
	storeCodes(f, codes, q)
	f.I("subs %x, %x, #16", n, n)
	f.I("b.ne loop")
	returnSum(f, "err2", err2)
	returnSum(f, "norm2", norm2)
	f.I("ret")
}

// storeCodes stores sixteen int32 as bytes and advances past them.
func storeCodes(f *arm64.Func, codes arm64.X, q []arm64.V) {
	f.I("uzp1 %v.8h, %v.8h, %v.8h", q[0], q[0], q[1])
	f.I("uzp1 %v.8h, %v.8h, %v.8h", q[2], q[2], q[3])
	f.I("uzp1 %v.16b, %v.16b, %v.16b", q[0], q[0], q[2])
	f.I("str %q, [%x], #16", q[0], codes)
}

// returnSum returns the sum of sixteen lanes, combined by halves.
func returnSum(f *arm64.Func, name string, v []arm64.V) {
	for step := 2; step > 0; step /= 2 {
		for k := range step {
			f.I("fadd %v.4s, %v.4s, %v.4s", v[k], v[k], v[k+step])
		}
	}
	f.I("ext %v.16b, %v.16b, %v.16b, #8", v[1], v[0], v[0])
	f.I("fadd %v.4s, %v.4s, %v.4s", v[0], v[0], v[1])
	f.I("faddp %s, %v.2s", v[0], v[0])
	f.ReturnFloat32(name, v[0])
}
