package main

import "github.com/learning-to-screen/l2s/gen/internal/arm64"

// lanes is the number of partial sums of the reference arithmetic; two fill a
// register.
const lanes = 32

// element is a type of the elements of rows.
type element struct {
	name    string // as functions have it
	goType  string
	size    int
	widen   string // the instruction that makes four float32 of the lower half of a register
	widen2  string // and of the upper half
	vectors string // the arrangement of a register of them
}

var elements = []element{
	{name: "", goType: "float32", size: 4, vectors: "4s"},
	{name: "F16", goType: "uint16", size: 2, vectors: "8h", widen: "fcvtl %v.4s, %v.4h", widen2: "fcvtl2 %v.4s, %v.8h"},
	{name: "BF16", goType: "uint16", size: 2, vectors: "8h", widen: "shll %v.4s, %v.4h, #16", widen2: "shll2 %v.4s, %v.8h, #16"},
}

// ref is the reference arithmetic: exact products of float32 summed in float64,
// element i in lane i mod 32, lanes combined by halves.
func ref() *arm64.File {
	file := &arm64.File{}
	for _, e := range elements {
		f := file.Func(arm64.NEON, "RefScan"+e.name, "func(dst *float64, rows *"+e.goType+", n int, h *float32, d int)",
			"computes dst[i] = rows[i].h for n rows of d elements"+e.doc()+" by the reference arithmetic.")
		reference{Func: f, element: e}.emit()
		f = file.Func(arm64.NEON, "RefGatherDot"+e.name, "func(dst *float64, rows *"+e.goType+", ids *uint32, n int, h *float32, d int)",
			"computes dst[j] = rows[ids[j]].h for n ids into rows of d elements"+e.doc()+" by the reference arithmetic.")
		reference{Func: f, element: e, gather: true}.emit()
	}
	return file
}

func (e element) doc() string {
	return map[string]string{"": "", "F16": " in float16", "BF16": " in bfloat16"}[e.name]
}

type reference struct {
	*arm64.Func
	element
	gather bool

	acc  []arm64.V // the lanes
	h, x []arm64.V // elements of h and of a row
	t    []arm64.V // scratch
}

