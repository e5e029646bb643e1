package kernels

import (
	"math"
	"unsafe"

	"github.com/learning-to-screen/l2s/internal/ground/float16"
	"github.com/learning-to-screen/l2s/kernels/asm"
)

// Element is the type of the elements of Rows.
type Element uint8

const (
	Float32  Element = iota // IEEE 754 binary32
	Float16                 // IEEE 754 binary16
	BFloat16                // the upper half of a binary32
)

// String returns the type's name in lower case: "float32", "bfloat16", "q4_k".
func (e Element) String() string {
	if int(e) < len(elementTypes) {
		return elementTypes[e].name
	}
	return "unknown"
}

// Rows is a row-major matrix in memory of its caller, whose elements are
// float32, float16, bfloat16 or quantised. The value of an element is a float32: the
// first three convert to it exactly, and for the last it is defined so,
// that the reference arithmetic over Rows gives the same bits as over the
// widened matrix. No widened copy is made.
//
// A Rows is a view: copying it copies no element. It is safe for use by many goroutines
// while nobody changes the elements. The zero value has no rows and no dimension.
type Rows struct {
	data    unsafe.Pointer // of the first element; nil if there is none
	n, dim  int
	element Element
}

// Float32Rows returns the matrix whose elements are data, rows of dim elements.
func Float32Rows(data []float32, dim int) Rows { return rowsOf(data, dim, Float32) }

// Float16Rows is Float32Rows for the bits of IEEE 754 binary16.
func Float16Rows(data []uint16, dim int) Rows { return rowsOf(data, dim, Float16) }

// BFloat16Rows is Float32Rows for elements in bfloat16, given as their bits.
func BFloat16Rows(data []uint16, dim int) Rows { return rowsOf(data, dim, BFloat16) }

func rowsOf[T any](data []T, dim int, e Element) Rows {
	if dim <= 0 {
		panic("kernels: dimension is not positive")
	}
	elements, bytes := BlockOf(e)
	if dim%elements != 0 {
		panic("kernels: dimension is not a multiple of the block")
	}
	blocks, size := dim/elements, bytes/int(unsafe.Sizeof(*new(T)))
	if len(data)%size != 0 || len(data)/size%blocks != 0 {
		panic("kernels: length of rows is not a multiple of the dimension")
	}
	return Rows{unsafe.Pointer(unsafe.SliceData(data)), len(data) / size / blocks, dim, e}
}

// Len returns the number of rows.
func (m Rows) Len() int { return m.n }

// Dim returns the number of elements of a row.
func (m Rows) Dim() int { return m.dim }

// Element returns the type of the elements.
func (m Rows) Element() Element { return m.element }

// Part returns the rows from first on, before end.
func Part(m Rows, first, end int) Rows {
	if first < 0 || first > end || end > m.n {
		panic("kernels: part is not within the rows")
	}
	if first < end {
		m.data = unsafe.Add(m.data, first*m.rowBytes())
	}
	m.n = end - first
	return m
}

// AsFloat32 returns the elements if they are float32, row-major, and whether
// they are. They must not be changed.
func AsFloat32(m Rows) (elements []float32, ok bool) {
	if m.element != Float32 {
		return nil, false
	}
	return m.wide(), true
}

func (m Rows) wide() []float32 { return unsafe.Slice((*float32)(m.data), m.n*m.dim) }

func (m Rows) narrow() []uint16 { return unsafe.Slice((*uint16)(m.data), m.n*m.dim) }

// Widen writes row i as float32 to dst, which has Dim elements.
func (m Rows) Widen(dst []float32, i int) {
	if len(dst) != m.dim {
		panic("kernels: length of dst differs from the dimension")
	}
	if i < 0 || i >= m.n {
		panic("kernels: row out of range")
	}
	m.widen(dst, i*m.dim)
}

