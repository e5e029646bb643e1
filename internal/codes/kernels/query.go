package kernels

import (
	"math"
	"runtime"
	"unsafe"

	"github.com/learning-to-screen/l2s/kernels/asm"
)

// The code of every query is together here: between the steps of a decoder neither its
// instructions nor the places of their pages are in the caches, and the linker puts functions in
// the order of the files and of their text.

// Prefetch asks for all lines and does not wait: they come in parallel, while without Prefetch each
// would be waited for at its first use. It is a hint, which changes no result. Plain Go has none. A
// line that is in the first-level cache costs some 0.5 ns.
func (l *Lines) Prefetch() {
	prefetchLines(l.few[:l.n])
	for c := callsOf(len(l.more), MaxCallBytes/lineBytes); c.at < c.n; c = c.next() {
		prefetchLines(l.more[c.at:c.end])
	}
}

func prefetchLines(lines []unsafe.Pointer) {
	if len(lines) > 0 {
		asm.PrefetchLines((*uintptr)(unsafe.Pointer(&lines[0])), len(lines))
	}
}

// Set quantises h, which has the vector's dimension, and keeps a copy of it.
func (v *Int8Vector) Set(h []float32) Fit {
	if len(h) != v.dim {
		panic("kernels: length of h differs from the dimension")
	}
	copyFew(v.h, h)
	v.fit = v.quantize()
	v.halved, v.has8, v.has4 = false, false, false
	return v.fit
}

// copyFew copies all of src in few instructions, without code on another page: the compiler makes a
// load and a store of a copy of four floats, and a call of a longer copy.
func copyFew(dst, src []float32) {
	n := len(src)
	if len(dst) < n {
		panic("kernels: dst is shorter than src")
	}
	to, from := unsafe.Pointer(unsafe.SliceData(dst)), unsafe.Pointer(unsafe.SliceData(src))
	i := 0
	for ; i+4 <= n; i += 4 {
		*(*[4]float32)(unsafe.Add(to, 4*i)) = *(*[4]float32)(unsafe.Add(from, 4*i))
	}
	for ; i < n; i++ {
		dst[i] = src[i]
	}
}

func (v *Int8Vector) quantize() Fit {
	blocks := v.h[:(v.dim+15)&^15]
	bits := MaxAbsBits(blocks)
	maxAbs := math.Float32frombits(bits)
	if bits >= 0x7f800000 {
		return NotFinite
	}
	// As integers: a constant of type float32 is a cache line to wait for.
	if v.dim > MaxInt8Dim || bits > maxCertifiedBits || bits < minCertifiedBits && bits != 0 {
		return Uncertified
	}
	if bits == 0 {
		clear(v.codes)
		v.sum, v.below, v.scale, v.norm, v.err = 0, 0, 0, 0, 0
		return Certified
	}
	v.scale = maxAbs / MaxCode
	codes := v.codes[:len(blocks)]
	RaceReads(blocks)
	RaceWrites(codes)
	norm2, err2, sum, below, ok := asm.Quantize(&codes[0], &blocks[0], len(blocks), MaxCode/maxAbs)
	if !ok {
		norm2, err2, sum, below = quantizeGeneric(codes, blocks, MaxCode/maxAbs)
	}
	v.sum, v.below = sum, below
	// With u = 2^-24: u_i = fl(h_i * fl(127/max)) is within 3.1u, relatively,
	// of h_i/scale (or within 2^-149, which the largest, 127, dwarfs), and
	// u_i - q_i is exact. The sums of squares are of 16 lanes, so that their
	// relative error is below (dim/16+5)u; the sums of u_i are in [127^2,
	// 127^2*2^16], far from underflow. grow covers that and the 3.1u of the
	// norm. Of the 20u ||h|| in err 3.1u are the difference of u_i and h_i/scale;
	// 16u are for Bounds.
	norm := float64(v.scale) * math.Sqrt(float64(norm2)) * v.grow
	err := float64(float64(v.scale)*math.Sqrt(float64(err2))*v.grow) + float64(0x1.4p-20*norm)
	v.norm = RoundUp(norm * (1 + 0x1p-20))
	v.err = RoundUp(err * (1 + 0x1p-20))
	return Certified
}

