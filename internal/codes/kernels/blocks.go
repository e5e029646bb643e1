package kernels

import (
	"encoding/binary"
	"math"
	"runtime"
	"unsafe"

	"github.com/learning-to-screen/l2s/internal/ground/mem"
	"github.com/learning-to-screen/l2s/internal/ground/simd"
	"github.com/learning-to-screen/l2s/kernels/asm"
)

// BlockRows computes intervals of the logits of rows from blocks of Q8_0 and the other quantised
// types. Blocks that are the rows themselves are not copied, and have no error: only the context
// has one. In addition to the blocks it holds 16 bytes per row.
//
// A BlockRows is immutable and safe for use by many goroutines.
type BlockRows struct {
	rows  Rows
	dim   int // of a context: the rows' dimension, less the padding of the last block
	meta  []BlockMeta
	slack float32
}

// BlockMeta holds the numbers of a row that an interval needs: an upper bound N of sqrt(sum
// g_j^2), where g_j is the magnitude of weight j of the blocks or, for a type with a minimum, of
// its two terms; the bias; and an upper bound of the length of the difference between the blocks
// and the row.
type BlockMeta struct{ Norm, Bias, Err, _ float32 }

// NewBlockRows returns blocks for contexts of dimension dim, at most that of the blocks, with the
// numbers of each row and the slack, which package encode makes. The memory is kept.
func NewBlockRows(blocks Rows, dim int, meta []BlockMeta, slack float32) *BlockRows {
	if dim > blocks.dim || len(meta) != blocks.n {
		panic("kernels: dimension is larger than that of the blocks, or not every row has its numbers")
	}
	return &BlockRows{rows: blocks, dim: dim, meta: meta, slack: slack}
}

// Squares returns sum g_j^2 of row i of blocks, which is NaN or infinite if a weight is.
func Squares(m Rows, i int) (sum float64) {
	elements, bytes := BlockOf(m.element)
	blocks := m.bytes()[i*m.rowBytes():][:m.rowBytes()]
	var x splitBlock
	for ; len(blocks) > 0; blocks = blocks[bytes:] {
		if m.element == Q8_0 {
			d, squares := float64(half(blocks)), int32(0)
			for _, q := range (*[32]byte)(blocks[2:]) {
				squares += int32(int8(q)) * int32(int8(q))
			}
			sum += float64(d * d * float64(squares))
			continue
		}
		m.element.split(blocks, &x)
		for j, q := range x.codes[:elements] {
			g := math.Abs(float64(float64(x.factors[j/16])*float64(q))) + math.Abs(float64(x.minima[j/32]))
			sum += float64(g * g)
		}
	}
	return sum
}

// RowBytes returns the size of a row.
func (m *BlockRows) RowBytes() int { return m.rows.rowBytes() }

// Part returns the rows from first on, before end.
func (m *BlockRows) Part(first, end int) BlockRows {
	return BlockRows{Part(m.rows, first, end), m.dim, m.meta[first:end], m.slack}
}

const (
	// maxBlockCode is the largest H: contexts are integers H of 15 bits.
	maxBlockCode = 127*128 + 63
	groupSize    = 32 // weights that share a factor, or two
	// Assembly for arm64 multiplies bytes, H = 128 hi + lo with hi in [-127, 127] and lo in [-64,
	// 63]. All other forms multiply words, with 256 times the code in the words of the weights:
	// four products of H and 256 codes of 8 bits are below 2^31.
	bytePlanes = runtime.GOARCH == "arm64"
	loBits     = 7
)

// pairBytes is the size of two groups of a context: 64 bytes of hi and 64 of lo, or of H of even
// and of odd weights, and for rows that have minima for each four elements their sum as float32.
func (e Element) pairBytes() int {
	if elementTypes[e].mins {
		return 6 * groupSize
	}
	return 4 * groupSize
}

