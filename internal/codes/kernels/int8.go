package kernels

import (
	"encoding/binary"
	"math"
	"runtime"
	"unsafe"

	"github.com/learning-to-screen/l2s/internal/ground/simd"
	"github.com/learning-to-screen/l2s/kernels/asm"
)

// MaxInt8Dim is the largest dimension whose int8 products cannot overflow an
// int32 sum: 255 * 127 * 65536 < 2^31.
const MaxInt8Dim = 1 << 16

// The magnitudes between which the float32 arithmetic of the envelope neither overflows nor
// loses its bound to underflow. For others there is the reference arithmetic.
const (
	MaxCertified     = 0x1p40
	MinCertified     = 0x1p-60
	maxCertifiedBits = (127 + 40) << 23 // as float32
	minCertifiedBits = (127 - 60) << 23
)

const (
	CodeBias  = 128 // a row's code c is stored as the byte c + 128
	MaxCode   = 127
	MetaBytes = 16 // scale, bias, error, norm: four float32 at a row's end
	rowAlign  = 64
)

// Int8Rows holds the rows of a matrix, and the bias of each, as int8 codes
// with the numbers that bound the error of a product made from them.
//
// Row i is w_i ~ w^_i = scale_i * q_i, q_ij in [-127, 127], and it is stored
// as one record of Int8Stride bytes: the codes, each plus 128, in one byte each;
// padding of code 0; and in the last 16 bytes four little-endian float32: scale_i,
// bias_i, and upper bounds of ||w_i - w^_i|| and ||w^_i||.
//
// An Int8Rows is immutable and safe for use by many goroutines.
type Int8Rows struct{ codeRows }

// codeRows is the common part of rows of 8-bit and of 4-bit codes.
type codeRows struct {
	data   []byte
	n, dim int
	stride int
	slack  float32   // absolute part of the envelope, from the largest |bias|
	whole  *codeRows // of a part: the rows that own the codes, and keep them
}

// stride returns the size of a record that holds n bytes of codes. If the codes fill cache
// lines, the floats follow without padding, which would be a twelfth of the bytes of 640 codes.
func stride(n int) int {
	if n%rowAlign == 0 {
		return n + MetaBytes
	}
	return (n + MetaBytes + rowAlign - 1) &^ (rowAlign - 1)
}

// Int8Stride returns the bytes of a row of dimension dim: a multiple of 64, or 16 more.
func Int8Stride(dim int) int { return stride(dim) }

// Int8RowsIn returns the rows of dimension dim whose records are in data, Int8Stride(dim) bytes
// each, 16-byte aligned (best 64). Package encode makes the records, and the slack from the biases:
// see Bounds. Int8RowsIn keeps data, which must not be changed once intervals are computed. It may
// be memory outside the Go heap, released after the Int8Rows is unreachable.
func Int8RowsIn(data []byte, dim int, slack float32) *Int8Rows {
	return &Int8Rows{codeRowsIn(data, dim, Int8Stride(dim), slack)}
}

func codeRowsIn(data []byte, dim, stride int, slack float32) codeRows {
	if dim == 0 {
		panic("kernels: dimension is zero")
	}
	if len(data)%stride != 0 {
		panic("kernels: length of data is not a multiple of the stride")
	}
	if len(data) > 0 && uintptr(unsafe.Pointer(&data[0]))%MetaBytes != 0 {
		panic("kernels: data is not 16-byte aligned")
	}
	return codeRows{data: data, n: len(data) / stride, dim: dim, stride: stride, slack: slack}
}

// RoundUp returns a float32 above x >= 0, with room for the rounding of a float64 sum of up to 2^16
// terms. A subnormal result is raised to a normal number; zero stays zero.
func RoundUp(x float64) float32 {
	if x == 0 {
		return 0
	}
	x *= 1 + 0x1p-30
	// The next float32 above a positive one that is far below the largest.
	const least = (1023 - 126) << 52 // the bits of 2^-126
	return math.Float32frombits(math.Float32bits(float32(math.Float64frombits(max(math.Float64bits(x), least)))) + 1)
}

// Len returns the number of rows.
func (m *codeRows) Len() int { return m.n }

