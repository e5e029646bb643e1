package main

import "github.com/learning-to-screen/l2s/gen/internal/arm64"

// prefetch is requests for cache lines that are soon to be read.
func prefetch() *arm64.File {
	file := &arm64.File{}
	f := file.Func(arm64.NEON, "PrefetchLines", "func(lines *uintptr, n int)",
		"asks for the cache lines at n addresses, n at least 1.")
	lines, n, line := f.Param("lines"), f.Param("n"), f.X()
	f.Label("line")
	f.I("ldr %x, [%x], #8", line, lines)
	f.I("prfm pldl1keep, [%x]", line)
	f.I("subs %x, %x, #1", n, n)
	f.I("b.ne line")
	f.I("ret")
	return file
}
