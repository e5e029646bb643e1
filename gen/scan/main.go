// Command scan generates the dense float32 row scan.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"

	"github.com/learning-to-screen/l2s/gen/internal/emit"
)

func main() {
	emit.Begin()
	for _, l := range emit.Levels {
		l.Function("Scan", "func(dst, rows *float32, n int, h *float32, d int)",
			"computes dst[i] = rows[i].h for n rows of d elements.")
		done4, done1 := emit.StoreSums()
		emit.Rows{Level: l, Done4: done4, Done1: done1}.Emit()

		add(l)
	}
	// Vectors of 32 bytes read one stream of short rows best, since fewer of them cross two cache
	// lines; so this form has only one width.
	l := emit.AVX2
	l.Function("ScanSingle", "func(dst, rows *float32, n int, h *float32, d int)",
		"is Scan with the rows read one by one, as one stream.")
	_, done1 := emit.StoreSums()
	emit.Rows{Level: l, Single: true, Done1: done1}.Emit()
	Generate()
}

// add generates the addition of the bias to the scores.
func add(l emit.Level) {
	l.Function("Add", "func(dst, x *float32, n int)", "computes dst[i] += x[i] for n elements, a positive multiple of 16.")
	dst := Load(Param("dst"), GP64())
	x := Load(Param("x"), GP64())
	n := Load(Param("n"), GP64())
	v := l.Vecs(64 / l.Bytes)
	Label("loop")
	for k := range v {
		VMOVUPS(Mem{Base: dst, Disp: k * l.Bytes}, v[k])
		VADDPS(Mem{Base: x, Disp: k * l.Bytes}, v[k], v[k])
		VMOVUPS(v[k], Mem{Base: dst, Disp: k * l.Bytes})
	}
	ADDQ(I32(64), dst)
	ADDQ(I32(64), x)
	SUBQ(I32(16), n)
	JNZ(LabelRef("loop"))
	emit.End()
}