// Dim returns the dimension of the rows.
func (m *codeRows) Dim() int { return m.dim }

// Record returns the record of row i.
func (m *codeRows) Record(i int) []byte { return m.data[i*m.stride : (i+1)*m.stride] }

// Part returns the rows from first on, before end, on the same codes.
func (m *Int8Rows) Part(first, end int) Int8Rows { return Int8Rows{m.part(first, end)} }

func (m *codeRows) part(first, end int) codeRows {
	if first < 0 || first > end || end > m.n {
		panic("kernels: part is not within the rows")
	}
	part := *m
	part.data, part.n, part.whole = m.data[first*m.stride:end*m.stride], end-first, m
	return part
}

// Bias returns the bias of row i, from its record, which the caches have after Bounds.
func (m *Int8Rows) Bias(i int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(m.data[(i+1)*m.stride-MetaBytes+4:]))
}

// Int8Vector is a context vector prepared for Int8Rows of the same
// dimension: h ~ h^ = scale * q, with bounds on ||h|| and ||h - h^||. It is
// not safe for concurrent use.
type Int8Vector struct {
	dim    int
	h      []float32 // h, padded with zeros to the codes' length
	codes  []int8    // q, padded with zeros to Int8Stride(dim), 64-byte aligned
	fit    Fit       // of the last Set
	halved bool      // halves are made of q
	has8   bool      // plain8 is made of q
	has4   bool      // plain4 is made of q
	sum    int32     // sum q
	below  int32     // sum of the negative q
	scale  float32
	norm   float32 // >= ||h|| (1 + 2^-20)
	err    float32 // >= (||h - h^|| + 2^-20 ||h||) (1 + 2^-20)
	grow   float64 // the factor of the norms in quantize

	halves [2][]int8   // q in two halves, for 4-bit rows; made when first needed
	plain8 [][4]uint64 // q as the plain form of 8-bit rows reads it; made when first needed
	plain4 [][4]uint64 // the same for 4-bit rows
}

// NewInt8Vector returns a vector of dimension dim with room for the codes.
func NewInt8Vector(dim int) *Int8Vector {
	n := Int8VectorBytes(dim)
	buf := make([]byte, n+rowAlign)
	start := int(-uintptr(unsafe.Pointer(&buf[0])) % rowAlign)
	v := new(Int8Vector)
	v.Init(dim, buf[start:start+n:start+n])
	return v
}

// Int8VectorBytes returns the memory that a vector of dimension dim writes.
func Int8VectorBytes(dim int) int {
	if dim <= 0 {
		panic("kernels: dimension is not positive")
	}
	return 5*Int8Stride(dim)&^(rowAlign-1) + 5*rowAlign
}

// Init makes v, whose value is zero, a vector of dimension dim that writes to table:
// Int8VectorBytes(dim) zero bytes, 64-byte aligned, kept. It may be memory outside the Go
// heap, released once the vector is no longer used.
func (v *Int8Vector) Init(dim int, table []byte) {
	if len(table) != Int8VectorBytes(dim) || uintptr(unsafe.Pointer(&table[0]))%rowAlign != 0 {
		panic("kernels: table is not the memory of a vector, 64-byte aligned")
	}
	stride := Int8Stride(dim)
	at := 4 * (stride + rowAlign) &^ (rowAlign - 1)
	v.dim, v.grow = dim, 1+float64(dim/16+32)*0x1p-24
	v.h = unsafe.Slice((*float32)(unsafe.Pointer(&table[0])), stride)
	v.codes = unsafe.Slice((*int8)(unsafe.Pointer(&table[at])), stride)
}

// AddLines adds the memory that Set writes.
func (v *Int8Vector) AddLines(l *Lines) {
	AddLines(l, math.MaxInt, unsafe.Slice(v, 1))
	AddLines(l, math.MaxInt, v.h)
	AddLines(l, math.MaxInt, v.codes)
}

// Fit is the result of Int8Vector.Set.
type Fit uint8

const (
	NotFinite   Fit = iota // h holds a NaN or an infinity; the vector is not usable
	Uncertified            // h is finite, but too large or too small for the envelope
	Certified              // h is ready for Bounds
)