// setPlane stores H of element j of two groups.
func setPlane(plane []byte, j int, h int32) {
	if bytePlanes {
		hi := (h + 1<<(loBits-1)) >> loBits
		plane[j], plane[64+j] = byte(hi), byte(h-hi<<loBits)
		return
	}
	binary.LittleEndian.PutUint16(plane[j%2*64+j/2*2:], uint16(h))
}

// planeAt returns the value that setPlane stored.
func planeAt(plane []byte, j int) int32 {
	if bytePlanes {
		return int32(int8(plane[j]))<<loBits + int32(int8(plane[64+j]))
	}
	return int32(int16(binary.LittleEndian.Uint16(plane[j%2*64+j/2*2:])))
}

// BlockContexts holds up to BatchContexts contexts for BlockRows of one type: h ~ scale H with
// integers of 15 bits, and bounds of the error. The zero value holds none. It must not be changed
// while it is in use.
type BlockContexts struct {
	memory  []byte
	element Element
	dim, n  int
	wide    int // contexts that intervals have room for: 1 or BatchContexts
	bound   blockBound
}

// blockBound is the contexts' side of the intervals, as leaves read it.
type blockBound struct {
	planes *byte
	meta   *BlockMeta // of the first row
	bytes  int        // of a row
	ahead  int        // the distance of the prefetches for rows that follow each other
	scale  [BatchContexts]float32
	err    [BatchContexts]float32
	norm   [BatchContexts]float32
	slack  float32
}

// codeStep is the common divisor of the codes that assembly multiplies for a type's weights: 128
// over half of the range of a weight's integer, and 256 in words.
func (e Element) codeStep() float32 {
	step := float32(256)
	if bytePlanes {
		step = 1
	}
	if zero := elementTypes[e].zero; zero > 0 {
		return step * float32(128/zero)
	}
	return step
}

// Set prepares 1 to BatchContexts vectors, all Certified, for rows like m.
//
// Elements after the end of a vector count as zeros, as the weights there are. The blocks differ
// from the row by at most err ||h|| in the sum, which is the second part of an interval. For the
// first, with H_j = round(h_j/scale) and e = ||h - scale H||, the sum over a row of w_j h_j differs
// from the sum of w_j scale H_j by at most ||w|| e. The latter is computed from sums of four
// products of integers, which are exact as float32, with float32 roundings: for each of 16 lanes a
// fused multiply-add per pair of groups, or two with minima, which round terms whose magnitudes sum
// up to at most sum g_j |scale H_j| <= N ||scale H||; four additions, the product with scale, and
// the sum with the bias; and rounding of a weight of types with minima, once. So with p pairs and u
// = 2^-24
//
//	|computed - logit| <= N e + (2p + 8) u N (||h|| + e) + 2u |bias|
//
// and the reference arithmetic's own roundings are below 2^-36 N ||h||. err is e + (2p+16) u (||h||
// + e), rounded up with 2^-20 of itself, which covers the roundings of N err, of its sum with the
// slack, and of the ends, |computed| being at most N (||h|| + e) + |bias|.
func (c *BlockContexts) Set(m *BlockRows, vs ...*Int8Vector) {
	if len(vs) < 1 || len(vs) > BatchContexts {
		panic("kernels: number of contexts is not within 1 and BatchContexts")
	}
	for _, v := range vs {
		if v.dim != m.dim || v.fit != Certified {
			panic("kernels: vector is not Certified or not of the rows' dimension")
		}
	}
	dim := m.rows.dim
	c.element, c.dim, c.n = m.rows.element, dim, len(vs)
	c.wide = 1
	if c.n > 1 {
		c.wide = BatchContexts
	}
	ahead, much := simd.Ahead()
	if elements, _ := BlockOf(c.element); c.n > 1 || elements > groupSize {
		ahead = much
	}
	pairs, size := (dim+2*groupSize-1)/(2*groupSize), c.element.pairBytes()
	c.memory = mem.Grow(c.memory, pairs*c.wide*size+rowAlign)
	planes := c.memory[int(-uintptr(unsafe.Pointer(&c.memory[0]))%rowAlign):][:pairs*c.wide*size]
	clear(planes)
	c.bound = blockBound{planes: &planes[0], bytes: m.rows.rowBytes(), ahead: ahead}
	for i := range BatchContexts {
		v := vs[min(i, c.n-1)]
		if i < c.wide {
			c.set(i, c.wide, planes, v, pairs)
		}
	}
}

