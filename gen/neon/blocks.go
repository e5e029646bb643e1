package main

import (
	"fmt"

	"github.com/learning-to-screen/l2s/gen/internal/arm64"
	"github.com/learning-to-screen/l2s/gen/internal/layout"
)

// The intervals of logits from rows of quantised blocks: gen/blocks describes them. Products of
// signed bytes need no bias here: a code is q 128/B, with B half of the range of q, or for types
// with a minimum q, and sums of four products with H = 128 hi + lo make a lane.

const (
	// aheadRows is the number of rows by which the prefetches of a list of rows are ahead.
	aheadRows = 3
)

// blockKind is a type of blocks; the layouts are in internal/codes/kernels/quantised.go.
type blockKind struct {
	suffix  string
	weights int // of a block
	bytes   int
	mins    bool // a block has a minimum too
	bits    int  // of a code
	codes   int  // the place of the codes, or of their lower four bits
	upper   int  // the place of the bits above those
}

var blockKinds = []blockKind{
	{"Q80", 32, 34, false, 8, 2, 0},
	{"Q40", 32, 18, false, 4, 2, 0},
	{"Q50", 32, 22, false, 5, 6, 2},
	{"Q41", 32, 20, true, 4, 4, 0},
	{"Q51", 32, 24, true, 5, 8, 4},
	{"Q4K", 256, 144, true, 4, 16, 0},
	{"Q5K", 256, 176, true, 5, 48, 16},
	{"Q6K", 256, 210, false, 6, 0, 128},
}

// pairBytes is the size of two groups of 32 weights in the planes of a context: 64 bytes of hi, 64
// of lo, and for types with a minimum 16 lanes, which are sum H as float32.
func (k blockKind) pairBytes() int {
	if k.mins {
		return 192
	}
	return 128
}

func blocks() *arm64.File {
	file := &arm64.File{}
	for _, l := range []arm64.Level{arm64.NEON, arm64.NEONDot} {
		for _, k := range blockKinds {
			for _, contexts := range []int{1, layout.BatchContexts} {
				name, doc := "BlockBounds", "one context"
				if contexts > 1 {
					name, doc = "BlockBatch", fmt.Sprintf("%d contexts, with the intervals of context c at [c*ld]", contexts)
				}
				f := file.Func(l, name+k.suffix, "func(lower, upper *float32, ld int, rows *byte, ids *uint32, n, blocks int, b *byte)",
					fmt.Sprintf("computes the intervals of n rows, the rows ids or, if ids is nil, the first from rows on, for %s. blocks is the number of blocks of a row. b is a %s.", doc, layout.BlockBound))
				(&blockBounds{Func: f, blockKind: k, contexts: contexts}).emit()
			}
		}
	}
	return file
}

type blockBounds struct {
	*arm64.Func
	blockKind
	contexts int

	p, planes  arm64.X   // the block, and the pair of groups of the contexts
	acc        []arm64.V // the 16 lanes of each context
	d, m       []arm64.V // four factors each, and minima
	mask, sign arm64.V   // the mask of the bits of a code at its place in a byte, and 128
	powers     arm64.V   // 1 << i in byte i of eight, for upper bits of small blocks
	high       []arm64.V // the upper bits of all groups, for Q5_K
	x, w, t    []arm64.V // codes, bytes of a context, scratch
}

// addMinimum is the instruction for a minimum, which small blocks add and large ones subtract.
func (f *blockBounds) addMinimum() string {
	if f.large() {
		return "fmls"
	}
	return "fmla"
}

func (f *blockBounds) large() bool { return f.weights == 256 }

// low is the bit of a byte that a code begins at: without a minimum it ends at the sign.
func (f *blockBounds) low() int {
	if f.mins {
		return 0
	}
	return 8 - f.bits
}