// Vector returns the h of the last Set, valid until the next. It must not be changed.
func (v *Int8Vector) Vector() []float32 { return v.h[:v.dim] }

// quantizeGeneric computes u = h*inv, q = round(u), and the sums of u^2, (u - q)^2, q and the
// negative q: of floats in 16 lanes combined as in RefDot, without fused multiply-adds. len(h)
// is a multiple of 16.
func quantizeGeneric(codes []int8, h []float32, inv float32) (squares, errors2 float32, code, below int32) {
	var norm2, err2 [16]float32
	for i, x := range h {
		u := float32(x * inv)
		q := math.RoundToEven(float64(u))
		e := u - float32(q)
		codes[i] = int8(q)
		code += int32(q)
		below += min(int32(q), 0)
		norm2[i%16] += float32(u * u)
		err2[i%16] += float32(e * e)
	}
	return fold(norm2[:]), fold(err2[:]), code, below
}

// Leaves of codes and their callers agree on sizes: leaves take rows in blocks of
// codesBlock for one context, and of batchBlock for up to batchContexts contexts, which share
// the load of a row. AVX-512 without VNNI runs the forms of AVX2.

func codesBlock() int {
	switch {
	case simd.Has.VNNI:
		return 16
	case simd.Has.AVX2 || simd.Has.NEON:
		return 8
	}
	return 1
}

func batchBlock() int {
	switch {
	case simd.Has.I8MM:
		return 8
	case simd.Has.AVX2 || simd.Has.NEON:
		return 4
	}
	return 1
}

// batchContexts returns the number of contexts for n rows.
func batchContexts(n int) int {
	switch {
	case n < batchBlock():
		return 1
	case simd.Has.AVX2 && !simd.Has.VNNI:
		return 2
	}
	return BatchContexts
}

// excess8 returns the surplus of the sums of the products of 8-bit rows with v over the sums of the
// codes, for the forms that use it: with VNNI or I8MM the part of the rows' 128. AVX2 subtracts the
// 128 beforehand, but moves the sign of v to the row by a complement.
func excess8(v *Int8Vector) int32 {
	if simd.Has.AVX2 && !simd.Has.VNNI {
		return v.below
	}
	return CodeBias * v.sum
}

// maxBlock is the largest number of rows in a block of a leaf.
const maxBlock = 16

// bound is the vector's side of the envelope, as leaves read it.
type bound struct {
	codes  *int8
	high   *int8 // 4-bit rows: the second half of the codes, codes being the first
	excess int32 // the surplus of the sums of the leaf's products over the sums of the codes
	scale  float32
	norm   float32
	err    float32
	slack  float32
	batch  *batchBound // of several contexts, which have the numbers there; nil for one
}

// batchBound is the side of several vectors: each number four times for each
// context. Entries after the last context repeat it.
type batchBound struct {
	codes  [BatchContexts]*int8
	excess [BatchContexts][4]int32
	scale  [BatchContexts][4]float32
	norm   [BatchContexts][4]float32
	err    [BatchContexts][4]float32
	slack  float32
}

// Bounds computes an interval for the reference logit of every row:
//
//	lower[i] <= RefDot(w_i, h) + float64(bias_i) <= upper[i]
//
// Up to BatchContexts contexts share the load of a row, if they fit in the registers. Interval i of
// context c is at [c*Len+i] of lower and upper, which have Len elements per context. All vectors
// must be Certified.
//
// Proof. With D = q_w.q_h exact in int32, w^.h^ = scale_w scale_h D, and
//
//	|w.h - w^.h^| <= ||h|| ||w - w^|| + ||h - h^|| ||w^||        (Cauchy-Schwarz)
//
// The computed centre is a = fl(fl(fl(scale_h scale_w) fl(D)) + bias). With
// u = 2^-24 it is off by at most 3.01u |w^.h^| from the three roundings of the
// product and u(|w^.h^| + |bias|) from the sum; the last subtraction or
// addition of the radius adds u(|a| + radius), and the reference arithmetic
// itself rounds by less than u/8 ||w|| ||h||. |w^.h^| <= ||w^|| ||h^|| <=
// ||w^|| (||h|| + ||h - h^||), so the terms without the bias are at most
// 5.2u ||h|| ||w^||, and 5.2u ||h - h^|| ||w^||, a part of the radius. The first
// is within the 16u ||h|| that Int8Vector.err holds; the second, and the four
// roundings of the radius itself, are below 10u of it, and norm and err hold
// factors of 1 + 16u. The terms with the bias are at most 2.1u max|bias|, held
// by slack, which is 3u max|bias| + 2^-100; its surplus covers every
// underflow, an error below 2^-149 that is multiplied by |D| < 2^31 at most.
func (m *Int8Rows) Bounds(lower, upper []float32, vs ...*Int8Vector) {
	checkVectors(len(lower), len(upper), m.n, m.dim, vs)
	m.batch(lower, upper, nil, m.n, vs)
}

