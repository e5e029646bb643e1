package kernels

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/kernels/asm"
)

// Panels of 16 rows hold codes of 7 bits, 0 to 127 for the numbers -64 to 63, or codes of 4 bits, 0
// to 15 for the odd numbers -15 to 15, and codes of 2 bits after them, 0 to 3 for the odd numbers -3
// to 3. A step of a panel has 64 bytes, four adjacent ones for each row: four codes of 7 bits; eight
// of 4 bits, the first four in the low halves of the bytes; or sixteen of 2 bits, the first four in
// the lowest quarters of the bytes. So no sum is taken across the lanes of a register, and no sum of
// two products overflows 16 bits.

const (
	Bias7 = 64
	bias4 = 15 // of twice a code
	bias2 = 3

	step4 = 2 * stepCodes // codes of a step
	step2 = 4 * stepCodes
)

// Scores7 computes, for each row of panels of 7 bits, scale*(128*H + L): H and L are the sums of
// the products of the row's numbers with the numbers of high and low, which are together a vector
// of 15 bits. It is computed in float32 from exact H and L, in this order, on every CPU.
//
// The panels have 16*len(high) bytes each, and dst has 16 elements for each of them. len(high) is
// len(low), a positive multiple of 4, at most 2^16. No number of high or low is -128.
func Scores7(dst []float32, panels []byte, high, low []int8, scale float32) {
	n := checkPanels(len(dst), len(panels), len(high), PanelRows*len(high), stepCodes)
	if len(low) != len(high) {
		panic("kernels: lengths of high and low differ")
	}
	// The detector keeps four accesses of eight bytes: reads of single bytes would push out the
	// writes of another goroutine, so the whole slice is announced before the sums read it.
	RaceReads(high)
	RaceReads(low)
	size, steps := PanelRows*len(high), len(high)/stepCodes
	excessHigh, excessLow := Bias7*sumOf(high), Bias7*sumOf(low)
	for c := callsOf(n, max(1, MaxCallBytes/size)); c.at < c.n; c = c.next() {
		out, part := dst[PanelRows*c.at:PanelRows*c.end], panels[size*c.at:size*c.end]
		RaceReads(part)
		RaceWrites(out)
		if !asm.Scores7(&out[0], &part[0], c.end-c.at, steps, &high[0], &low[0], excessHigh, excessLow, scale) {
			scores7Generic(out, part, high, low, excessHigh, excessLow, scale)
		}
	}
}

// Planes7 splits a vector of 15 bits into the numbers that Scores7 takes: 128*high[j] + low[j] is v[j]
// over the step, which it returns, rounded to the nearest integer, of two the even one. The quotient
// is computed in v's type. If the step is not above 2^-100 and below 2^100, as of a vector of zeros,
// it is 0, and so are all numbers. high and low have at least the length of v, and the rest stays.
func Planes7[F float32 | float64](high, low []int8, v []F) (step float32) {
	const (
		most  = 127 * 128
		toInt = 3 << 51 // adding a number to it rounds the number to an integer, ties to even
	)
	largest := F(0)
	for _, x := range v {
		largest = max(largest, x, -x)
	}
	high, low = high[:len(v)], low[:len(v)]
	if step = float32(largest / most); !(step > 0x1p-100 && step < 0x1p100) {
		clear(high)
		clear(low)
		return 0
	}
	scale := most / largest
	for j, x := range v {
		high[j], low[j] = Halves7(int(int32(math.Float64bits(float64(F(x*scale)) + toInt))))
	}
	return step
}

// Halves7 returns the numbers, -64 to 63 the lower one, with 128*high + low = q.
func Halves7(q int) (high, low int8) {
	h := (q + 64) >> 7
	return int8(h), int8(q - h<<7)
}

