package emit

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Element is the type of the elements of a matrix.
type Element struct {
	Suffix string // of the operation's name
	Go     string // its type in Go
	Bytes  int
	widen  func(src Op, v reg.VecVirtual)
}

// The types of elements. A float16 is widened by F16C, a bfloat16 is the upper
// half of a float32.
var (
	Float32 = Element{"", "float32", 4, nil}
	Float16 = Element{"F16", "uint16", 2, func(src Op, v reg.VecVirtual) {
		VCVTPH2PS(src, v)
	}}
	BFloat16 = Element{"BF16", "uint16", 2, func(src Op, v reg.VecVirtual) {
		VPMOVZXWD(src, v)
		VPSLLD(U8(16), v, v)
	}}
)

// Elements are all types.
var Elements = []Element{Float32, Float16, BFloat16}

// At returns the memory of element i+disp of the elements at base.
func (e Element) At(base, i reg.GPVirtual, disp int) Mem {
	return Mem{Base: base, Index: i, Scale: uint8(e.Bytes), Disp: e.Bytes * disp}
}

// Widen writes the elements at src, memory or a register of half the width of v, to
// v as float32. The elements must not be float32.
func (e Element) Widen(src Op, v reg.VecVirtual) { e.widen(src, v) }

// Widen64 writes the elements at src to v as float64.
func (e Element) Widen64(l Level, src Op, v reg.VecVirtual) {
	if e.widen != nil {
		half := l.Half()
		e.widen(src, half)
		src = half
	}
	VCVTPS2PD(src, v)
}
