package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/learning-to-screen/l2s/gen/internal/arm64"
	"github.com/learning-to-screen/l2s/gen/internal/layout"
)

// A row's record is its codes plus 128, padded to a multiple of 64 bytes whose last 16 are four
// float32: scale, bias, error and norm; if the codes fill the 64 the floats follow them. The
// vector's codes are zero if a record holds padding or floats, so whole chunks go through the
// products.
const (
	chunk = 64 // bytes of a record that one step takes
	group = 8  // rows whose products are computed together
)

const (
	rowsSignature   = "data *byte, stride int, n int, "
	gatherSignature = "data *byte, stride int, ids *uint32, n int, "
)

// codes is the int8 and int4 scans with their error envelope.
func codes() *arm64.File {
	file := &arm64.File{}
	for _, l := range []arm64.Level{arm64.NEON, arm64.NEONDot} {
		contract := fmt.Sprintf(" n is at least %d, stride a multiple of 64, or 16 more. b is a %s.", group, layout.Bound)
		for _, s := range []struct {
			name, signature, doc string
			nibbles              bool
		}{
			{"Int8Bounds", rowsSignature, "computes the intervals of n rows.", false},
			{"Int8GatherBounds", gatherSignature, "computes the intervals of the rows ids.", false},
			{"Int4Bounds", rowsSignature, "computes the intervals of n rows of 4-bit codes.", true},
		} {
			f := file.Func(l, s.name, "func(lower, upper *float32, "+s.signature+"b *byte)", s.doc+contract)
			bounds(f, newProduct(f, s.nibbles, 1), s.signature == gatherSignature)
		}
	}
	for _, l := range []arm64.Level{arm64.NEON, arm64.NEONDot} {
		for i, name := range []string{"Int8PanelBounds", "Int4PanelBounds"} {
			panelBounds(file.Func(l, name, "func(lower, upper *float32, data *byte, panels, steps int, b *byte)",
				fmt.Sprintf("computes the intervals of the %d rows of each panel, of %d codes times steps. panels and steps are positive. b is a %s.", codeRows, stepCodes<<i, layout.Bound)), i > 0)
		}
	}
	for _, l := range []struct {
		arm64.Level
		rows  int
		write func(f *arm64.Func, gather bool)
	}{{arm64.NEON, batchRows, batch}, {arm64.NEONDot, batchRows, batch}, {arm64.NEONI8MM, group, matrix}} {
		contract := fmt.Sprintf(" Context c's intervals are at lower[c*ld] and upper[c*ld]. contexts is 2 to %d. n is at least %d, stride a multiple of 64, or 16 more. b is a %s.",
			layout.BatchContexts, l.rows, layout.BatchBound)
		f := file.Func(l.Level, "Int8BoundsBatch", "func(lower, upper *float32, ld, contexts int, "+rowsSignature+"b *byte)",
			"computes the intervals of n rows."+contract)
		l.write(f, false)
		f = file.Func(l.Level, "Int8GatherBoundsBatch", "func(lower, upper *float32, ld, contexts int, "+gatherSignature+"b *byte)",
			"computes the intervals of the rows ids."+contract)
		l.write(f, true)
	}
	return file
}

// product is the way from the codes of rows and of vectors to sums of products.
type product struct {
	*arm64.Func
	nibbles bool
	mask    arm64.V // 128 in each byte, or 15 for 4-bit codes
	t       []arm64.V
}

func newProduct(f *arm64.Func, nibbles bool, temporaries int) product {
	p := product{Func: f, nibbles: nibbles, mask: f.V(), t: f.Vs(temporaries)}
	if nibbles {
		f.I("movi %v.16b, #15", p.mask)
	} else {
		f.I("movi %v.16b, #128", p.mask)
	}
	return p
}

// parts is the number of registers that the vector's codes for 16 bytes of a record
// take.
func (p product) parts() int {
	if p.nibbles {
		return 2
	}
	return 1
}

// decode turns bytes of a record into codes, in place: signed ones, or for 4-bit
// codes, in the lower halves of the bytes, w itself and then high.
func (p product) decode(w, high arm64.V) {
	if p.nibbles {
		p.I("ushr %v.16b, %v.16b, #4", high, w)
		p.I("and %v.16b, %v.16b, %v.16b", w, w, p.mask)
		return
	}
	p.I("eor %v.16b, %v.16b, %v.16b", w, w, p.mask)
}

