// Command prefetch generates requests for cache lines that are soon to be read.
//
// They are of the baseline of every CPU, so that one form serves all levels.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/learning-to-screen/l2s/gen/internal/emit"
)

func main() {
	emit.Begin()
	emit.AVX2.Function("PrefetchLines", "func(lines *uintptr, n int)",
		"asks for the cache lines at n addresses, n at least 1.")
	lines, n := Load(Param("lines"), GP64()).(reg.GPVirtual), Load(Param("n"), GP64()).(reg.GPVirtual)
	line := GP64()
	Label("line")
	MOVQ(Mem{Base: lines}, line)
	PREFETCHT0(Mem{Base: line})
	ADDQ(I32(8), lines)
	DECQ(n)
	JNZ(LabelRef("line"))
	emit.End()
	Generate()
}
