package main

import (
	"math"

	"github.com/learning-to-screen/l2s/gen/internal/arm64"
)

// exp is the exponentials of log-sum-exp and softmax.
//
// The operations and their order are the same as in kernels.Exp, without fused
// multiply-adds, so that every level gives the same bits.
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
	return file
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
	// 1/13!, ..., 1/0!: two to a register, a lane of which is spread out where it
	// is needed, so that four vectors fit beside them.
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