// Scores42 scores the rows of the listed panels of a table of codes of 4 and of 2 bits. The score S of
// a row is the sum of the products of its codes with the numbers of the vector, the first fine of
// which are for the codes of 4 bits, less an excess, of Excess42. Scores42 adds S to the row's
// element of dst, in float32, or writes it there if set is true, and writes the largest element of
// the i-th listed panel to top[i]. As long as scores are below 2^24 in magnitude the sums are exact.
//
// A panel has 16*RowBytes42(len(vector), fine) bytes, and dst 16 elements for each panel of the
// table. fine is a multiple of 8, and the vector has a multiple of 16 numbers after them, at least
// one number and at most 2^16 in all. No number of it is -128. top has room for the list.
func Scores42(dst, top []float32, table []byte, panels []uint32, vector []int8, fine int, excess int32, set bool) {
	if fine < 0 || fine > len(vector) || fine%step4 != 0 || (len(vector)-fine)%step2 != 0 {
		panic("kernels: codes are not multiples of the codes of a step")
	}
	size := PanelRows * RowBytes42(len(vector), fine)
	n := checkPanels(len(dst), len(table), len(vector), size, step4)
	if len(top) < len(panels) {
		panic("kernels: top is shorter than the list of panels")
	}
	last := uint32(0)
	for _, p := range panels {
		last = max(last, p)
	}
	if len(panels) > 0 && uint64(last) >= uint64(n) {
		panic("kernels: a panel is not in the table")
	}
	how := 0
	if set {
		how = 1
	}
	for c := callsOf(len(panels), max(1, MaxCallBytes/size)); c.at < c.n; c = c.next() {
		list, most := panels[c.at:c.end], top[c.at:c.end]
		RaceReadsRows(table, size, list)
		RaceWritesRows(dst, PanelRows, list)
		RaceReads(vector)
		RaceWrites(most)
		if !asm.Scores42(&dst[0], &most[0], &table[0], &list[0], len(list), size, fine/step4, (len(vector)-fine)/step2, &vector[0], excess, how) {
			scores42Generic(dst, most, table, list, vector, fine, excess, set)
		}
	}
}

// Excess42 returns what takes codes of 4 and of 2 bits to their numbers, in sums of their products
// with a vector: 7.5 times the sum of its first fine numbers and 1.5 times the sum of the others,
// rounded down.
func Excess42(vector []int8, fine int) int32 {
	return (bias4*sumOf(vector[:fine]) + bias2*sumOf(vector[fine:])) >> 1
}

// RowBytes42 is the number of bytes of a row of n codes, the first fine of them of 4 bits, the
// others of 2.
func RowBytes42(n, fine int) int { return fine/2 + (n-fine)/4 }

// checkPanels returns the number of panels.
func checkPanels(dst, panels, vector, size, step int) int {
	switch {
	case vector == 0 || vector%step != 0 || vector > MaxInt8Dim:
		panic("kernels: length of the vector is not a positive multiple of the codes of a step")
	case panels%size != 0:
		panic("kernels: length of panels is not a multiple of the bytes of a panel")
	case dst != panels/size*PanelRows:
		panic("kernels: length of dst is not 16 for each panel")
	}
	return panels / size
}

func sumOf(x []int8) (sum int32) {
	for _, v := range x {
		sum += int32(v)
	}
	return sum
}

func scores7Generic(dst []float32, panels []byte, high, low []int8, excessHigh, excessLow int32, scale float32) {
	size := PanelRows * len(high)
	for i := range dst {
		at := panels[i/PanelRows*size+i%PanelRows*stepCodes:]
		h, l := -excessHigh, -excessLow
		for j := range high {
			c := int32(at[j/stepCodes*StepBytes+j%stepCodes])
			h += c * int32(high[j])
			l += c * int32(low[j])
		}
		dst[i] = float32(float32(float32(h)*128)+float32(l)) * scale
	}
}

func scores42Generic(dst, top []float32, table []byte, panels []uint32, vector []int8, fine int, excess int32, set bool) {
	size := PanelRows * RowBytes42(len(vector), fine)
	for i, p := range panels {
		out := dst[int(p)*PanelRows:][:PanelRows]
		for r := range out {
			at := table[int(p)*size+r*stepCodes:]
			s, v := -excess, vector
			for ; len(v) > len(vector)-fine; v = v[step4:] {
				codes := binary.LittleEndian.Uint32(at)
				for j, x := range v[:step4] {
					s += int32(codes>>(j%stepCodes*8+j/stepCodes*4)&15) * int32(x)
				}
				at = at[min(StepBytes, len(at)):]
			}
			for ; len(v) > 0; v = v[step2:] {
				codes := binary.LittleEndian.Uint32(at)
				for j, x := range v[:step2] {
					s += int32(codes>>(j%stepCodes*8+j/stepCodes*2)&3) * int32(x)
				}
				at = at[min(StepBytes, len(at)):]
			}
			if set {
				out[r] = 0
			}
			out[r] += float32(s)
		}
		top[i] = slices.Max(out)
	}
}
