package main

import (
	"fmt"

	"github.com/learning-to-screen/l2s/gen/internal/arm64"
)

// list returns the registers as the operand of a load or store of several, which
// follow each other.
func list(v []arm64.V, arrangement string) string {
	s := "{"
	for i := range v {
		if i > 0 {
			if v[i] != v[i-1]+1 {
				panic("registers of a list do not follow each other")
			}
			s += ", "
		}
		s += fmt.Sprintf("%v.%s", v[i], arrangement)
	}
	return s + "}"
}

// rows is the loop of the float32 kernels: the inner products of rows with h, eight
// rows side by side, the last rows one by one.
//
// The parameters rows, n, h, d (and ids, if gather is set) are the function's. Rows must not be
// empty and d not zero. Loads of 64 and 32 bits clear the rest of the register, so that elements
// that do not fill a vector take the same path.
type rows struct {
	*arm64.Func
	gather       bool
	done4, done1 func(sums arm64.V) // take the sums of four rows, or of one in lane 0
	finish       func()             // if it is not nil, comes after the last row

	ids, row, n, h, d, stride arm64.X
}

const (
	blockRows = 8 // of two chains of fused multiply-adds each
	accs      = 4 // chains if a row is alone
)

func (r rows) emit() {
	if r.gather {
		r.ids = r.Param("ids")
	}
	r.row, r.n, r.h, r.d = r.Param("rows"), r.Param("n"), r.Param("h"), r.Param("d")
	r.stride = r.X()
	r.I("lsl %x, %x, #2", r.stride, r.d)
	r.blocks()
	r.one()
	r.Label("end")
	if r.finish != nil {
		r.finish()
	}
	r.I("ret")
}

// address puts the address of the next row in p.
func (r rows) address(p arm64.X) {
	if !r.gather {
		r.I("mov %x, %x", p, r.row)
		r.I("add %x, %x, %x", r.row, r.row, r.stride)
		return
	}
	r.I("ldr %u, [%x], #4", p, r.ids)
	r.I("madd %x, %x, %x, %x", p, p, r.stride, r.row)
}

func (r rows) blocks() {
	r.Label("block")
	r.I("cmp %x, #%d", r.n, blockRows)
	r.I("b.lt rest")
	p, hp, left := r.Xs(blockRows), r.X(), r.X()
	for _, p := range p {
		r.address(p)
	}
	r.I("mov %x, %x", hp, r.h)
	acc, other := r.Zeros(blockRows), r.Zeros(blockRows)
	h, x := r.Vs(2), r.Vs(4)
	r.I("lsr %x, %x, #3", left, r.d)
	r.I("cbz %x, block_4", left)
	r.Label("block_vectors")
	r.I("ldp %q, %q, [%x], #32", h[0], h[1], hp)
	for k := range p {
		x := x[k%2*2:]
		r.I("ldp %q, %q, [%x], #32", x[0], x[1], p[k])
		r.I("fmla %v.4s, %v.4s, %v.4s", acc[k], x[0], h[0])
		r.I("fmla %v.4s, %v.4s, %v.4s", other[k], x[1], h[1])
	}
	r.I("subs %x, %x, #1", left, left)
	r.I("b.ne block_vectors")
	r.rest("block", func(load string, bytes int) {
		load += ", [%x], #%d"
		r.I("ldr "+load, h[0], hp, bytes)
		for k := range p {
			r.I("ldr "+load, x[k%4], p[k], bytes)
			r.I("fmla %v.4s, %v.4s, %v.4s", acc[k], x[k%4], h[0])
		}
	})
	for k := range acc {
		r.I("fadd %v.4s, %v.4s, %v.4s", acc[k], acc[k], other[k])
	}
	for k := 0; k < blockRows; k += 4 {
		r.I("faddp %v.4s, %v.4s, %v.4s", acc[k], acc[k], acc[k+1])
		r.I("faddp %v.4s, %v.4s, %v.4s", acc[k+2], acc[k+2], acc[k+3])
		r.I("faddp %v.4s, %v.4s, %v.4s", acc[k], acc[k], acc[k+2])
		r.done4(acc[k])
	}
	r.I("sub %x, %x, #%d", r.n, r.n, blockRows)
	r.I("b block")
	r.Free(x...)
	r.Free(h...)
	r.Free(other...)
	r.Free(acc...)
	r.FreeX(left, hp)
	r.FreeX(p...)
}

// rest emits step for the last 4, 2 and 1 elements, with the verb of a load of that number of
// elements.
func (r rows) rest(label string, step func(load string, bytes int)) {
	for bit := 2; bit >= 0; bit-- {
		r.Label("%s_%d", label, 1<<bit)
		next := fmt.Sprintf("%s_%d", label, 1<<bit/2)
		if bit == 0 {
			next = label + "_sums"
		}
		r.I("tbz %x, #%d, %s", r.d, bit, next)
		step([]string{"%s", "%d", "%q"}[bit], 4<<bit)
	}
	r.Label("%s_sums", label)
}

func (r rows) one() {
	r.Label("rest")
	p, hp, left := r.X(), r.X(), r.X()
	acc, h, x := r.Vs(accs), r.Vs(accs), r.Vs(accs)
	r.Label("row")
	r.I("cbz %x, end", r.n)
	r.address(p)
	r.I("mov %x, %x", hp, r.h)
	r.Clear(acc...)
	r.I("lsr %x, %x, #4", left, r.d)
	r.I("cbz %x, row_8", left)
	r.Label("row_vectors")
	r.I("ld1 %s, [%x], #64", list(h, "4s"), hp)
	r.I("ld1 %s, [%x], #64", list(x, "4s"), p)
	for k := range acc {
		r.I("fmla %v.4s, %v.4s, %v.4s", acc[k], x[k], h[k])
	}
	r.I("subs %x, %x, #1", left, left)
	r.I("b.ne row_vectors")
	r.Label("row_8")
	r.I("tbz %x, #3, row_4", r.d)
	r.I("ldp %q, %q, [%x], #32", h[0], h[1], hp)
	r.I("ldp %q, %q, [%x], #32", x[0], x[1], p)
	r.I("fmla %v.4s, %v.4s, %v.4s", acc[0], x[0], h[0])
	r.I("fmla %v.4s, %v.4s, %v.4s", acc[1], x[1], h[1])
	r.rest("row", func(load string, bytes int) {
		load += ", [%x], #%d"
		r.I("ldr "+load, h[0], hp, bytes)
		r.I("ldr "+load, x[0], p, bytes)
		r.I("fmla %v.4s, %v.4s, %v.4s", acc[2], x[0], h[0])
	})
	for step := accs / 2; step > 0; step /= 2 {
		for k := range step {
			r.I("fadd %v.4s, %v.4s, %v.4s", acc[k], acc[k], acc[k+step])
		}
	}
	r.I("faddp %v.4s, %v.4s, %v.4s", acc[0], acc[0], acc[0])
	r.I("faddp %s, %v.2s", acc[0], acc[0])
	r.done1(acc[0])
	r.I("sub %x, %x, #1", r.n, r.n)
	r.I("b row")
}

// storeSums returns the done4 and done1 that store the sums at the parameter dst,
// one after the other.
func storeSums(f *arm64.Func) (done4, done1 func(arm64.V)) {
	dst := f.Param("dst")
	done4 = func(sums arm64.V) { f.I("str %q, [%x], #16", sums, dst) }
	done1 = func(sum arm64.V) { f.I("str %s, [%x], #4", sum, dst) }
	return done4, done1
}