func (f *blockBounds) emit() {
	lower, upper, rows, ids, n, b := f.Param("lower"), f.Param("upper"), f.Param("rows"), f.Param("ids"), f.Param("n"), f.Param("b")
	i, id, left, bytes := f.X(), f.X(), f.X(), f.X()
	f.p, f.planes = f.X(), f.X()
	f.registers(i)
	f.I("ldr %x, [%x, #%d]", bytes, b, layout.BlockBound.At("bytes"))
	f.I("mov %x, xzr", i)

	f.Label("row")
	f.I("mov %x, %x", id, i)
	f.I("cbz %x, named", ids)
	f.I("ldr %u, [%x], #4", id, ids)
	f.I("add %x, %x, #%d", left, i, aheadRows)
	f.I("cmp %x, %x", left, n)
	f.I("b.ge named")
	f.I("ldr %u, [%x, #%d]", left, ids, 4*(aheadRows-1))
	f.I("madd %x, %x, %x, %x", left, left, bytes, rows)
	f.I("add %x, %x, %x", f.p, left, bytes)
	f.Label("ask")
	f.I("prfm pldl1keep, [%x]", left)
	f.I("add %x, %x, #64", left, left)
	f.I("cmp %x, %x", left, f.p)
	f.I("b.lt ask")
	f.Label("named")
	f.I("madd %x, %x, %x, %x", f.p, id, bytes, rows)
	f.I("ldr %x, [%x, #%d]", f.planes, b, layout.BlockBound.At("planes"))
	f.Clear(f.acc...)
	f.Load("blocks", left)

	next := func() {
		f.I("add %x, %x, #%d", f.p, f.p, f.bytes)
		f.I("subs %x, %x, #1", left, left)
	}
	f.Label("blocks")
	f.factors()
	for g := 0; g < f.weights/32; g += 2 {
		f.group(g, 0)
		if f.large() {
			f.group(g+1, 1)
		} else {
			next()
			f.I("b.eq sums")
			f.factors()
			f.group(g, 1)
		}
		f.I("add %x, %x, #%d", f.planes, f.planes, f.pairBytes()*f.contexts)
	}
	next()
	f.I("b.ne blocks")
	f.Label("sums")
	f.finish(lower, upper, id, b)
	f.I("add %x, %x, #1", i, i)
	f.I("cmp %x, %x", i, n)
	f.I("b.lt row")
	f.I("ret")
}

// registers takes the vector registers and sets those that do not change.
func (f *blockBounds) registers(scratch arm64.X) {
	f.acc, f.x, f.w, f.t = f.Vs(4*f.contexts), f.Vs(2), f.Vs(2), f.Vs(3)
	switch {
	case !f.large():
		f.d = f.Vs(1) // the minimum is next to the factor
	case f.mins:
		f.d, f.m = f.Vs(2), f.Vs(2)
	default:
		f.d = f.Vs(4)
	}
	if f.bits == 8 {
		return
	}
	f.mask = f.V()
	f.I("movi %v.16b, #%d", f.mask, (1<<f.bits-1)<<f.low())
	if !f.mins {
		f.sign = f.V()
		f.I("movi %v.16b, #128", f.sign)
	}
	switch {
	case f.bits != 5:
	case f.large():
		f.high = f.Vs(2)
	default:
		f.powers = f.V()
		f.Constant(scratch, 0x8040201008040201)
		f.I("dup %v.2d, %x", f.powers, scratch)
	}
}

// factors makes the factors and the minima of a block.
func (f *blockBounds) factors() {
	if !f.large() {
		f.scale(f.d[0], 0)
		return
	}
	scale, t := f.t[0], f.t[1]
	var to [2][2]arm64.V // the results of the lower and the upper halves of two registers
	if f.mins {
		to = [2][2]arm64.V{{f.d[0], f.m[0]}, {f.d[1], f.m[1]}}
		f.scale(scale, 0)
		f.Comment("Twelve bytes hold eight pairs of six bits, see kernels.scales4K: four pairs to each register.")
		first, rest := f.w[0], f.w[1]
		f.I("ldr %d, [%x, #4]", first, f.p)
		f.I("ldr %s, [%x, #12]", rest, f.p)
		f.I("ushr %v.8b, %v.8b, #4", t, rest)
		f.I("zip1 %v.2s, %v.2s, %v.2s", rest, rest, t)
		f.I("ushr %v.8b, %v.8b, #6", t, first)
		f.I("sli %v.8b, %v.8b, #4", rest, t)
		f.I("shl %v.8b, %v.8b, #2", first, first)
		f.I("ushr %v.8b, %v.8b, #2", first, first)
		f.I("sxtl %v.8h, %v.8b", first, first)
		f.I("sxtl %v.8h, %v.8b", rest, rest)
	} else {
		to = [2][2]arm64.V{{f.d[0], f.d[1]}, {f.d[2], f.d[3]}}
		f.scale(scale, 208)
		f.I("ldr %q, [%x, #192]", t, f.p)
		f.I("sxtl %v.8h, %v.8b", f.w[0], t)
		f.I("sxtl2 %v.8h, %v.16b", f.w[1], t)
	}
	for i, w := range f.w {
		for half, v := range to[i] {
			lane := 0
			if half == 0 {
				f.I("sxtl %v.4s, %v.4h", v, w)
			} else {
				f.I("sxtl2 %v.4s, %v.8h", v, w)
				if f.mins {
					lane = 1
				}
			}
			f.I("scvtf %v.4s, %v.4s", v, v)
			f.I("fmul %v.4s, %v.4s, %v.s[%d]", v, v, scale, lane)
		}
	}
	for half, v := range f.high {
		f.I("ldr %q, [%x, #%d]", v, f.p, f.upper+16*half)
	}
}

