package main

import (
	"math"

	"github.com/learning-to-screen/l2s/gen/internal/arm64"
)

// exp is the exponentials of log-sum-exp and softmax, and of the centres of
// intervals in float32.
//
// The operations and their order are the same as in kernels.Exp and
// kernels.SumExpCentres, without fused multiply-adds, so that every level gives the
// same bits.
func exp() *arm64.File {
	file := &arm64.File{}
	expBlocks(file, "ExpSum", false)
	expBlocks(file, "ExpStore", true)

	f := file.Func(arm64.NEON, "MaxFloat64", "func(x *float64, n int) float64",
		"returns the largest of n elements, a positive multiple of 16.")
	x, n := f.Param("x"), f.Param("n")
	most, v := f.Vs(8), f.Vs(4)
	load := func(v []arm64.V) { f.I("ld1 %s, [%x], #64", list(v, "2d"), x) }
	load(most[:4])
	load(most[4:])
	f.I("subs %x, %x, #16", n, n)
	f.I("b.eq fold")
	f.Label("loop")
	for k := range most {
		if k%4 == 0 {
			load(v)
		}
		f.I("fmaxnm %v.2d, %v.2d, %v.2d", most[k], most[k], v[k%4])
	}
	f.I("subs %x, %x, #16", n, n)
	f.I("b.ne loop")
	f.Label("fold")
	for step := len(most) / 2; step > 0; step /= 2 {
		for k := range step {
			f.I("fmaxnm %v.2d, %v.2d, %v.2d", most[k], most[k], most[k+step])
		}
	}
	f.I("ext %v.16b, %v.16b, %v.16b, #8", v[0], most[0], most[0])
	f.I("fmaxnm %v.2d, %v.2d, %v.2d", most[0], most[0], v[0])
	f.ReturnFloat64("ret", most[0])
	f.I("ret")
	maxCentre(file)
	expCentres(file)
	return file
}

// centres puts the centres of 16 intervals in v, with t as scratch, and advances to the next.
func centres(f *arm64.Func, lower, upper arm64.X, half arm64.V, v, t []arm64.V) {
	f.I("ld1 %s, [%x], #64", list(v, "4s"), lower)
	f.I("ld1 %s, [%x], #64", list(t, "4s"), upper)
	for k := range v {
		f.I("fadd %v.4s, %v.4s, %v.4s", v[k], v[k], t[k])
	}
	for k := range v {
		f.I("fmul %v.4s, %v.4s, %v.4s", v[k], v[k], half)
	}
}

// spread32 returns a register with a float32 in every lane.
func spread32(f *arm64.Func, c float32) arm64.V {
	v, x := f.V(), f.X()
	f.Constant(x, uint64(math.Float32bits(c)))
	f.I("dup %v.4s, %u", v, x)
	f.FreeX(x)
	return v
}

func maxCentre(file *arm64.File) {
	f := file.Func(arm64.NEON, "MaxCentre", "func(lower, upper *float32, n int) float32",
		"returns the largest of n centres (lower[i]+upper[i])/2, n a positive multiple of 16.")
	lower, upper, n := f.Param("lower"), f.Param("upper"), f.Param("n")
	half := spread32(f, 0.5)
	most, v, t := f.Vs(4), f.Vs(4), f.Vs(4)
	centres(f, lower, upper, half, most, t)
	f.I("subs %x, %x, #16", n, n)
	f.I("b.eq fold")
	f.Label("loop")
	centres(f, lower, upper, half, v, t)
	for k := range v {
		f.I("fmaxnm %v.4s, %v.4s, %v.4s", most[k], most[k], v[k])
	}
	f.I("subs %x, %x, #16", n, n)
	f.I("b.ne loop")
	f.Label("fold")
	f.I("fmaxnm %v.4s, %v.4s, %v.4s", most[0], most[0], most[1])
	f.I("fmaxnm %v.4s, %v.4s, %v.4s", most[2], most[2], most[3])
	f.I("fmaxnm %v.4s, %v.4s, %v.4s", most[0], most[0], most[2])
	f.I("fmaxnmv %s, %v.4s", most[0], most[0])
	f.ReturnFloat32("ret", most[0])
	f.I("ret")
}