// MaxAbsBits returns the largest |x| as its float32 bits, which order
// non-negative floats, and all NaNs above +Inf.
func MaxAbsBits(x []float32) uint32 {
	whole := len(x) &^ 15
	m := maxAbsBitsGeneric(x[whole:])
	for c := callsOf(whole, MaxCallBytes/4); c.at < c.n; c = c.next() {
		part := x[c.at:c.end]
		RaceReads(part)
		bits, ok := asm.MaxAbsBits(&part[0], len(part))
		if !ok {
			bits = maxAbsBitsGeneric(part)
		}
		m = max(m, bits)
	}
	return m
}

func maxAbsBitsGeneric(x []float32) (m uint32) {
	for _, v := range x {
		m = max(m, math.Float32bits(v)&^(1<<31))
	}
	return m
}

// Length bounds the length of the vector, which must be Certified: no less than low, no more
// than high, and the two are nearly equal.
func (v *Int8Vector) Length() (low, high float64) {
	// The norm is at most grow^2 (1 + 2^-19) times the length, and 1/x >= 2 - x.
	high = float64(v.norm)
	return float64(high * (2 - float64(float64(v.grow*v.grow)*(1+0x1p-18)))), high
}

// Survivors computes the intervals of n rows of some panels, from panel first on, as Bounds does,
// and writes to rows, ascending, the rows that the intervals do not exclude from the rows with the
// k largest logits: all rows whose upper end reaches a number that the lower ends of k rows reach,
// which is the result of KthBound or, if it has none, the k-th largest. It returns their number, at
// least k. lower, upper and rows have room for whole panels; the rest after the returned rows may
// be overwritten. 1 <= k <= n; v must be Certified.
func (p *Int8Panels) Survivors(lower, upper []float32, rows []uint32, first, n, k int, v *Int8Vector) int {
	panels := PanelsOf(n)
	room, size := PanelRows*panels, p.size()
	if first < 0 || k < 1 || k > n || first > p.n-panels {
		panic("kernels: panels are out of range, or k is not within 1 and n")
	}
	if len(lower) < room || len(upper) < room || len(rows) < room {
		panic("kernels: lower, upper or rows has no room for the panels")
	}
	if v.dim != p.dim || v.fit != Certified {
		panic("kernels: vector is not Certified or not of the panels' dimension")
	}
	if panels*size > MaxCallBytes || k > laneCount {
		return p.survivors(lower[:room], upper[:room], rows, first, n, k, v)
	}
	data := p.data[first*size : (first+panels)*size]
	var b bound
	b.set(v, p.excess(v), p.slack)
	RaceReads(data)
	RaceReads(v.codes)
	RaceWrites(lower[:room])
	RaceWrites(upper[:room])
	RaceWrites(rows[:room])
	var lane [laneCount]float32
	p.leaf(&lower[0], &upper[0], data, panels, &b, v)
	// The lower ends after the rows are -Inf.
	threshold := kthOfLanesLeaf(&lane, lower[:room], k)
	found := selectAtLeastLeaf(rows, upper[:room], threshold)
	runtime.KeepAlive(p)
	return found
}

// leaf computes the intervals of n panels.
func (p *Int8Panels) leaf(lower, upper *float32, data []byte, n int, b *bound, v *Int8Vector) {
	var ok bool
	if p.narrow {
		ok = asm.Int4PanelBounds(lower, upper, &data[0], n, p.steps, (*byte)(unsafe.Pointer(b)))
	} else {
		ok = asm.Int8PanelBounds(lower, upper, &data[0], n, p.steps, (*byte)(unsafe.Pointer(b)))
	}
	if !ok {
		panelGeneric(lower, upper, data, n, p, v)
	}
}

// excess returns the surplus of the sums of products over the sums of the codes.
func (p *Int8Panels) excess(v *Int8Vector) int32 {
	if p.narrow {
		return code4Bias * v.sum
	}
	return excess8(v)
}