// GatherBounds computes the intervals of the rows ids, as Bounds does for
// all: interval j of context c, at [c*len(ids)+j], belongs to row ids[j].
func (m *Int8Rows) GatherBounds(lower, upper []float32, ids []uint32, vs ...*Int8Vector) {
	checkVectors(len(lower), len(upper), len(ids), m.dim, vs)
	CheckIDs(ids, m.n)
	m.batch(lower, upper, ids, len(ids), vs)
}

// BatchContexts is the largest number of contexts in a batch.
const BatchContexts = 4

// checkVectors panics unless lower and upper have room for n rows and each of vs, all ready for
// rows of dimension dim.
func checkVectors(lower, upper, n, dim int, vs []*Int8Vector) {
	if len(vs) > BatchContexts {
		panic("kernels: more than BatchContexts contexts")
	}
	if lower != n*len(vs) || upper != n*len(vs) {
		panic("kernels: length of lower or upper differs from the number of rows, for each context")
	}
	for _, v := range vs {
		if v.dim != dim {
			panic("kernels: dimension of the vector differs from the dimension of the rows")
		}
		if v.fit != Certified {
			panic("kernels: vector is not Certified")
		}
	}
}

// batch computes the intervals of n rows, ids or all if ids is nil, for several of vs at once, up
// to the number that the leaf takes.
func (m *Int8Rows) batch(lower, upper []float32, ids []uint32, n int, vs []*Int8Vector) {
	for n > 0 && len(vs) > 0 {
		contexts := min(len(vs), batchContexts(n))
		var b bound
		if contexts == 1 {
			b.set(vs[0], excess8(vs[0]), m.slack)
		} else {
			b.batch = &batchBound{slack: m.slack}
			b.batch.set(vs[:contexts])
		}
		m.intervals(lower, upper, ids, n, &b, vs[:contexts])
		lower, upper, vs = lower[contexts*n:], upper[contexts*n:], vs[contexts:]
	}
	runtime.KeepAlive(m)
}

// set fills b in place: a copy of bytes just written would wait for them.
func (b *bound) set(v *Int8Vector, excess int32, slack float32) {
	b.codes, b.excess = &v.codes[0], excess
	b.scale, b.norm, b.err, b.slack = v.scale, v.norm, v.err, slack
}

func (b *batchBound) set(vs []*Int8Vector) {
	for c := range b.codes {
		v := vs[min(c, len(vs)-1)]
		excess := excess8(v)
		b.codes[c] = &v.codes[0]
		b.excess[c] = [4]int32{excess, excess, excess, excess}
		b.scale[c] = [4]float32{v.scale, v.scale, v.scale, v.scale}
		b.norm[c] = [4]float32{v.norm, v.norm, v.norm, v.norm}
		b.err[c] = [4]float32{v.err, v.err, v.err, v.err}
	}
}

// intervals computes the intervals of n rows, ids or all if ids is nil: for row i and
// context c they are at [c*n+i] of lower and upper. b is of all vs.
func (m *codeRows) intervals(lower, upper []float32, ids []uint32, n int, b *bound, vs []*Int8Vector) {
	block := codesBlock()
	if b.batch != nil {
		block = batchBlock()
	}
	raceReadsVectors(vs)
	if n < block {
		m.lessThanABlock(lower, upper, ids, n, block, b, vs)
		return
	}
	for c := callsOf(n, callBlocks(m.stride)); c.at < c.n; c = c.nextOf(block) {
		raceIntervals(m.data, m.stride, ids, c, lower, upper, len(vs))
		first, at := c.at, unsafe.SliceData(ids)
		if ids != nil {
			first, at = 0, &ids[c.at]
		}
		m.leaf(&lower[c.at], &upper[c.at], n, first, at, c.end-c.at, b, vs)
	}
}