// scale loads the float16 of a block, the scale and, if there is one, the minimum after it.
func (f *blockBounds) scale(to arm64.V, at int) {
	if f.mins {
		f.I("ldr %s, [%x, #%d]", to, f.p, at)
	} else {
		f.I("ldr %h, [%x, #%d]", to, f.p, at)
	}
	f.I("fcvtl %v.4s, %v.4h", to, to)
}

// group adds the products of group g of a block, the first or, if odd is 1, the second of a pair.
func (f *blockBounds) group(g, odd int) {
	for half, x := range f.x {
		f.code(g, half, x)
	}
	x, w, sums, t := f.x, f.w, f.t[:2], f.t[2]
	for c := range f.contexts {
		load := func(part int) {
			f.I("ldp %q, %q, [%x, #%d]", w[0], w[1], f.planes, f.pairBytes()*c+64*part+32*odd)
		}
		for part := range 2 { // hi, then lo
			load(part)
			for half, sum := range sums {
				switch {
				case part > 0:
					f.I("shl %v.4s, %v.4s, #7", sum, sum)
				case f.Level == arm64.NEONDot:
					f.Clear(sum)
				}
				if f.Level == arm64.NEONDot {
					f.I("sdot %v.4s, %v.16b, %v.16b", sum, x[half], w[half])
					continue
				}
				// Sums of two products are at most 2*128*127 < 2^15 in magnitude.
				f.I("smull %v.8h, %v.8b, %v.8b", t, x[half], w[half])
				f.I("smull2 %v.8h, %v.16b, %v.16b", w[half], x[half], w[half])
				f.I("addp %v.8h, %v.8h, %v.8h", t, t, w[half])
				f.I([]string{"saddlp", "sadalp"}[part]+" %v.4s, %v.8h", sum, t)
			}
		}
		acc := f.acc[4*c+2*odd:]
		for half, sum := range sums {
			f.I("scvtf %v.4s, %v.4s", sum, sum)
			v, lane := f.factor(g, half, false)
			f.I("fmla %v.4s, %v.4s, %v.s[%d]", acc[half], sum, v, lane)
		}
		if f.mins {
			load(2)
			for half := range sums {
				v, lane := f.factor(g, half, true)
				f.I(f.addMinimum()+" %v.4s, %v.4s, %v.s[%d]", acc[half], w[half], v, lane)
			}
		}
	}
}

// factor returns the place of the factor of half of a group, or of the minimum.
func (f *blockBounds) factor(g, half int, minimum bool) (v arm64.V, lane int) {
	switch {
	case !f.large() && minimum:
		return f.d[0], 1
	case !f.large():
		return f.d[0], 0
	case minimum:
		return f.m[g/4], g % 4
	case !f.mins: // a factor for each half
		g = 2*g + half
	}
	return f.d[g/4], g % 4
}