// kthOfLanesLeaf writes the largest score of each part of a positive multiple of 16 scores, and
// returns the k-th largest of them.
func kthOfLanesLeaf(lane *[laneCount]float32, scores []float32, k int) float32 {
	kth, ok := asm.KthOfLanes(&lane[0], &scores[0], len(scores), k)
	if !ok {
		return kthOfLanesGeneric(lane, scores, k)
	}
	return kth
}

func selectAtLeastLeaf(dst []uint32, scores []float32, threshold float32) int {
	n, ok := asm.SelectAtLeast(&dst[0], &scores[0], len(scores), threshold)
	if !ok {
		return selectAtLeastGeneric(dst, scores, threshold)
	}
	return n
}

// RefGatherDot computes the logits of the rows ids: dst[j] = RefDot(row ids[j], h) +
// float64(bias[ids[j]]). dst has len(ids) elements; each id must be less than Len; the rest is as
// for RefScan.
func (m Rows) RefGatherDot(dst []float64, bias []float32, ids []uint32, h []float32) {
	m.check(len(dst), len(ids), bias, h)
	CheckIDs(ids, m.n)
	step := fewIDs // short rows of a query's answer: one call, without the divisions of CallRows
	if len(ids) > fewIDs || m.dim > MaxCallDim/fewIDs {
		step = CallRows(m.rowBytes())
	}
	for c := callsOf(len(ids), step); c.at < c.n; c = c.next() {
		m.gatherLeaf(dst[c.at:c.end], ids[c.at:c.end], h)
	}
	if bias != nil {
		for j, id := range ids {
			dst[j] += float64(bias[id])
		}
	}
}

// fewIDs is a number of ids that are compared one by one.
const fewIDs = 16

// CheckIDs panics unless all ids are below n.
func CheckIDs(ids []uint32, n int) {
	if !Below(ids, n) {
		panic("kernels: id out of range")
	}
}

func maxID(ids []uint32) uint32 {
	if len(ids) <= fewIDs {
		return maxIDGeneric(ids)
	}
	whole := len(ids) &^ 15
	m := maxIDGeneric(ids[whole:])
	for c := callsOf(whole, MaxCallBytes/4); c.at < c.n; c = c.next() {
		part := ids[c.at:c.end]
		RaceReads(part)
		id, ok := asm.MaxID(&part[0], len(part))
		if !ok {
			id = maxIDGeneric(part)
		}
		m = max(m, id)
	}
	return m
}

func maxIDGeneric(ids []uint32) (m uint32) {
	for _, id := range ids {
		m = max(m, id)
	}
	return m
}

// gatherLeaf is RefGatherDot for the number of rows that one call may read, without bias.
func (m Rows) gatherLeaf(dst []float64, ids []uint32, h []float32) {
	RaceReadsRows(m.bytes(), m.rowBytes(), ids)
	RaceReads(h)
	RaceWrites(dst)
	if m.dim <= MaxCallDim && asm.RefGatherDotOf(&dst[0], m.data, &ids[0], len(ids), &h[0], m.dim, uint8(m.element)) {
		return
	}
	for j, id := range ids {
		dst[j] = m.refDotGeneric(int(id), h)
	}
}

// prefetched is the largest number of rows that Prefetch asks for.
const prefetched = 16

// Prefetch asks for the first two cache lines of the first 16 of the rows ids, and does not wait:
// then their pages are looked up in parallel, and two consecutive lines make the CPU read ahead. It
// is a hint, which changes no result. Plain Go has none.
func Prefetch(m Rows, ids []uint32) {
	if len(ids) == 0 || m.n == 0 {
		return
	}
	var at [2 * prefetched]unsafe.Pointer
	size := m.rowBytes()
	n := 0
	for _, id := range ids[:min(len(ids), prefetched)] {
		row := unsafe.Add(m.data, int(id)*size)
		at[n], at[n+1] = row, unsafe.Add(row, min(lineBytes, size-1))
		n += 2
	}
	prefetchLines(at[:n])
}
