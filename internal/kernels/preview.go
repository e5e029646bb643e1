package kernels

import (
	"encoding/binary"

	"github.com/learning-to-screen/l2s/kernels/asm"
)

// Panels of 16 rows hold codes of 7 bits, 0 to 127 for the numbers -64 to 63, or of 4 bits, 0 to 15
// for the odd numbers -15 to 15. Codes 4j to 4j+3 of all rows of 7 bits are adjacent in a step of
// 64 bytes. Of 4 bits a step holds the codes 8j to 8j+7: the first four of a row in the low halves
// of its bytes, the others in the high ones. So no sum is taken across the lanes of a register, and
// no sum of two products overflows 16 bits.

const (
	bias7 = 64
	bias4 = 15 // of twice a code
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
	raceReads(high)
	raceReads(low)
	size, steps := PanelRows*len(high), len(high)/stepCodes
	excessHigh, excessLow := bias7*sumOf(high), bias7*sumOf(low)
	for c := callsOf(n, max(1, maxCallBytes/size)); c.at < c.n; c = c.next() {
		out, part := dst[PanelRows*c.at:PanelRows*c.end], panels[size*c.at:size*c.end]
		raceReads(part)
		raceReads(high)
		raceReads(low)
		raceWrites(out)
		if !asm.Scores7(&out[0], &part[0], c.end-c.at, steps, &high[0], &low[0], excessHigh, excessLow, scale) {
			scores7Generic(out, part, high, low, excessHigh, excessLow, scale)
		}
	}
}

// Scores4 computes, for each row of panels of 4 bits, base + scale*S: S is the sum of the products
// of the row's codes, 0 to 15, with the numbers of the vector, less 7.5 times the sum of these,
// rounded down. It is computed in float32 from exact S, in this order, on every CPU.
//
// The panels have 8*len(vector) bytes each, and dst has 16 elements for each of them. len(vector)
// is a positive multiple of 8, at most 2^16, no number of it is -128, and sum is their sum. It
// prefetches the number of bytes of the panels from the start of next on, where the caller
// continues; next may be empty.
func Scores4(dst []float32, panels, next []byte, vector []int8, sum int32, base, scale float32) {
	n := checkPanels(len(dst), len(panels), len(vector), PanelRows*len(vector)/2, 2*stepCodes)
	if n == 0 {
		return
	}
	size, steps := PanelRows*len(vector)/2, len(vector)/(2*stepCodes)
	excess := bias4 * sum >> 1
	if len(next) == 0 {
		next = panels
	}
	for c := callsOf(n, max(1, maxCallBytes/size)); c.at < c.n; c = c.next() {
		out, part := dst[PanelRows*c.at:PanelRows*c.end], panels[size*c.at:size*c.end]
		raceReads(part)
		raceReads(vector)
		raceWrites(out)
		ahead := &next[min(size*c.at, len(next)-1)]
		if !asm.Scores4(&out[0], &part[0], ahead, c.end-c.at, steps, &vector[0], excess, scale, base) {
			scores4Generic(out, part, vector, excess, base, scale)
		}
	}
}

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
			c := int32(at[j/stepCodes*stepBytes+j%stepCodes])
			h += c * int32(high[j])
			l += c * int32(low[j])
		}
		dst[i] = float32(float32(float32(h)*128)+float32(l)) * scale
	}
}

func scores4Generic(dst []float32, panels []byte, vector []int8, excess int32, base, scale float32) {
	steps := len(vector) / (2 * stepCodes)
	for i := range dst {
		at := panels[i/PanelRows*steps*stepBytes+i%PanelRows*stepCodes:]
		s := -excess
		for step := range steps {
			codes, v := binary.LittleEndian.Uint32(at[step*stepBytes:]), vector[2*stepCodes*step:]
			for j := range stepCodes {
				s += int32(codes>>(8*j)&15)*int32(v[j]) + int32(codes>>(8*j+4)&15)*int32(v[stepCodes+j])
			}
		}
		dst[i] = float32(float32(s)*scale) + base
	}
}

// PutCode7 sets number j, -64 to 63, of row r of panels for vectors of dim numbers.
func PutCode7(panels []byte, dim, r, j int, number int8) {
	panels[r/PanelRows*PanelRows*dim+j/stepCodes*stepBytes+r%PanelRows*stepCodes+j%stepCodes] = byte(int(number) + bias7)
}

// PackCodes4 packs the codes, 0 to 15, of a row to half the number of bytes: in steps of 8 codes,
// with code i in the lower half of byte i and code i+4 in the upper one.
func PackCodes4(row, codes []byte) {
	for s := range len(codes) / (2 * stepCodes) {
		eight := binary.LittleEndian.Uint64(codes[2*stepCodes*s:])
		binary.LittleEndian.PutUint32(row[s*stepCodes:], uint32(eight)|uint32(eight>>32)<<4)
	}
}

// PutRow4 sets row r of panels to packed codes.
func PutRow4(panels []byte, r int, row []byte) {
	at := panels[r/PanelRows*PanelRows*len(row)+r%PanelRows*stepCodes:]
	for s := range len(row) / stepCodes {
		copy(at[s*stepBytes:][:stepCodes], row[s*stepCodes:])
	}
}

// Row4 takes the packed codes of row r from panels.
func Row4(row, panels []byte, r int) {
	at := panels[r/PanelRows*PanelRows*len(row)+r%PanelRows*stepCodes:]
	for s := range len(row) / stepCodes {
		copy(row[s*stepCodes:][:stepCodes], at[s*stepBytes:])
	}
}