// add adds the products of w, one register or two, with h to the four lanes of acc.
//
// Without the extension for them the products are computed in 16 bits: for signed codes the sum of
// two is at most 2*128*127 < 2^15 in magnitude, of 4-bit codes the sum of four is at most 4*15*127.
func (p product) add(acc arm64.V, w, h []arm64.V, t arm64.V) {
	if p.Level == arm64.NEONDot {
		for i := range h {
			p.I("sdot %v.4s, %v.16b, %v.16b", acc, w[i], h[i])
		}
		return
	}
	for i := range h {
		first := "smlal"
		if i == 0 {
			first = "smull"
		}
		p.I(first+" %v.8h, %v.8b, %v.8b", t, w[i], h[i])
		p.I("smlal2 %v.8h, %v.16b, %v.16b", t, w[i], h[i])
	}
	p.I("sadalp %v.4s, %v.8h", acc, t)
}

// records is where a scan's rows are.
type records struct {
	*arm64.Func
	data, stride, n arm64.X
	ids, last       arm64.X // the ids of the last block, if rows are gathered
	gather          bool
	block           int
}

func newRecords(f *arm64.Func, gather bool, block int) records {
	r := records{Func: f, data: f.Param("data"), stride: f.Param("stride"), n: f.Param("n"), gather: gather, block: block}
	if gather {
		r.ids, r.last = f.Param("ids"), f.X()
		f.I("add %x, %x, %x, lsl #2", r.last, r.ids, r.n)
		f.I("sub %x, %x, #%d", r.last, r.last, 4*block)
	}
	return r
}

// advance continues with the next block at the label, while there are rows. If less than a block
// remains, the last block overlaps the previous one: a row's interval depends on that row alone.
func (r records) advance(label string, lower, upper arm64.X) {
	r.I("subs %x, %x, #%d", r.n, r.n, r.block)
	r.I("b.eq %s_end", label)
	r.I("cmp %x, #%d", r.n, r.block)
	r.I("b.ge %s", label)
	back := r.X()
	r.I("sub %x, %x, #%d", back, r.n, r.block)
	r.I("add %x, %x, %x, lsl #2", lower, lower, back)
	r.I("add %x, %x, %x, lsl #2", upper, upper, back)
	if r.gather {
		r.I("add %x, %x, %x, lsl #2", r.ids, r.ids, back)
	} else {
		r.I("madd %x, %x, %x, %x", r.data, back, r.stride, r.data)
	}
	r.Constant(r.n, uint64(r.block))
	r.I("b %s", label)
	r.Label("%s_end", label)
	r.I("ret")
	r.FreeX(back)
}

// prefetchLines is the number of cache lines of a row that are prefetched one block ahead; the
// hardware continues from there.
const prefetchLines = 2

// addresses puts the addresses of the next block's records in p and advances to the block after it;
// if the rows are gathered, it prefetches their starts in that block.
func (r records) addresses(p []arm64.X) {
	if !r.gather {
		for _, p := range p {
			r.I("mov %x, %x", p, r.data)
			r.I("add %x, %x, %x", r.data, r.data, r.stride)
		}
		return
	}
	for _, p := range p {
		r.I("ldr %u, [%x], #4", p, r.ids)
		r.I("madd %x, %x, %x, %x", p, p, r.stride, r.data)
	}
	next, row := r.X(), r.X()
	r.Comment("The last block asks for its own rows again.")
	r.I("cmp %x, %x", r.ids, r.last)
	r.I("csel %x, %x, %x, ls", next, r.ids, r.last)
	for range p {
		r.I("ldr %u, [%x], #4", row, next)
		r.I("madd %x, %x, %x, %x", row, row, r.stride, r.data)
		for line := range prefetchLines {
			r.I("prfm pldl1keep, [%x, #%d]", row, chunk*line)
		}
	}
	r.FreeX(row, next)
}