// widen writes the len(dst) elements from first on to dst.
func (m Rows) widen(dst []float32, first int) {
	if m.element == Float32 {
		copy(dst, m.wide()[first:])
		return
	}
	if Quantised(m.element) {
		m.widenBlocks(dst, first)
		return
	}
	x, whole := m.narrow()[first:first+len(dst)], len(dst)&^15
	for c := callsOf(whole, MaxCallBytes/8); c.at < c.n; c = c.next() {
		out, part := dst[c.at:c.end], x[c.at:c.end]
		RaceReads(part)
		RaceWrites(out)
		if !asm.WidenOf(&out[0], &part[0], len(part), uint8(m.element)) {
			widenGeneric(out, part, m.element)
		}
	}
	widenGeneric(dst[whole:], x[whole:], m.element)
}

func widenGeneric(dst []float32, x []uint16, e Element) {
	dst = dst[:len(x)]
	if e == BFloat16 {
		for j, x := range x {
			dst[j] = math.Float32frombits(uint32(x) << 16)
		}
		return
	}
	for j, x := range x {
		dst[j] = float16.Widen(x)
	}
}

// FirstNotFinite returns the place of the first NaN or infinity, if there is one.
func FirstNotFinite(m Rows) (row, column int, found bool) {
	var block [blockElements]float32
	for c := callsOf(m.n*m.dim, len(block)); c.at < c.n; c = c.next() {
		part := block[:c.end-c.at]
		m.widen(part, c.at)
		if MaxAbsBits(part) < 0x7f800000 {
			continue
		}
		for i, x := range part {
			if x-x != 0 {
				return (c.at + i) / m.dim, (c.at + i) % m.dim, true
			}
		}
	}
	return 0, 0, false
}

// RefScan computes one logit a row by the reference arithmetic: dst[i] =
// RefDot(row i, h) + float64(bias[i]).
//
// dst has Len elements and h has Dim. bias has Len elements, or is nil for none.
// dst must not overlap the inputs.
func (m Rows) RefScan(dst []float64, bias, h []float32) {
	m.check(len(dst), m.n, bias, h)
	m.refScan(dst, h)
	for i, b := range bias {
		dst[i] += float64(b)
	}
}

// check panics unless dst has n elements, h has Dim, and bias has Len elements or is nil.
func (m Rows) check(dst, n int, bias, h []float32) {
	if m.dim == 0 {
		panic("kernels: dimension is zero")
	}
	if len(h) != m.dim {
		panic("kernels: length of h differs from the dimension")
	}
	if dst != n {
		panic("kernels: length of dst differs from the number of rows or ids")
	}
	if bias != nil && len(bias) != m.n {
		panic("kernels: length of bias differs from the number of rows")
	}
}

// Advise hands the memory of the rows, which must not be changed, to a function that may advise
// about its pages.
func Advise(m Rows, by func([]byte)) {
	if m.n > 0 && m.dim > 0 {
		by(m.bytes())
	}
}

func (m Rows) bytes() []byte {
	return unsafe.Slice((*byte)(m.data), m.n*m.rowBytes())
}

func (m Rows) refScan(dst []float64, h []float32) {
	for c := callsOf(m.n, CallRows(m.rowBytes())); c.at < c.n; c = c.next() {
		Part(m, c.at, c.end).scanLeaf(dst[c.at:c.end], h)
	}
}

// scanLeaf is refScan for the number of rows that one call may read.
func (m Rows) scanLeaf(dst []float64, h []float32) {
	RaceReads(m.bytes())
	RaceReads(h)
	RaceWrites(dst)
	if m.dim <= MaxCallDim && asm.RefScanOf(&dst[0], m.data, len(dst), &h[0], m.dim, uint8(m.element)) {
		return
	}
	for i := range dst {
		dst[i] = m.refDotGeneric(i, h)
	}
}

// blockElements is the number of elements that are widened at once: a multiple
// of the lanes of the reference arithmetic.
const blockElements = 256

// refDotGeneric is RefDot of row i, which is widened block by block.
func (m Rows) refDotGeneric(i int, h []float32) float64 {
	var lane [refLanes]float64
	if m.element == Float32 {
		refAdd(&lane, m.wide()[i*m.dim:(i+1)*m.dim], h)
		return fold(lane[:])
	}
	var block [blockElements]float32
	for at := 0; at < m.dim; at += len(block) {
		part := block[:min(len(block), m.dim-at)]
		m.widen(part, i*m.dim+at)
		refAdd(&lane, part, h[at:])
	}
	return fold(lane[:])
}