func (c *BlockContexts) set(i, wide int, planes []byte, v *Int8Vector, pairs int) {
	h := v.Vector()
	largest := math.Float32frombits(MaxAbsBits(v.h[:(v.dim+15)&^15]))
	scale := largest / maxBlockCode
	if largest == 0 {
		scale = 1
	}
	inv, s := 1/float64(scale), float64(scale)
	norm2, err2 := 0.0, 0.0
	mins, step, size := elementTypes[c.element].mins, c.element.codeStep(), c.element.pairBytes()
	for at := 0; at < len(h); at += 4 {
		pair, j := at/(2*groupSize), at%(2*groupSize)
		plane := planes[(pair*wide+i)*size:][:size]
		sum := int32(0)
		for k, x := range h[at:min(at+4, len(h))] {
			y := float64(x)
			q := int32(math.RoundToEven(float64(y * inv)))
			setPlane(plane, j+k, q)
			sum += q
			e := y - float64(s*float64(q))
			norm2 += float64(y * y)
			err2 += float64(e * e)
		}
		if mins {
			*(*float32)(unsafe.Pointer((*[4]byte)(plane[128+j:]))) = float32(sum) * step
		}
	}
	norm, e := math.Sqrt(norm2), math.Sqrt(err2)
	c.bound.scale[i] = scale / step
	c.bound.norm[i] = RoundUp(norm * (1 + 0x1p-19))
	c.bound.err[i] = RoundUp((e + float64(2*pairs+16)*0x1p-24*(norm+e)) * (1 + 0x1p-20))
}

// Bounds computes an interval for the reference logit of every row and each of the contexts:
// context c's are from c*Len on of lower and upper, which have Len elements for one context, and for
// more of them Len elements for each of BatchContexts. The intervals have the same bits on every CPU.
func (m *BlockRows) Bounds(lower, upper []float32, c *BlockContexts) {
	m.intervals(lower, upper, nil, m.rows.n, c)
}

// GatherBounds is Bounds for the rows ids, with the intervals of context c from c*len(ids) on.
func (m *BlockRows) GatherBounds(lower, upper []float32, ids []uint32, c *BlockContexts) {
	CheckIDs(ids, m.rows.n)
	if len(ids) > 0 {
		m.intervals(lower, upper, ids, len(ids), c)
	}
}

func (m *BlockRows) intervals(lower, upper []float32, ids []uint32, n int, c *BlockContexts) {
	if c.n == 0 || c.element != m.rows.element || c.dim != m.rows.dim {
		panic("kernels: contexts are not set for these rows")
	}
	if len(lower) != c.wide*n || len(upper) != c.wide*n {
		panic("kernels: length of lower or upper differs from the number of rows or ids, for each context")
	}
	RaceReads(c.memory)
	size := m.rows.rowBytes()
	for at := callsOf(n, CallRows(size)); at.at < at.n; at = at.next() {
		raceIntervals(m.rows.bytes(), size, ids, at, lower, upper, c.wide)
		first, list := at.at, unsafe.SliceData(ids)
		if ids != nil {
			first, list = 0, &ids[at.at]
		}
		if ids != nil && c.n == 1 {
			// Rows far apart, on different pages, come from memory while the rows before them are
			// computed: the first ones are asked for here, the others by the leaf.
			Prefetch(m.rows, ids[at.at:at.end])
		}
		m.leaf(lower[at.at:], upper[at.at:], n, first, list, at.end-at.at, c)
	}
	runtime.KeepAlive(c)
}

