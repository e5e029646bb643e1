package tensorfile

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// BenchmarkReadRows reads a matrix of 200 columns in blocks of 1,000 rows:
// conversion and check. SetBytes counts the float32 output.
func BenchmarkReadRows(b *testing.B) {
	const rows, cols, block = 20000, 200, 1000
	for _, l := range []layout{
		{DType: Float16}, {DType: BFloat16}, {DType: Float32}, {DType: Float64},
		{DType: Float32, fortran: true}, {DType: Float16, fortran: true},
	} {
		b.Run(fmt.Sprintf("%s/fortran=%v", l.DType, l.fortran), func(b *testing.B) {
			l.Shape = []int{rows, cols}
			t, err := newTensor("b", l, smallNumbers(l, rows*cols), &memory{})
			if err != nil {
				b.Fatal(err)
			}
			dst := make([]float32, block*cols)
			b.SetBytes(4 * rows * cols)
			for b.Loop() {
				for first := 0; first < rows; first += block {
					if n, err := t.ReadRows(dst, first); n != block || err != nil {
						b.Fatal(n, err)
					}
				}
			}
		})
	}
}

// BenchmarkFloat32sAlias checks a float32 matrix that is returned without a copy.
func BenchmarkFloat32sAlias(b *testing.B) {
	const n = 4_000_000
	l := layout{DType: Float32, Shape: []int{n}}
	t, err := newTensor("b", l, smallNumbers(l, n), &memory{})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(4 * n)
	for b.Loop() {
		if _, err := t.Float32s(); err != nil {
			b.Fatal(err)
		}
	}
}

// smallNumbers returns n numbers between -1 and 1 as the bytes of a layout.
func smallNumbers(l layout, n int) []byte {
	rng := rand.New(rand.NewPCG(1, 2))
	order := binary.LittleEndian
	var out []byte
	for range n {
		x := 2*rng.Float64() - 1
		switch l.DType {
		case Float16:
			out = order.AppendUint16(out, uint16(rng.Uint32N(2))<<15|uint16(rng.Uint32N(0x3c00)))
		case BFloat16:
			out = order.AppendUint16(out, uint16(math.Float32bits(float32(x))>>16))
		case Float32:
			out = order.AppendUint32(out, math.Float32bits(float32(x)))
		case Float64:
			out = order.AppendUint64(out, math.Float64bits(x))
		}
	}
	return out
}