// bounds emits the loop over blocks of rows and the function's end.
func bounds(f *arm64.Func, code product, gather bool) {
	lower, upper, b := f.Param("lower"), f.Param("upper"), f.Param("b")
	r := newRecords(f, gather, group)
	p := f.Xs(group)
	h := make([]arm64.X, code.parts())
	for i := range h {
		h[i] = f.X()
	}
	left := f.X()

	var scale, norm, err, slack, excess arm64.V
	fields := map[string]*arm64.V{"scale": &scale, "norm": &norm, "err": &err, "slack": &slack}
	if code.nibbles {
		fields["excess"] = &excess
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		v := f.V()
		*fields[name] = v
		f.I("add %x, %x, #%d", left, b, layout.Bound.At(name))
		f.I("ld1r {%v.4s}, [%x]", v, left)
	}

	f.Label("block")
	r.addresses(p)
	for i := range h {
		f.I("ldr %x, [%x, #%d]", h[i], b, layout.Bound.At([]string{"codes", "high"}[i]))
	}
	acc := f.Zeros(group)
	f.I("lsr %x, %x, #6", left, r.stride)
	codes := make([][]arm64.V, code.parts())
	for i := range codes {
		codes[i] = f.Vs(4)
	}
	w := f.Vs(4)
	high := w[0]
	if code.nibbles {
		high = f.V()
	}
	f.Label("products")
	for i := range codes {
		f.I("ld1 %s, [%x], #%d", list(codes[i], "16b"), h[i], chunk)
	}
	for k := range p {
		f.I("ld1 %s, [%x], #%d", list(w, "16b"), p[k], chunk)
		for j := range w {
			code.decode(w[j], high)
			if code.nibbles {
				code.add(acc[k], []arm64.V{w[j], high}, []arm64.V{codes[0][j], codes[1][j]}, code.t[0])
			} else {
				code.add(acc[k], w[j:j+1], codes[0][j:j+1], code.t[0])
			}
		}
	}
	f.I("subs %x, %x, #1", left, left)
	f.I("b.ne products")
	f.Comment("On to the ends of records that have their floats after the chunks.")
	f.I("lsl %x, %x, #58", left, r.stride)
	f.I("lsr %x, %x, #58", left, left)
	for _, p := range p {
		f.I("add %x, %x, %x", p, p, left)
	}

	meta := w
	for g := 0; g < group; g += 4 {
		f.Comment("The sums of four rows to the lanes of one register, their floats to the lanes of four registers.")
		f.I("addp %v.4s, %v.4s, %v.4s", acc[g], acc[g], acc[g+1])
		f.I("addp %v.4s, %v.4s, %v.4s", acc[g+2], acc[g+2], acc[g+3])
		f.I("addp %v.4s, %v.4s, %v.4s", acc[g], acc[g], acc[g+2])
		if code.nibbles {
			f.I("sub %v.4s, %v.4s, %v.4s", acc[g], acc[g], excess)
		}
		floats(f, p[g:g+4], meta, codes[0])
		a := meta[0]
		f.I("fmul %v.4s, %v.4s, %v.4s", a, a, scale)
		f.I("fmul %v.4s, %v.4s, %v.4s", meta[2], meta[2], norm)
		f.I("fmul %v.4s, %v.4s, %v.4s", meta[3], meta[3], err)
		interval(f, acc[g], meta, slack)
		f.I("str %q, [%x], #16", acc[g], lower)
		f.I("str %q, [%x], #16", a, upper)
	}
	r.advance("block", lower, upper)
}

// floats loads the last 16 bytes of the records that end at p, four floats each, and puts float f
// of all four rows in meta[f]. (LD4 to one lane would load and transpose at once, but each such
// load waits for the previous one.)
func floats(f *arm64.Func, p []arm64.X, meta, t []arm64.V) {
	for k := range p {
		f.I("ldr %q, [%x, #-16]", meta[k], p[k])
	}
	f.I("zip1 %v.4s, %v.4s, %v.4s", t[0], meta[0], meta[2])
	f.I("zip2 %v.4s, %v.4s, %v.4s", t[1], meta[0], meta[2])
	f.I("zip1 %v.4s, %v.4s, %v.4s", t[2], meta[1], meta[3])
	f.I("zip2 %v.4s, %v.4s, %v.4s", t[3], meta[1], meta[3])
	f.I("zip1 %v.4s, %v.4s, %v.4s", meta[0], t[0], t[2])
	f.I("zip2 %v.4s, %v.4s, %v.4s", meta[1], t[0], t[2])
	f.I("zip1 %v.4s, %v.4s, %v.4s", meta[2], t[1], t[3])
	f.I("zip2 %v.4s, %v.4s, %v.4s", meta[3], t[1], t[3])
}

// interval turns the sums of products d and the floats of rows, already multiplied
// by the floats of the vector, into the intervals: lower in d, upper in meta[0], in the
// order of kernels.interval and without fused multiply-adds.
func interval(f *arm64.Func, d arm64.V, meta []arm64.V, slack arm64.V) {
	a, bias, radius, other := meta[0], meta[1], meta[2], meta[3]
	f.I("scvtf %v.4s, %v.4s", d, d)
	f.I("fmul %v.4s, %v.4s, %v.4s", a, a, d)
	f.I("fadd %v.4s, %v.4s, %v.4s", a, a, bias)
	f.I("fadd %v.4s, %v.4s, %v.4s", radius, radius, other)
	f.I("fadd %v.4s, %v.4s, %v.4s", radius, radius, slack)
	f.I("fsub %v.4s, %v.4s, %v.4s", d, a, radius)
	f.I("fadd %v.4s, %v.4s, %v.4s", a, a, radius)
}
