package main

import (
	"math"

	"github.com/learning-to-screen/l2s/gen/internal/arm64"
)

// topk is the passes over scores that top-k selection is made of.
func topk() *arm64.File {
	file := &arm64.File{}
	kthOfLanes(file)
	nextAbove(file)
	selectAtLeast(file)
	return file
}

// kthOfLanes finds the k-th largest of sixteen partial maxima without a branch that depends on the
// scores: each lane counts the lanes above it, and the answer is the smallest lane with fewer than
// k lanes above it.
func kthOfLanes(file *arm64.File) {
	f := file.Func(arm64.NEON, "KthOfLanes", "func(lane, scores *float32, n int, k int) float32",
		"stores the largest of the scores i, i+16, i+32, ... at lane[i], i < 16, and returns the k-th largest of the lanes, 1 <= k <= 16; n is a positive multiple of 16.")
	lane, p, n := f.Param("lane"), f.Param("scores"), f.Param("n")
	most, v := f.Vs(4), f.Vs(4)
	f.I("ld1 %s, [%x], #64", list(most, "4s"), p)
	f.I("subs %x, %x, #16", n, n)
	f.I("b.eq lanes")
	f.Label("loop")
	f.I("ld1 %s, [%x], #64", list(v, "4s"), p)
	for k := range v {
		f.I("fmaxnm %v.4s, %v.4s, %v.4s", most[k], most[k], v[k])
	}
	f.I("subs %x, %x, #16", n, n)
	f.I("b.ne loop")
	f.Label("lanes")
	f.I("st1 %s, [%x]", list(most, "4s"), lane)
	above := f.Zeros(4)
	x := f.V()
	for i := range 16 {
		f.I("dup %v.4s, %v.s[%d]", x, most[i/4], i%4)
		for k := range most {
			f.I("fcmgt %v.4s, %v.4s, %v.4s", v[k], x, most[k])
			f.I("sub %v.4s, %v.4s, %v.4s", above[k], above[k], v[k])
		}
	}
	k, bits := f.Param("k"), f.X()
	limit, inf := f.V(), f.V()
	f.I("dup %v.4s, %u", limit, k)
	f.Constant(bits, uint64(math.Float32bits(float32(math.Inf(1)))))
	f.I("dup %v.4s, %u", inf, bits)
	f.Comment("Lanes with k or more above them are out.")
	for k := range most {
		f.I("cmgt %v.4s, %v.4s, %v.4s", above[k], limit, above[k])
		f.I("bsl %v.16b, %v.16b, %v.16b", above[k], most[k], inf)
	}
	f.I("fminnm %v.4s, %v.4s, %v.4s", above[0], above[0], above[1])
	f.I("fminnm %v.4s, %v.4s, %v.4s", above[2], above[2], above[3])
	f.I("fminnm %v.4s, %v.4s, %v.4s", above[0], above[0], above[2])
	f.I("fminnmv %s, %v.4s", x, above[0])
	f.ReturnFloat32("ret", x)
	f.I("ret")
}

// compare leaves in bits four bits for each of the 16 scores in v: ones where it and
// the threshold satisfy the comparison, which is false for NaN.
func compare(f *arm64.Func, comparison string, v []arm64.V, threshold arm64.V, bits arm64.X) {
	for k := range v {
		f.I(comparison+" %v.4s, %v.4s, %v.4s", v[k], v[k], threshold)
	}
	f.I("uzp1 %v.8h, %v.8h, %v.8h", v[0], v[0], v[1])
	f.I("uzp1 %v.8h, %v.8h, %v.8h", v[2], v[2], v[3])
	f.I("uzp1 %v.16b, %v.16b, %v.16b", v[0], v[0], v[2])
	f.I("shrn %v.8b, %v.8h, #4", v[0], v[0])
	f.I("fmov %x, %d", bits, v[0])
}

// first puts the index of the lowest score in bits in at.
func first(f *arm64.Func, at, bits arm64.X) {
	f.I("rbit %x, %x", at, bits)
	f.I("clz %x, %x", at, at)
	f.I("lsr %x, %x, #2", at, at)
}

func nextAbove(file *arm64.File) {
	f := file.Func(arm64.NEON, "NextAbove", "func(scores *float32, n int, threshold float32) int",
		"returns the first i < n with scores[i] > threshold, or n. It looks at whole vectors of 16 only; n is a multiple of 16.")
	p, n := f.Param("scores"), f.Param("n")
	threshold := f.ParamFloat32("threshold")
	i, bits, at := f.X(), f.X(), f.X()
	v, t := f.Vs(4), f.Vs(2)
	f.Constant(i, 0)
	f.Label("loop")
	f.I("cmp %x, %x", i, n)
	f.I("b.ge none")
	f.I("ld1 %s, [%x], #64", list(v, "4s"), p)
	f.I("fmaxnm %v.4s, %v.4s, %v.4s", t[0], v[0], v[1])
	f.I("fmaxnm %v.4s, %v.4s, %v.4s", t[1], v[2], v[3])
	f.I("fmaxnm %v.4s, %v.4s, %v.4s", t[0], t[0], t[1])
	f.I("fmaxnmv %s, %v.4s", t[0], t[0])
	f.I("fcmp %s, %s", t[0], threshold)
	f.I("b.gt found")
	f.I("add %x, %x, #16", i, i)
	f.I("b loop")
	f.Label("found")
	compare(f, "fcmgt", v, threshold, bits)
	first(f, at, bits)
	f.I("add %x, %x, %x", i, i, at)
	f.Return("ret", i)
	f.I("ret")
	f.Label("none")
	f.Return("ret", n)
	f.I("ret")
}

func selectAtLeast(file *arm64.File) {
	f := file.Func(arm64.NEON, "SelectAtLeast", "func(dst *uint32, scores *float32, n int, threshold float32) int",
		"writes the i < n with scores[i] >= threshold to dst, ascending, and returns their number; n is a positive multiple of 16, and dst has room for n.")
	dst, p, n := f.Param("dst"), f.Param("scores"), f.Param("n")
	threshold := f.ParamFloat32("threshold")
	i, bits, at, one, below, start := f.X(), f.X(), f.X(), f.X(), f.X(), f.X()
	v := f.Vs(4)
	f.I("mov %x, %x", start, dst)
	f.Constant(i, 0)
	f.Constant(one, 0x1111111111111111)
	f.Label("loop")
	f.I("ld1 %s, [%x], #64", list(v, "4s"), p)
	compare(f, "fcmge", v, threshold, bits)
	f.Comment("Few are selected: most vectors end here.")
	f.I("cbz %x, done", bits)
	f.I("and %x, %x, %x", bits, bits, one)
	f.Label("more")
	first(f, at, bits)
	f.I("add %x, %x, %x", at, at, i)
	f.I("str %u, [%x], #4", at, dst)
	f.I("sub %x, %x, #1", below, bits)
	f.I("and %x, %x, %x", bits, bits, below)
	f.I("cbnz %x, more", bits)
	f.Label("done")
	f.I("add %x, %x, #16", i, i)
	f.I("cmp %x, %x", i, n)
	f.I("b.lt loop")
	f.I("sub %x, %x, %x", dst, dst, start)
	f.I("lsr %x, %x, #2", dst, dst)
	f.Return("ret", dst)
	f.I("ret")
}
