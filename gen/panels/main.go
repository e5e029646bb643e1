// Command panels generates the product of 32 rows of a matrix with a few
// vectors, from rows whose elements lie side by side.
//
// Every output has a lane of its own. The products of a block of elements are summed
// there in their order, by fused multiply-adds, and the sums of the blocks are added
// to the output: so every level gives the same bits.
package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/learning-to-screen/l2s/gen/internal/emit"
)

const (
	rows   = 32      // of a panel: kernels.panelRows
	block  = 128     // elements of a row that are summed together: kernels.panelBlock
	unroll = 2       // elements of a row that one turn of the loop takes
	ahead  = 8 << 10 // bytes that are asked for before they are needed
)

// most is the number of vectors that a panel is multiplied with at once: as many as
// leave registers for the sums of all.
func most(l emit.Level) int {
	if l.Bytes == 64 {
		return 8
	}
	return 3
}

func main() {
	emit.Begin()
	for _, l := range emit.Levels {
		addPanel(l)
	}
	Generate()
}

// strided addresses up to eight rows of float32 that are a stride apart.
type strided struct {
	base           [2]reg.GPVirtual // of row 0 and of row 4
	stride, triple reg.GPVirtual    // in bytes
}

func newStrided(base, stride string, n int) *strided {
	s := &strided{stride: Load(Param(stride), GP64()).(reg.GPVirtual), triple: GP64()}
	s.base[0] = Load(Param(base), GP64()).(reg.GPVirtual)
	SHLQ(U8(2), s.stride)
	LEAQ(Mem{Base: s.stride, Index: s.stride, Scale: 2}, s.triple)
	if n > 4 {
		s.base[1] = GP64()
		LEAQ(Mem{Base: s.base[0], Index: s.stride, Scale: 4}, s.base[1])
	}
	return s
}

// at is the memory of row i, disp bytes behind its place.
func (s *strided) at(i, disp int) Mem {
	m := Mem{Base: s.base[i/4], Disp: disp}
	switch i % 4 {
	case 1, 2:
		m.Index, m.Scale = s.stride, uint8(i%4)
	case 3:
		m.Index, m.Scale = s.triple, 1
	}
	return m
}

// forward moves all rows.
func (s *strided) forward(bytes int) {
	ADDQ(I32(bytes), s.base[0])
	if s.base[1] != nil {
		ADDQ(I32(bytes), s.base[1])
	}
}

func addPanel(l emit.Level) {
	vecs, n := 4*rows/l.Bytes, most(l)
	l.Function("AddPanel", "func(dst *float32, ldd int, panel *float32, d int, x *float32, ldx int, n int)",
		fmt.Sprintf("adds the sums of panel[%d*j+i]*x[ldx*s+j], over blocks of %d of j = 0..d-1, to dst[ldd*s+i], i = 0..%d, s = 0..n-1. d is positive, n is 1 to %d.", rows, block, rows-1, n))
	panel := Load(Param("panel"), GP64()).(reg.GPVirtual)
	d := Load(Param("d"), GP64()).(reg.GPVirtual)
	dst, x := newStrided("dst", "ldd", n), newStrided("x", "ldx", n)
	count := Load(Param("n"), GP64()).(reg.GPVirtual)
	left, all := GP64(), GP64() // elements of the block
	MOVQ(I32(block), all)
	for c := 1; c < n; c++ {
		CMPQ(count, I32(c))
		JEQ(LabelRef(fmt.Sprintf("contexts%d", c)))
	}
	for c := n; c > 0; c-- {
		name := fmt.Sprintf("contexts%d", c)
		if c < n {
			Label(name)
		}
		sum := l.Vecs(vecs * c)
		Label(name + "_block")
		emit.Zero(sum...)
		MOVQ(d, left)
		CMPQ(d, all)
		CMOVQGT(all, left)
		SUBQ(left, d)
		turn := func(elements int) {
			for j := range elements {
				weight := func(k int) Mem { return Mem{Base: panel, Disp: 4*rows*j + k*l.Bytes} }
				v := l.Vecs(c)
				for s := range c {
					VBROADCASTSS(x.at(s, 4*j), v[s])
				}
				for line := 0; line < 4*rows; line += 64 {
					PREFETCHT0(Mem{Base: panel, Disp: 4*rows*j + line + ahead})
				}
				for k := range vecs {
					w := l.Vec()
					VMOVUPS(weight(k), w)
					for s := range c {
						VFMADD231PS(w, v[s], sum[vecs*s+k])
					}
				}
			}
			ADDQ(I32(4*rows*elements), panel)
			x.forward(4 * elements)
		}
		SUBQ(I32(unroll), left)
		JLT(LabelRef(name + "_rest"))
		Label(name + "_loop")
		turn(unroll)
		SUBQ(I32(unroll), left)
		JGE(LabelRef(name + "_loop"))
		Label(name + "_rest")
		ADDQ(I32(unroll), left)
		JZ(LabelRef(name + "_end"))
		turn(1)
		Label(name + "_end")
		for k := range sum {
			out := dst.at(k/vecs, k%vecs*l.Bytes)
			VADDPS(out, sum[k], sum[k])
			VMOVUPS(sum[k], out)
		}
		TESTQ(d, d)
		JNZ(LabelRef(name + "_block"))
		emit.End()
	}
}