// leaf computes the intervals of n rows, from first on or the rows ids, ld apart for each context.
func (m *BlockRows) leaf(lower, upper []float32, ld, first int, ids *uint32, n int, c *BlockContexts) {
	b := c.bound
	b.meta, b.slack = &m.meta[first], m.slack
	if ids != nil {
		b.ahead = 0 // what follows a row in memory is not read next
	}
	rows, arg, e, ok := unsafe.Add(m.rows.data, first*b.bytes), (*byte)(unsafe.Pointer(&b)), uint8(m.rows.element), false
	elements, _ := BlockOf(m.rows.element)
	if blocks := m.rows.dim / elements; c.wide > 1 {
		ok = asm.BlockBatchOf(&lower[0], &upper[0], ld, rows, ids, n, blocks, arg, e)
	} else {
		ok = asm.BlockBoundsOf(&lower[0], &upper[0], ld, rows, ids, n, blocks, arg, e)
	}
	if !ok {
		m.generic(lower, upper, ld, first, ids, n, c)
	}
}

// generic is leaf in plain Go.
func (m *BlockRows) generic(lower, upper []float32, ld, first int, ids *uint32, n int, c *BlockContexts) {
	wide := c.wide
	var x splitBlock
	e, size := m.rows.element, m.rows.rowBytes()
	elements, bytes := BlockOf(e)
	pairs := (m.rows.dim + 2*groupSize - 1) / (2 * groupSize)
	part := e.pairBytes()
	planes := unsafe.Slice(c.bound.planes, pairs*wide*part)
	for i := range n {
		row := first + i
		if ids != nil {
			row = int(*(*uint32)(unsafe.Add(unsafe.Pointer(ids), 4*i)))
		}
		var sums [BatchContexts][16]float32
		blocks := m.rows.bytes()[row*size:][:size]
		for at := 0; len(blocks) > 0; blocks = blocks[bytes:] {
			e.split(blocks[:bytes], &x)
			for g := range elements / groupSize {
				for k := range c.n {
					pair, odd := at/2*wide+k, at%2
					x.add(&sums[k], g, odd, planes[pair*part:][:part], e)
				}
				at++
			}
		}
		meta := m.meta[row]
		for k := range c.n {
			s := &sums[k]
			for j := range 8 {
				s[j] += s[j+8]
			}
			sum := ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))
			a := float32(sum*c.bound.scale[k]) + meta.Bias
			r := float32(meta.Norm*c.bound.err[k]) + float32(meta.Err*c.bound.norm[k]) + m.slack
			lower[k*ld+i], upper[k*ld+i] = a-r, a+r
		}
	}
}

// add adds the products of group g with a context's part of a plane to its lanes.
func (x *splitBlock) add(sums *[16]float32, g, odd int, plane []byte, e Element) {
	codes := (*[groupSize]int32)(x.codes[g*groupSize:])
	step := e.codeStep()
	for j := range 8 {
		sum := int32(0)
		for k := 4 * j; k < 4*j+4; k++ {
			sum += codes[k] * planeAt(plane, odd*groupSize+k)
		}
		s := &sums[8*odd+j]
		*s = fma32(x.factors[2*g+j/4], float32(sum)*step, *s)
		if elementTypes[e].mins {
			*s = fma32(-x.minima[g], *(*float32)(unsafe.Pointer(&plane[128+odd*groupSize+4*j])), *s)
		}
	}
}

// fma32 returns a b + c, rounded once.
func fma32(a, b, c float32) float32 {
	p := float64(a) * float64(b) // exact
	s := p + float64(c)
	// The remainder of s decides how to round a tie to float32: s becomes odd.
	t := s - p
	if rest := (p - (s - t)) + (float64(c) - t); rest != 0 {
		if bits := math.Float64bits(s); bits&1 == 0 {
			if rest > 0 == (s > 0) {
				bits++
			} else {
				bits--
			}
			s = math.Float64frombits(bits)
		}
	}
	return float32(s)
}