func (r reference) emit() {
	dst, row := r.Param("dst"), r.Param("rows")
	var ids arm64.X
	if r.gather {
		ids = r.Param("ids")
	}
	n, h, d := r.Param("n"), r.Param("h"), r.Param("d")
	stride, rest, part, whole := r.X(), r.X(), r.X(), r.X()
	hp, p, left, at := r.X(), r.X(), r.X(), r.X()
	r.acc, r.h, r.x, r.t = r.Vs(lanes/2), r.Vs(4), r.Vs(4), r.Vs(3)
	partH, partX := r.Vs(2), r.Vs(2)

	r.Comment("rest is the elements that do not fill all lanes, part the elements of rest that do not fill four.")
	r.I("lsl %x, %x, #%d", stride, d, log2(r.size))
	r.I("and %x, %x, #%d", rest, d, lanes-1)
	r.I("and %x, %x, #3", part, d)
	r.I("lsr %x, %x, #5", whole, d)
	r.I("cbz %x, row", part)
	r.I("sub %x, %x, %x", at, d, part)
	r.I("add %x, %x, %x, lsl #2", at, h, at)
	r.few(elements[0], "h", part, at, partH)

	r.Label("row")
	if r.gather {
		r.I("ldr %u, [%x], #4", p, ids)
		r.I("madd %x, %x, %x, %x", p, p, stride, row)
	} else {
		r.I("mov %x, %x", p, row)
		r.I("add %x, %x, %x", row, row, stride)
	}
	r.I("mov %x, %x", hp, h)
	r.Clear(r.acc...)
	r.I("mov %x, %x", left, whole)
	r.I("cbz %x, rest", left)
	r.Label("lanes")
	const quads = lanes / 4
	for k := 0; k < quads; k += 4 {
		r.I("ld1 %s, [%x], #64", list(r.h, "4s"), hp)
		count := r.size // registers that four quads fill
		r.I("ld1 %s, [%x], #%d", list(r.x[:count], r.vectors), p, 16*count)
		for j := range 4 {
			x, upper := r.x[j*count/4], count == 2 && j%2 == 1
			r.quad(k+j, r.h[j], x, upper)
		}
	}
	r.I("subs %x, %x, #1", left, left)
	r.I("b.ne lanes")

	r.Label("rest")
	r.I("cbz %x, combine", rest)
	r.I("cbz %x, quads", part)
	r.I("sub %x, %x, %x", at, rest, part)
	r.I("add %x, %x, %x, lsl #%d", at, p, at, log2(r.size))
	r.few(r.element, "x", part, at, partX)
	r.Label("quads")
	r.I("mov %x, %x", left, rest)
	for k := range quads {
		r.I("subs %x, %x, #4", left, left)
		r.I("b.lt part_%d", k)
		r.I("ldr %q, [%x], #16", r.h[0], hp)
		r.I(map[int]string{4: "ldr %q, [%x], #16", 2: "ldr %d, [%x], #8"}[r.size], r.x[0], p)
		r.quad(k, r.h[0], r.x[0], false)
	}
	for k := range quads {
		r.Label("part_%d", k)
		r.I("cbz %x, combine", part)
		for j := range 2 {
			r.I("fmla %v.2d, %v.2d, %v.2d", r.acc[2*k+j], partX[j], partH[j])
		}
		if k < quads-1 {
			r.I("b combine")
		}
	}
	r.Label("combine")
	for step := len(r.acc) / 2; step > 0; step /= 2 {
		for k := range step {
			r.I("fadd %v.2d, %v.2d, %v.2d", r.acc[k], r.acc[k], r.acc[k+step])
		}
	}
	r.I("faddp %d, %v.2d", r.acc[0], r.acc[0])
	r.I("str %d, [%x], #8", r.acc[0], dst)
	r.I("subs %x, %x, #1", n, n)
	r.I("b.ne row")
	r.I("ret")
}

// quad multiplies four elements of h by four of a row, in the lower or upper part of
// x, and adds the products to lanes 4k to 4k+3.
func (r reference) quad(k int, h, x arm64.V, upper bool) {
	if r.widen != "" {
		widen := r.widen
		if upper {
			widen = r.widen2
		}
		r.I(widen, r.t[2], x)
		x = r.t[2]
	}
	r.I("fcvtl2 %v.2d, %v.4s", r.t[0], h)
	r.I("fcvtl2 %v.2d, %v.4s", r.t[1], x)
	r.I("fmla %v.2d, %v.2d, %v.2d", r.acc[2*k+1], r.t[1], r.t[0])
	r.I("fcvtl %v.2d, %v.2s", r.t[0], h)
	r.I("fcvtl %v.2d, %v.2s", r.t[1], x)
	r.I("fmla %v.2d, %v.2d, %v.2d", r.acc[2*k], r.t[1], r.t[0])
}

// few loads the last one, two or three elements, widened to four float64, the rest zero.
func (r reference) few(e element, label string, count, at arm64.X, to []arm64.V) {
	one, two, lane := "%s", "%d", "s"
	if e.size == 2 {
		one, two, lane = "%h", "%s", "h"
	}
	v := r.t[2]
	r.I("tbz %x, #1, one_%s", count, label)
	r.I("ldr "+two+", [%x], #%d", v, at, 2*e.size)
	r.I("tbz %x, #0, few_%s", count, label)
	r.I("ld1 {%v."+lane+"}[2], [%x]", v, at)
	r.I("b few_%s", label)
	r.Label("one_%s", label)
	r.I("ldr "+one+", [%x]", v, at)
	r.Label("few_%s", label)
	if e.widen != "" {
		r.I(e.widen, v, v)
	}
	r.I("fcvtl %v.2d, %v.2s", to[0], v)
	r.I("fcvtl2 %v.2d, %v.4s", to[1], v)
}

// log2 returns the binary logarithm of a size.
func log2(size int) int { return map[int]int{2: 1, 4: 2}[size] }
