package emit

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Rows is the loop of the float32 kernels: the inner products of rows with
// h, in blocks of Block rows, the last rows one by one.
//
// The parameters rows, n, h, d (and ids, where Gather is set) are read from
// the function's arguments. Rows must not be empty and d not zero.
type Rows struct {
	Level  Level
	Gather bool // rows are named by ids, else they follow each other
	Block  int  // 4, or 1
	Accs   int  // partial sums a row in the one-by-one loop
	// Done4 and Done1 take the sums of four rows, or of one, in an XMM
	// register. They may use n, the number of rows not yet done, which
	// counts down after them.
	Done4, Done1 func(sums reg.VecVirtual)
	// Finish, where it is not nil, comes after the last row.
	Finish func()
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

	Comment("The tail is what does not fill a vector; whole is the bytes before it.")
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

	if r.Block == 4 {
		r.block4(ids, row, n, h, stride, whole, tail)
	}
	r.one(ids, row, n, h, stride, whole, tail)
	Label("end")
	if r.Finish != nil {
		r.Finish()
	}
	End()
}

// next returns the address of the next row.
func (r Rows) next(ids, row, stride reg.GPVirtual, k int) reg.GPVirtual {
	p := GP64()
	if r.Gather {
		MOVL(Mem{Base: ids, Disp: 4 * k}, p.As32())
		IMULQ(stride, p)
		ADDQ(row, p)
	}
	return p
}

func (r Rows) block4(ids, row, n, h, stride, whole reg.GPVirtual, tail Tail) {
	Label("block")
	CMPQ(n, I32(4))
	JLT(LabelRef("rest"))
	p := make([]reg.GPVirtual, 4)
	for k := range p {
		p[k] = r.next(ids, row, stride, k)
		if !r.Gather {
			if k == 0 {
				MOVQ(row, p[0])
			} else {
				LEAQ(Mem{Base: p[k-1], Index: stride, Scale: 1}, p[k])
			}
		}
	}
	acc := r.Level.Vecs(4)
	Zero(acc...)
	hv := r.Level.Vec()
	off := GP64()
	XORQ(off, off)
	Label("block_vectors")
	CMPQ(off, whole)
	JGE(LabelRef("block_tail"))
	VMOVUPS(Ptr(h, off, 0), hv)
	for k := range p {
		VFMADD231PS(Ptr(p[k], off, 0), hv, acc[k])
	}
	ADDQ(I32(r.Level.Bytes), off)
	JMP(LabelRef("block_vectors"))
	Label("block_tail")
	CMPQ(off, stride)
	JEQ(LabelRef("block_sums"))
	tail.Load(Ptr(h, off, 0), hv)
	t := r.Level.Vec()
	for k := range p {
		tail.Load(Ptr(p[k], off, 0), t)
		VFMADD231PS(t, hv, acc[k])
	}
	Label("block_sums")
	r.Done4(r.Level.Sum4(acc))
	SUBQ(I32(4), n)
	if r.Gather {
		ADDQ(I32(16), ids)
	} else {
		LEAQ(Mem{Base: p[3], Index: stride, Scale: 1}, row)
	}
	JMP(LabelRef("block"))
}

func (r Rows) one(ids, row, n, h, stride, whole reg.GPVirtual, tail Tail) {
	bytes := r.Level.Bytes
	Label("rest")
	unrolled := GP64()
	MOVQ(whole, unrolled)
	SUBQ(I32(bytes*(r.Accs-1)), unrolled)
	Label("row")
	TESTQ(n, n)
	JZ(LabelRef("end"))
	p := row
	if r.Gather {
		p = r.next(ids, row, stride, 0)
	}
	acc := r.Level.Vecs(r.Accs)
	Zero(acc...)
	hv := r.Level.Vecs(r.Accs)
	off := GP64()
	XORQ(off, off)
	Label("row_unrolled")
	CMPQ(off, unrolled)
	JGE(LabelRef("row_vectors"))
	for k := range acc {
		VMOVUPS(Ptr(h, off, k*bytes), hv[k])
		VFMADD231PS(Ptr(p, off, k*bytes), hv[k], acc[k])
	}
	ADDQ(I32(bytes*r.Accs), off)
	JMP(LabelRef("row_unrolled"))
	Comment("Fewer vectors than partial sums are left; then the tail.")
	Label("row_vectors")
	for k := 0; k < r.Accs-1; k++ {
		CMPQ(off, whole)
		JGE(LabelRef("row_tail"))
		VMOVUPS(Ptr(h, off, 0), hv[k])
		VFMADD231PS(Ptr(p, off, 0), hv[k], acc[k])
		ADDQ(I32(bytes), off)
	}
	Label("row_tail")
	CMPQ(off, stride)
	JEQ(LabelRef("row_sum"))
	last := r.Accs - 1
	tail.Load(Ptr(h, off, 0), hv[last])
	t := r.Level.Vec()
	tail.Load(Ptr(p, off, 0), t)
	VFMADD231PS(t, hv[last], acc[last])
	Label("row_sum")
	for step := r.Accs / 2; step > 0; step /= 2 {
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
