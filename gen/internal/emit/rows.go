package emit

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Rows is the loop of the float32 kernels: the inner products of rows with
// h, in blocks of rows side by side, the last rows one by one.
//
// The parameters rows, n, h, d (and ids, if Gather is set) are read from
// the function's arguments. Rows must not be empty and d not zero.
type Rows struct {
	Level  Level
	Gather bool // rows are named by ids, else they follow each other
	Single bool // all rows one by one
	// Done4 and Done1 take the sums of four rows, or of one, in an XMM
	// register.
	Done4, Done1 func(sums reg.VecVirtual)
	// Finish, if it is not nil, comes after the last row.
	Finish func()
}

// accs is the number of partial sums of a row that is processed alone.
const accs = 4

// block returns the number of rows side by side. Eight neighbouring rows take three address
// registers, eight others take eight.
func (r Rows) block() int {
	if r.Gather {
		return 4
	}
	return 8
}

// Emit emits the loop.
func (r Rows) Emit() {
	lanes := r.Level.Bytes / 4
	var ids reg.GPVirtual
	if r.Gather {
		ids = Load(Param("ids"), GP64()).(reg.GPVirtual)
	}
	row := Load(Param("rows"), GP64()).(reg.GPVirtual)
	n := Load(Param("n"), GP64()).(reg.GPVirtual)
	h := Load(Param("h"), GP64()).(reg.GPVirtual)
	d := Load(Param("d"), GP64()).(reg.GPVirtual)

	Comment("The tail is the bytes that do not fill a vector; whole is the bytes before it.")
	count := GP64()
	MOVQ(d, count)
	ANDQ(I32(lanes-1), count)
	tail := r.Level.NewTail(count)
	stride := GP64()
	MOVQ(d, stride)
	SHLQ(U8(2), stride)
	whole := GP64()
	MOVQ(stride, whole)
	ANDQ(I32(-r.Level.Bytes), whole)

	if !r.Single {
		r.blocks(ids, row, n, h, stride, whole, tail)
	}
	r.one(ids, row, n, h, stride, whole, tail)
	Label("end")
	if r.Finish != nil {
		r.Finish()
	}
	End()
}

// next returns the address of the row ids[k].
func (r Rows) next(ids, row, stride reg.GPVirtual, k int) reg.GPVirtual {
	p := GP64()
	MOVL(Mem{Base: ids, Disp: 4 * k}, p.As32())
	IMULQ(stride, p)
	ADDQ(row, p)
	return p
}

// walk is the way of a block through its rows: where the vectors of h and of each row are, and the
// way to the next row.
type walk struct {
	h       Mem
	rows    []Mem
	advance func()
}

func (r Rows) walk(ids, row, h, stride reg.GPVirtual) walk {
	w := walk{rows: make([]Mem, r.block())}
	if r.Gather {
		off := GP64()
		XORQ(off, off)
		for k := range w.rows {
			w.rows[k] = Ptr(r.next(ids, row, stride, k), off, 0)
		}
		w.h = Ptr(h, off, 0)
		w.advance = func() { ADDQ(I32(r.Level.Bytes), off) }
		return w
	}
	first, fifth, hp, stride3 := GP64(), GP64(), GP64(), GP64()
	MOVQ(row, first)
	LEAQ(Mem{Base: row, Index: stride, Scale: 4}, fifth)
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, stride3)
	MOVQ(h, hp)
	for k := range w.rows {
		m := Mem{Base: first}
		if k >= 4 {
			m.Base = fifth
		}
		switch k % 4 {
		case 1, 2:
			m.Index, m.Scale = stride, uint8(k%4)
		case 3:
			m.Index, m.Scale = stride3, 1
		}
		w.rows[k] = m
	}
	w.h = Mem{Base: hp}
	w.advance = func() {
		for _, p := range []reg.GPVirtual{first, fifth, hp} {
			ADDQ(I32(r.Level.Bytes), p)
		}
	}
	return w
}