func expCentres(file *arm64.File) {
	f := file.Func(arm64.NEON, "ExpCentres", "func(lane *float64, lower, upper *float32, n int, m, scale float32)",
		"adds e^((c-m)scale), c = (lower[i]+upper[i])/2, to lane[i%16], for n intervals, a positive multiple of 16.")
	lane, lower, upper, n := f.Param("lane"), f.Param("lower"), f.Param("upper"), f.Param("n")
	m, scale := f.ParamFloat32("m"), f.ParamFloat32("scale")
	half, least := spread32(f, 0.5), spread32(f, -86)
	sum := f.Vs(8)
	behind := f.X()
	f.I("add %x, %x, #64", behind, lane)
	f.I("ld1 %s, [%x]", list(sum[:4], "2d"), lane)
	f.I("ld1 %s, [%x]", list(sum[4:], "2d"), behind)
	r, q, p := f.Vs(4), f.Vs(4), f.Vs(4)
	t, bits := f.V(), f.X()
	use := func(c float32) arm64.V {
		f.Constant(bits, uint64(math.Float32bits(c)))
		f.I("dup %v.4s, %u", t, bits)
		return t
	}
	each := func(instruction string, dst, x []arm64.V, y func(k int) arm64.V) {
		for k := range dst {
			f.I(instruction+" %v.4s, %v.4s, %v.4s", dst[k], x[k], y(k))
		}
	}
	one := func(v arm64.V) func(int) arm64.V { return func(int) arm64.V { return v } }
	of := func(v []arm64.V) func(int) arm64.V { return func(k int) arm64.V { return v[k] } }

	f.Label("loop")
	centres(f, lower, upper, half, r, q)
	each("fsub", r, r, one(m))
	each("fmul", r, r, one(scale))
	f.Comment("Keep which are at least the least exponent: the others give zero.")
	keep := f.Vs(4)
	each("fcmge", keep, r, one(least))
	each("fmaxnm", r, r, one(least))
	each("fmul", q, r, one(use(0x1.715476p+0)))
	for k := range q {
		f.I("frintn %v.4s, %v.4s", q[k], q[k])
	}
	each("fmul", p, q, one(use(0x1.62p-1)))
	each("fsub", r, r, of(p))
	each("fmul", p, q, one(use(math.Ln2-0x1.62p-1)))
	each("fsub", r, r, of(p))
	each("fmul", p, r, one(use(1.0/5040)))
	for i, c := range []float32{1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1, 1} {
		if i > 0 {
			each("fmul", p, p, of(r))
		}
		each("fadd", p, p, one(use(c)))
	}
	f.Comment("Add the exponent.")
	for k := range q {
		f.I("fcvtns %v.4s, %v.4s", q[k], q[k])
		f.I("shl %v.4s, %v.4s, #23", q[k], q[k])
	}
	each("add", p, p, of(q))
	for k := range p {
		f.I("and %v.16b, %v.16b, %v.16b", p[k], p[k], keep[k])
	}
	f.Comment("Sum in float64.")
	for k := range p {
		f.I("fcvtl %v.2d, %v.2s", r[k], p[k])
		f.I("fcvtl2 %v.2d, %v.4s", q[k], p[k])
		f.I("fadd %v.2d, %v.2d, %v.2d", sum[2*k], sum[2*k], r[k])
		f.I("fadd %v.2d, %v.2d, %v.2d", sum[2*k+1], sum[2*k+1], q[k])
	}
	f.I("subs %x, %x, #16", n, n)
	f.I("b.ne loop")
	f.I("st1 %s, [%x]", list(sum[:4], "2d"), lane)
	f.I("st1 %s, [%x]", list(sum[4:], "2d"), behind)
	f.I("ret")
}

// pairs puts numbers in the lanes of new registers, two in each.
func pairs(f *arm64.Func, numbers ...float64) []arm64.V {
	v, x := f.Vs((len(numbers)+1)/2), f.X()
	for i, c := range numbers {
		f.Constant(x, math.Float64bits(c))
		if i%2 == 0 {
			f.I("fmov %d, %x", v[i/2], x)
		} else {
			f.I("ins %v.d[1], %x", v[i/2], x)
		}
	}
	f.FreeX(x)
	return v
}

