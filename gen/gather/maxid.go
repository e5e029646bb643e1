package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/learning-to-screen/l2s/gen/internal/emit"
)

func maxID(l emit.Level) {
	lanes := l.Bytes / 4
	l.Function("MaxID", "func(ids *uint32, n int) uint32",
		"returns the largest of n ids, n a positive multiple of 16.")
	ids := Load(Param("ids"), GP64())
	n := Load(Param("n"), GP64()).(reg.GPVirtual)
	acc := l.Vecs(64 / l.Bytes)
	emit.Zero(acc...)
	Label("loop")
	for k := range acc {
		VPMAXUD(Mem{Base: ids, Disp: k * l.Bytes}, acc[k], acc[k])
	}
	ADDQ(I32(len(acc)*l.Bytes), ids)
	SUBQ(I32(len(acc)*lanes), n)
	JNZ(LabelRef("loop"))
	Store(l.FoldInts(acc, VPMAXUD), ReturnIndex(0))
	emit.End()
}
