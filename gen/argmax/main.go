// Command argmax generates the cluster argmax: a row scan fused with the
// argmax of its scores.
package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/learning-to-screen/l2s/gen/internal/emit"
)

func main() {
	emit.Begin()
	for _, l := range emit.Levels {
		l.Function("ArgmaxDot", "func(rows *float32, n int, h *float32, d int) (index int, score float32)",
			"returns the row with the largest rows[i].h of n rows of d elements, the lowest of equals, and that score.")
		best := XMM()
		bits := GP32()
		MOVL(U32(math.Float32bits(float32(math.Inf(-1)))), bits)
		VMOVD(bits, best)
		index, i := GP64(), GP64()
		XORQ(index, index)
		XORQ(i, i)
		labels := 0
		// One compare per row; most scores are no record, and cost a branch that is predicted well.
		compare := func(score reg.VecVirtual) {
			labels++
			skip := emit.Name("no_record", labels)
			VUCOMISS(best, score)
			JBE(LabelRef(skip))
			VMOVAPS(score, best)
			MOVQ(i, index)
			Label(skip)
			INCQ(i)
		}
		done4 := func(sums reg.VecVirtual) {
			t := XMM()
			compare(sums)
			for k := 1; k < 4; k++ {
				VPERMILPS(U8(k), sums, t)
				compare(t)
			}
		}
		r := emit.Rows{Level: l, Done4: done4, Done1: compare}
		r.Finish = func() {
			Store(index, ReturnIndex(0))
			Store(best, ReturnIndex(1))
		}
		r.Emit()
	}
	Generate()
}
