// Command gather generates the float32 gather-dot over candidate rows, and
// the check of their ids.
package main

import (
	. "github.com/mmcloughlin/avo/build"

	"github.com/learning-to-screen/l2s/gen/internal/emit"
)

func main() {
	emit.Begin()
	for _, l := range emit.Levels {
		l.Function("GatherDot", "func(dst, rows *float32, ids *uint32, n int, h *float32, d int)",
			"computes dst[j] = rows[ids[j]].h for n ids into rows of d elements.")
		done4, done1 := emit.StoreSums()
		emit.Rows{Level: l, Gather: true, Done4: done4, Done1: done1}.Emit()
		maxID(l)
	}
	Generate()
}
