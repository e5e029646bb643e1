package main

import "github.com/learning-to-screen/l2s/gen/internal/arm64"

// gather is the float32 gather-dot over candidate rows, and the check of their
// ids.
func gather() *arm64.File {
	file := &arm64.File{}
	f := file.Func(arm64.NEON, "GatherDot", "func(dst, rows *float32, ids *uint32, n int, h *float32, d int)",
		"computes dst[j] = rows[ids[j]].h for n ids into rows of d elements.")
	done4, done1 := storeSums(f)
	rows{Func: f, gather: true, done4: done4, done1: done1}.emit()

	f = file.Func(arm64.NEON, "MaxID", "func(ids *uint32, n int) uint32",
		"returns the largest of n ids, n a positive multiple of 16.")
	maxBits(f, "ids", func(arm64.V) {})
	return file
}

// maxBits returns the largest of the n numbers of a parameter, a positive multiple of 16. prepare
// turns a vector into the one that is compared.
func maxBits(f *arm64.Func, param string, prepare func(arm64.V)) {
	const larger = "umax %v.4s, %v.4s, %v.4s"
	p, n := f.Param(param), f.Param("n")
	most, v := f.Zeros(4), f.Vs(4)
	f.Label("loop")
	f.I("ld1 %s, [%x], #64", list(v, "4s"), p)
	for k := range v {
		prepare(v[k])
		f.I(larger, most[k], most[k], v[k])
	}
	f.I("subs %x, %x, #16", n, n)
	f.I("b.ne loop")
	for step := 2; step > 0; step /= 2 {
		for k := range step {
			f.I(larger, most[k], most[k], most[k+step])
		}
	}
	f.I("umaxv %s, %v.4s", most[0], most[0])
	x := f.X()
	f.I("fmov %u, %s", x, most[0])
	f.Return32("ret", x)
	f.I("ret")
}
