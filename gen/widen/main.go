// Command widen generates the conversion of float16 and bfloat16 to float32.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"

	"github.com/learning-to-screen/l2s/gen/internal/emit"
)

func main() {
	emit.Begin()
	for _, l := range emit.Levels {
		widen(l, emit.Float16)
		widen(l, emit.BFloat16)
	}
	Generate()
}

func widen(l emit.Level, e emit.Element) {
	l.Function("Widen"+e.Suffix, "func(dst *float32, x *uint16, n int)",
		"writes n elements as float32, n a positive multiple of 16.")
	dst := Load(Param("dst"), GP64())
	x := Load(Param("x"), GP64())
	n := Load(Param("n"), GP64())
	v := l.Vecs(64 / l.Bytes)
	Label("loop")
	for k := range v {
		e.Widen(Mem{Base: x, Disp: k * l.Bytes / 2}, v[k])
		VMOVUPS(v[k], Mem{Base: dst, Disp: k * l.Bytes})
	}
	ADDQ(I32(32), x)
	ADDQ(I32(64), dst)
	SUBQ(I32(16), n)
	JNZ(LabelRef("loop"))
	emit.End()
}