// minStream is the size of a record from which it is faster to read rows one by one
// than four side by side, where there is a form for it.
const minStream = 512

// leaf computes the intervals of n rows, from first on or the rows ids, ld apart for each context.
func (m *codeRows) leaf(lower, upper *float32, ld, first int, ids *uint32, n int, b *bound, vs []*Int8Vector) {
	p, stride, arg, batch := &m.data[first*m.stride], m.stride, (*byte)(unsafe.Pointer(b)), (*byte)(unsafe.Pointer(b.batch))
	ok, stream := false, stride >= minStream
	switch {
	case batch != nil && ids != nil:
		ok = asm.Int8GatherBoundsBatch(lower, upper, ld, len(vs), p, stride, ids, n, batch)
	case batch != nil:
		ok = asm.Int8BoundsBatch(lower, upper, ld, len(vs), p, stride, n, batch)
	case ids != nil:
		ok = asm.Int8GatherBounds(lower, upper, p, stride, ids, n, arg)
	case b.high != nil:
		ok = stream && asm.Int4BoundsStream(lower, upper, p, stride, n, arg) || asm.Int4Bounds(lower, upper, p, stride, n, arg)
	default:
		ok = stream && asm.Int8BoundsStream(lower, upper, p, stride, n, arg) || asm.Int8Bounds(lower, upper, p, stride, n, arg)
	}
	if !ok {
		m.generic(lower, upper, ld, first, ids, n, b.high != nil, vs)
	}
}

// lessThanABlock is intervals for one context and n < block rows.
func (m *codeRows) lessThanABlock(lower, upper []float32, ids []uint32, n, block int, b *bound, vs []*Int8Vector) {
	if b.high != nil {
		m.generic(&lower[0], &upper[0], n, 0, nil, n, true, vs)
		return
	}
	// Fill the block with the first row again.
	var at [maxBlock]uint32
	var lo, up [maxBlock]float32
	for i := range n {
		at[i] = uint32(i)
	}
	copy(at[:], ids)
	for i := n; i < block; i++ {
		at[i] = at[0]
	}
	RaceReadsRows(m.data, m.stride, at[:n])
	m.leaf(&lo[0], &up[0], block, 0, &at[0], block, b, vs)
	copy(lower, lo[:n])
	copy(upper, up[:n])
}

// generic is leaf in plain Go, for codes of four bits or of eight.
func (m *codeRows) generic(lower, upper *float32, ld, first int, ids *uint32, n int, four bool, vs []*Int8Vector) {
	for c, v := range vs {
		lo, up := unsafe.Slice(lower, c*ld+n)[c*ld:], unsafe.Slice(upper, c*ld+n)[c*ld:]
		for i := range lo {
			row := first + i
			if ids != nil {
				row = int(unsafe.Slice(ids, n)[i])
			}
			rec, dot := m.Record(row), int32(0)
			if four {
				dot = dot4(rec, v.plainCodes4()) - code4Bias*v.sum
			} else {
				dot = dot8(rec, v.plainCodes8()) - CodeBias*v.sum
			}
			lo[i], up[i] = interval(rec, dot, v, m.slack)
		}
	}
}

// interval returns the interval of the row of a record from its sum of products.
func interval(rec []byte, dot int32, v *Int8Vector, slack float32) (lower, upper float32) {
	meta := len(rec) - MetaBytes
	le := binary.LittleEndian
	scale := math.Float32frombits(le.Uint32(rec[meta:]))
	bias := math.Float32frombits(le.Uint32(rec[meta+4:]))
	err := math.Float32frombits(le.Uint32(rec[meta+8:]))
	norm := math.Float32frombits(le.Uint32(rec[meta+12:]))
	a := float32(float32(v.scale*scale)*float32(dot)) + bias
	r := float32(float32(v.norm*err)+float32(v.err*norm)) + slack
	return a - r, a + r
}
