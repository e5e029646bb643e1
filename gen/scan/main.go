// Command scan generates the dense float32 row scan.
package main

import (
	. "github.com/mmcloughlin/avo/build"

	"github.com/learning-to-screen/l2s/gen/internal/emit"
)

func main() {
	emit.Begin()
	for _, l := range emit.Levels {
		l.Function("Scan", "func(dst, rows *float32, n int, h *float32, d int)",
			"computes dst[i] = rows[i].h for n rows of d elements.")
		done4, done1 := emit.StoreSums()
		emit.Rows{Level: l, Done4: done4, Done1: done1}.Emit()
	}
	Generate()
}