func expBlocks(file *arm64.File, name string, store bool) {
	signature, doc := "func(lane, x *float64, n int, m float64)", "adds e^(x[i]-m) to lane[i%8]"
	if store {
		signature, doc = "func(lane, dst, x *float64, n int, m float64)", "stores e^(x[i]-m) in dst and adds it to lane[i%8],"
	}
	f := file.Func(arm64.NEON, name, signature, doc+" for n elements, a positive multiple of 8.")
	lane, x, n := f.Param("lane"), f.Param("x"), f.Param("n")
	var dst arm64.X
	if store {
		dst = f.Param("dst")
	}
	m := f.ParamFloat64("m")
	sum := f.Vs(4)
	f.I("ld1 %s, [%x]", list(sum, "2d"), lane)
	least := f.V()
	bits := f.X()
	f.Constant(bits, math.Float64bits(-708))
	f.I("dup %v.2d, %x", least, bits)
	reduce := pairs(f, math.Log2E, 0x1.62e42fee00000p-1, 0x1.a39ef35793c76p-33)
	// 1/13!, ..., 1/0!: two to a register, so that there are registers for four vectors. A lane is
	// spread out before its use.
	var coef []float64
	for i := 13; i >= 0; i-- {
		factorial := 1.0
		for j := 2; j <= i; j++ {
			factorial *= float64(j)
		}
		coef = append(coef, 1/factorial)
	}
	c := pairs(f, coef...)
	r, q, p, t := f.Vs(4), f.Vs(4), f.Vs(4), f.V()

	each := func(step func(k int)) {
		for k := range 4 {
			step(k)
		}
	}
	f.Label("loop")
	f.I("ld1 %s, [%x]", list(r, "2d"), x)
	each(func(k int) { f.I("fsub %v.2d, %v.2d, %v.2d", r[k], r[k], m) })
	each(func(k int) { f.I("fmaxnm %v.2d, %v.2d, %v.2d", r[k], r[k], least) })
	each(func(k int) { f.I("fmul %v.2d, %v.2d, %v.d[0]", q[k], r[k], reduce[0]) })
	each(func(k int) { f.I("frintn %v.2d, %v.2d", q[k], q[k]) })
	each(func(k int) { f.I("fmul %v.2d, %v.2d, %v.d[1]", p[k], q[k], reduce[0]) })
	each(func(k int) { f.I("fsub %v.2d, %v.2d, %v.2d", r[k], r[k], p[k]) })
	each(func(k int) { f.I("fmul %v.2d, %v.2d, %v.d[0]", p[k], q[k], reduce[1]) })
	each(func(k int) { f.I("fsub %v.2d, %v.2d, %v.2d", r[k], r[k], p[k]) })
	for i := 1; i < len(coef); i++ {
		if i == 1 {
			each(func(k int) { f.I("fmul %v.2d, %v.2d, %v.d[0]", p[k], r[k], c[0]) })
		} else {
			each(func(k int) { f.I("fmul %v.2d, %v.2d, %v.2d", p[k], p[k], r[k]) })
		}
		f.I("dup %v.2d, %v.d[%d]", t, c[i/2], i%2)
		each(func(k int) { f.I("fadd %v.2d, %v.2d, %v.2d", p[k], p[k], t) })
	}
	f.Comment("Add the exponent.")
	each(func(k int) { f.I("fcvtns %v.2d, %v.2d", q[k], q[k]) })
	each(func(k int) { f.I("shl %v.2d, %v.2d, #52", q[k], q[k]) })
	each(func(k int) { f.I("add %v.2d, %v.2d, %v.2d", p[k], p[k], q[k]) })
	f.Comment("Below the least exponent the result is replaced by zero.")
	f.I("ld1 %s, [%x], #64", list(r, "2d"), x)
	each(func(k int) { f.I("fsub %v.2d, %v.2d, %v.2d", r[k], r[k], m) })
	each(func(k int) { f.I("fcmge %v.2d, %v.2d, %v.2d", r[k], r[k], least) })
	each(func(k int) { f.I("and %v.16b, %v.16b, %v.16b", p[k], p[k], r[k]) })
	each(func(k int) { f.I("fadd %v.2d, %v.2d, %v.2d", sum[k], sum[k], p[k]) })
	if store {
		f.I("st1 %s, [%x], #64", list(p, "2d"), dst)
	}
	f.I("subs %x, %x, #8", n, n)
	f.I("b.ne loop")
	f.I("st1 %s, [%x]", list(sum, "2d"), lane)
	f.I("ret")
}
