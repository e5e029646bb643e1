package main

import (
	"math"

	"github.com/learning-to-screen/l2s/gen/internal/arm64"
)

// argmax is the cluster argmax: a row scan fused with the argmax of its scores.
func argmax() *arm64.File {
	file := &arm64.File{}
	f := file.Func(arm64.NEON, "ArgmaxDot", "func(rows *float32, n int, h *float32, d int) (index int, score float32)",
		"returns the row with the largest rows[i].h of n rows of d elements, the lowest of equals, and that score.")
	index, i, bits := f.X(), f.X(), f.X()
	best, t := f.V(), f.V()
	f.Constant(bits, uint64(math.Float32bits(float32(math.Inf(-1)))))
	f.I("fmov %s, %u", best, bits)
	f.FreeX(bits)
	f.Constant(index, 0)
	f.Constant(i, 0)
	labels := 0
	// Only records pass the branch, and no NaN.
	compare := func(score arm64.V, row int) {
		labels++
		f.I("fcmp %s, %s", score, best)
		f.I("b.le no_record_%d", labels)
		f.I("fmov %s, %s", best, score)
		f.I("add %x, %x, #%d", index, i, row)
		f.Label("no_record_%d", labels)
	}
	blocks := 0
	// One compare for four scores: most blocks have no record.
	done4 := func(sums arm64.V) {
		blocks++
		f.I("fmaxnmv %s, %v.4s", t, sums)
		f.I("fcmp %s, %s", t, best)
		f.I("b.le no_records_%d", blocks)
		for k := range 4 {
			f.I("dup %v.4s, %v.s[%d]", t, sums, k)
			compare(t, k)
		}
		f.Label("no_records_%d", blocks)
		f.I("add %x, %x, #4", i, i)
	}
	done1 := func(sum arm64.V) {
		compare(sum, 0)
		f.I("add %x, %x, #1", i, i)
	}
	finish := func() {
		f.Return("index", index)
		f.ReturnFloat32("score", best)
	}
	rows{Func: f, done4: done4, done1: done1, finish: finish}.emit()
	return file
}