func (r Rows) blocks(ids, row, n, h, stride, whole reg.GPVirtual, tail Tail) {
	size := r.block()
	Label("block")
	CMPQ(n, I32(size))
	JLT(LabelRef("rest"))
	w := r.walk(ids, row, h, stride)
	acc := r.Level.Vecs(size)
	Zero(acc...)
	hv := r.Level.Vec()
	left := GP64()
	MOVQ(whole, left)
	Label("block_vectors")
	TESTQ(left, left)
	JZ(LabelRef("block_tail"))
	VMOVUPS(w.h, hv)
	for k, m := range w.rows {
		VFMADD231PS(m, hv, acc[k])
	}
	w.advance()
	SUBQ(I32(r.Level.Bytes), left)
	JMP(LabelRef("block_vectors"))
	Label("block_tail")
	CMPQ(whole, stride)
	JEQ(LabelRef("block_sums"))
	tail.Load(w.h, hv)
	t := r.Level.Vec()
	for k, m := range w.rows {
		tail.Load(m, t)
		VFMADD231PS(t, hv, acc[k])
	}
	Label("block_sums")
	for k := 0; k < size; k += 4 {
		r.Done4(r.Level.Sum4(acc[k : k+4]))
	}
	SUBQ(I32(size), n)
	if r.Gather {
		ADDQ(I32(4*size), ids)
	} else {
		LEAQ(Mem{Base: row, Index: stride, Scale: uint8(size)}, row)
	}
	JMP(LabelRef("block"))
}

func (r Rows) one(ids, row, n, h, stride, whole reg.GPVirtual, tail Tail) {
	bytes := r.Level.Bytes
	Label("rest")
	unrolled := GP64()
	MOVQ(whole, unrolled)
	SUBQ(I32(bytes*(accs-1)), unrolled)
	Label("row")
	TESTQ(n, n)
	JZ(LabelRef("end"))
	p := row
	if r.Gather {
		p = r.next(ids, row, stride, 0)
	}
	acc := r.Level.Vecs(accs)
	Zero(acc...)
	hv := r.Level.Vecs(accs)
	off := GP64()
	XORQ(off, off)
	Label("row_unrolled")
	CMPQ(off, unrolled)
	JGE(LabelRef("row_vectors"))
	for k := range acc {
		VMOVUPS(Ptr(h, off, k*bytes), hv[k])
		VFMADD231PS(Ptr(p, off, k*bytes), hv[k], acc[k])
	}
	ADDQ(I32(bytes*accs), off)
	JMP(LabelRef("row_unrolled"))
	Comment("Fewer vectors than partial sums are left; then the tail.")
	Label("row_vectors")
	for k := 0; k < accs-1; k++ {
		CMPQ(off, whole)
		JGE(LabelRef("row_tail"))
		VMOVUPS(Ptr(h, off, 0), hv[k])
		VFMADD231PS(Ptr(p, off, 0), hv[k], acc[k])
		ADDQ(I32(bytes), off)
	}
	Label("row_tail")
	CMPQ(off, stride)
	JEQ(LabelRef("row_sum"))
	last := accs - 1
	tail.Load(Ptr(h, off, 0), hv[last])
	t := r.Level.Vec()
	tail.Load(Ptr(p, off, 0), t)
	VFMADD231PS(t, hv[last], acc[last])
	Label("row_sum")
	for step := accs / 2; step > 0; step /= 2 {
		for k := 0; k < step; k++ {
			VADDPS(acc[k+step], acc[k], acc[k])
		}
	}
	r.Done1(r.Level.Sum1(acc[0]))
	DECQ(n)
	if r.Gather {
		ADDQ(I32(4), ids)
	} else {
		ADDQ(stride, row)
	}
	JMP(LabelRef("row"))
}

// StoreSums returns the Done4 and Done1 that store the sums at the parameter
// dst, one after the other.
func StoreSums() (done4, done1 func(reg.VecVirtual)) {
	dst := Load(Param("dst"), GP64()).(reg.GPVirtual)
	done4 = func(sums reg.VecVirtual) {
		VMOVUPS(sums, Mem{Base: dst})
		ADDQ(I32(16), dst)
	}
	done1 = func(sum reg.VecVirtual) {
		VMOVSS(sum, Mem{Base: dst})
		ADDQ(I32(4), dst)
	}
	return done4, done1
}

// Name returns a label that is unique to i.
func Name(prefix string, i int) string { return fmt.Sprintf("%s%d", prefix, i) }