// code makes 16 codes, half of group g.
func (f *blockBounds) code(g, half int, x arm64.V) {
	at, upperHalf := f.codes+16*half, false // of the bytes
	switch {
	case f.bits == 8:
	case !f.large():
		at, upperHalf = f.codes, half == 1
	case f.mins:
		at, upperHalf = at+g/2*32, g%2 == 1
	default:
		at, upperHalf = at+g/4*64+g%2*32, g%4 >= 2
	}
	f.I("ldr %q, [%x, #%d]", x, f.p, at)
	if f.bits == 8 {
		return
	}
	low := f.low()
	right := func(to, from arm64.V, by int) arm64.V {
		if by == 0 {
			return from
		}
		f.I("ushr %v.16b, %v.16b, #%d", to, from, by)
		return to
	}
	if upperHalf {
		right(x, x, 4-low)
	} else if low > 0 {
		f.I("shl %v.16b, %v.16b, #%d", x, x, low)
	}
	if f.bits > 4 {
		t := f.t[0]
		switch {
		case !f.large():
			four := f.t[1]
			if half == 0 {
				f.Comment("Each of four bytes in eight, of which each has its bit.")
				f.I("ldr %s, [%x, #%d]", four, f.p, f.upper)
				f.I("zip1 %v.16b, %v.16b, %v.16b", four, four, four)
				f.I("zip1 %v.16b, %v.16b, %v.16b", four, four, four)
			}
			f.I("zip%d %v.16b, %v.16b, %v.16b", half+1, t, four, four)
			f.I("cmtst %v.16b, %v.16b, %v.16b", t, t, f.powers)
		case f.mins:
			t = right(t, f.high[half], g)
		default:
			f.I("ldr %q, [%x, #%d]", t, f.p, f.upper+g/4*32+16*half)
			right(t, t, g%4*2)
		}
		f.I("sli %v.16b, %v.16b, #%d", x, t, low+4)
	}
	// Other bits of the byte remain next to the code, unless a shift put zeros there.
	if upperHalf == (low > 0) || f.mins && f.bits > 4 {
		f.I("and %v.16b, %v.16b, %v.16b", x, x, f.mask)
	}
	if !f.mins {
		f.I("eor %v.16b, %v.16b, %v.16b", x, x, f.sign)
	}
}

// finish makes intervals of the sums of row id, and stores them.
func (f *blockBounds) finish(lower, upper, id, b arm64.X) {
	var y []arm64.V
	for c := range f.contexts {
		a := f.acc[4*c:]
		f.I("fadd %v.4s, %v.4s, %v.4s", a[0], a[0], a[2])
		f.I("fadd %v.4s, %v.4s, %v.4s", a[1], a[1], a[3])
		f.I("faddp %v.4s, %v.4s, %v.4s", a[0], a[0], a[1])
		y = append(y, a[0])
	}
	for range 2 {
		var half []arm64.V
		for i := 0; i < len(y); i += 2 {
			f.I("faddp %v.4s, %v.4s, %v.4s", y[i], y[i], y[min(i+1, len(y)-1)])
			half = append(half, y[i])
		}
		y = half
	}
	a, r, row, t, at, meta := y[0], f.t[0], f.t[1], f.t[2], f.p, f.planes
	of := func(name string) { f.I("ldr %q, [%x, #%d]", t, b, layout.BlockBound.At(name)) }
	f.Comment("A row has its norm, bias and error.")
	f.I("ldr %x, [%x, #%d]", meta, b, layout.BlockBound.At("meta"))
	f.I("add %x, %x, %x, lsl #4", meta, meta, id)
	f.I("ldr %q, [%x]", row, meta)
	of("scale")
	f.I("fmul %v.4s, %v.4s, %v.4s", a, a, t)
	f.I("dup %v.4s, %v.s[1]", t, row)
	f.I("fadd %v.4s, %v.4s, %v.4s", a, a, t)
	of("err")
	f.I("fmul %v.4s, %v.4s, %v.s[0]", r, t, row)
	of("norm")
	f.I("fmul %v.4s, %v.4s, %v.s[2]", t, t, row)
	f.I("fadd %v.4s, %v.4s, %v.4s", r, r, t)
	f.I("add %x, %x, #%d", at, b, layout.BlockBound.At("slack"))
	f.I("ld1r {%v.4s}, [%x]", t, at)
	f.I("fadd %v.4s, %v.4s, %v.4s", r, r, t)
	f.I("fsub %v.4s, %v.4s, %v.4s", t, a, r)
	f.I("fadd %v.4s, %v.4s, %v.4s", a, a, r)
	ld := f.planes
	f.Load("ld", ld)
	for _, end := range []struct {
		to arm64.X
		v  arm64.V
	}{{lower, t}, {upper, a}} {
		f.I("mov %x, %x", at, end.to)
		for c := range f.contexts {
			f.I("st1 {%v.s}[%d], [%x]", end.v, c, at)
			if c < f.contexts-1 {
				f.I("add %x, %x, %x, lsl #2", at, at, ld)
			}
		}
		f.I("add %x, %x, #4", end.to, end.to)
	}
}
