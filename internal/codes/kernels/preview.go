package kernels

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/kernels/asm"
)

// Panels of 16 rows hold codes of 7 bits, 0 to 127 for the numbers -64 to 63, or codes of 2 bits, 0
// to 3 for the odd numbers -3 to 3. A step of a panel has 64 bytes, four adjacent ones for each row:
// four codes of 7 bits, or sixteen of 2 bits, the first four in the lowest quarters of the bytes. So
// no sum is taken across the lanes of a register, and no sum of two products overflows 16 bits. Lines
// of 64 bytes hold 256 codes of 2 bits of one row, the first 64 in the lowest quarters.

const (
	Bias7 = 64
	bias2 = 3 // of twice a code

	step2     = 4 * stepCodes // codes of a step
	LineCodes = 4 * StepBytes // of a line
	// MostPanelCodes is the largest number of codes of 2 bits of a panel's row: sums of more could
	// overflow 16 bits.
	MostPanelCodes = 5 * step2
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

// Scores2 scores the rows of the listed panels of a table of codes of 2 bits. The score S of a row is
// the sum of the products of its codes with the numbers of the vector, less an excess, of Excess2.
// Scores2 adds S to the row's element of dst, in float32, or writes it there if set is true, and
// writes the largest element of the i-th listed panel to top[i]. As long as scores are below 2^24 in
// magnitude the sums are exact.
//
// A panel has 16*len(vector)/4 bytes, and dst 16 elements for each panel of the table. The vector has
// 16, 32, 48, 64 or 80 numbers, none of them -128. top has room for the list.
func Scores2(dst, top []float32, table []byte, panels []uint32, vector []int8, excess int32, set bool) {
	size := check2(dst, table, panels, vector)
	if len(top) < len(panels) {
		panic("kernels: top is shorter than the list of panels")
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
		if !asm.Scores2(&dst[0], &most[0], &table[0], &list[0], len(list), size, len(vector)/step2, &vector[0], excess, how) {
			scores2Generic(dst, most, table, list, vector, excess, set)
		}
	}
}

// Keep2 adds to scores as Scores2 does, and writes to kept the listed panels of which an element of dst plus
// the panel's element of far is at least mark, in the order of the list. It returns their number. far has an
// element for each panel of the table, and kept has room for the list, which it may be.
func Keep2(dst []float32, kept []uint32, far []float32, table []byte, panels []uint32, vector []int8, excess int32, mark float32) (n int) {
	size := check2(dst, table, panels, vector)
	if len(far) < len(dst)/PanelRows || len(kept) < len(panels) {
		panic("kernels: far is shorter than the table, or kept than the list of panels")
	}
	for c := callsOf(len(panels), max(1, MaxCallBytes/size)); c.at < c.n; c = c.next() {
		list, room := panels[c.at:c.end], kept[n:n+c.end-c.at] // n <= c.at
		RaceReadsRows(table, size, list)
		RaceWritesRows(dst, PanelRows, list)
		RaceReadsRows(far, 1, list)
		RaceReads(vector)
		RaceWrites(room)
		found, ok := asm.Keep2(&dst[0], &room[0], &far[0], &table[0], &list[0], len(list), size, len(vector)/step2, &vector[0], excess, mark)
		if !ok {
			found = keep2Generic(dst, room, far, table, list, vector, excess, mark)
		}
		n += found
	}
	return n
}

// check2 returns the bytes of a panel of codes of 2 bits.
func check2(dst []float32, table []byte, panels []uint32, vector []int8) (size int) {
	if len(vector) > MostPanelCodes {
		panic("kernels: more than 80 codes of panels")
	}
	size = PanelRows * len(vector) / 4
	checkList(panels, checkPanels(len(dst), len(table), len(vector), size, step2), "kernels: a panel is not in the table")
	return size
}

// Lines2 adds to dst[i], in float32, the score of the i-th listed row of a table of lines: the sum of
// the products of its 256 codes of 2 bits with the numbers of the vector, less an excess, of Excess2.
// dst has room for the list, and no number of the vector is -128.
func Lines2(dst []float32, table []byte, rows []uint32, vector []int8, excess int32) {
	if len(table)%StepBytes != 0 || len(vector) != LineCodes {
		panic("kernels: length of the table is not a multiple of a line, or of the vector not its codes")
	}
	if len(dst) < len(rows) {
		panic("kernels: dst is shorter than the list of rows")
	}
	checkList(rows, len(table)/StepBytes, "kernels: a row is not in the table")
	for c := callsOf(len(rows), MaxCallBytes/StepBytes); c.at < c.n; c = c.next() {
		list, out := rows[c.at:c.end], dst[c.at:c.end]
		RaceReadsRows(table, StepBytes, list)
		RaceReads(vector)
		RaceWrites(out)
		if !asm.Lines2(&out[0], &table[0], &list[0], len(list), &vector[0], excess) {
			lines2Generic(out, table, list, vector, excess)
		}
	}
}

// SelectRows writes the rows of the listed panels whose scores are at least the panel's bound, bounds[i]
// of the i-th listed one, to rows, panel after panel, and their scores to selected. It returns their
// number. scores has 16 elements for each panel of the table; rows and selected have room for all rows
// of the list, and the rest of them may be overwritten.
func SelectRows(rows []uint32, selected, scores []float32, panels []uint32, bounds []float32) int {
	switch {
	case len(scores)%PanelRows != 0:
		panic("kernels: length of scores is not 16 for each panel")
	case len(bounds) < len(panels):
		panic("kernels: bounds are shorter than the list of panels")
	case len(rows)/PanelRows < len(panels) || len(selected)/PanelRows < len(panels):
		panic("kernels: rows or selected is shorter than the rows of the list")
	}
	checkList(panels, len(scores)/PanelRows, "kernels: a panel has no scores")
	n := 0
	for c := callsOf(len(panels), MaxCallBytes/StepBytes); c.at < c.n; c = c.next() {
		list, least := panels[c.at:c.end], bounds[c.at:c.end]
		ids, out := rows[n:n+PanelRows*len(list)], selected[n:n+PanelRows*len(list)] // n <= 16*c.at
		RaceReadsRows(scores, PanelRows, list)
		RaceReads(least)
		RaceWrites(ids)
		RaceWrites(out)
		found, ok := asm.SelectRows(&ids[0], &out[0], &scores[0], &list[0], &least[0], len(list))
		if !ok {
			found = selectRowsGeneric(ids, out, scores, list, least)
		}
		n += found
	}
	return n
}

// AddReach adds max(reach*gauge[i], share[i]*(mark-level[i])*steps + margin*gauge[i]) to dst[i], computed
// in float32 in this order. The others have the length of dst.
func AddReach(dst, gauge, share, level []float32, reach, margin, mark, steps float32) {
	n := len(dst)
	if len(gauge) != n || len(share) != n || len(level) != n {
		panic("kernels: lengths of dst, gauge, share and level differ")
	}
	for c := callsOf(n&^15, MaxCallBytes/16); c.at < c.n; c = c.next() {
		out, g, s, l := dst[c.at:c.end], gauge[c.at:c.end], share[c.at:c.end], level[c.at:c.end]
		RaceReads(g)
		RaceReads(s)
		RaceReads(l)
		RaceWrites(out)
		if !asm.AddReach(&out[0], &g[0], &s[0], &l[0], len(out), reach, margin, mark, steps) {
			addReachGeneric(out, g, s, l, reach, margin, mark, steps)
		}
	}
	if at := n &^ 15; at < n {
		addReachGeneric(dst[at:], gauge[at:], share[at:], level[at:], reach, margin, mark, steps)
	}
}

// checkList panics unless all numbers of a list are below n.
func checkList(list []uint32, n int, message string) {
	if !Below(list, n) {
		panic(message)
	}
}

// Below reports whether all numbers of a list are below n.
func Below(list []uint32, n int) bool { return len(list) == 0 || uint64(maxID(list)) < uint64(n) }

// Excess2 returns what takes codes of 2 bits to their numbers, in sums of their products with a
// vector: 1.5 times the sum of the vector, rounded down.
func Excess2(vector []int8) int32 { return bias2 * sumOf(vector) >> 1 }

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

func scores2Generic(dst, top []float32, table []byte, panels []uint32, vector []int8, excess int32, set bool) {
	for i, p := range panels {
		top[i] = slices.Max(panel2Generic(dst, table, p, vector, excess, set))
	}
}

func keep2Generic(dst []float32, kept []uint32, far []float32, table []byte, panels []uint32, vector []int8, excess int32, mark float32) (n int) {
	for _, p := range panels {
		kept[n] = p
		if slices.ContainsFunc(panel2Generic(dst, table, p, vector, excess, false), func(x float32) bool { return x+far[p] >= mark }) {
			n++
		}
	}
	return n
}

// panel2Generic is Scores2 for a panel, whose scores it returns.
func panel2Generic(dst []float32, table []byte, p uint32, vector []int8, excess int32, set bool) []float32 {
	size := PanelRows * len(vector) / 4
	out := dst[int(p)*PanelRows:][:PanelRows]
	for r := range out {
		at := table[int(p)*size+r*stepCodes:]
		s := -excess
		for v := vector; len(v) > 0; v = v[step2:] {
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
	return out
}

func lines2Generic(dst []float32, table []byte, rows []uint32, vector []int8, excess int32) {
	for i, row := range rows {
		s := -excess
		for j, codes := range table[int(row)*StepBytes:][:StepBytes] {
			for q := range 4 {
				s += int32(codes>>(2*q)&3) * int32(vector[q*StepBytes+j])
			}
		}
		dst[i] += float32(s)
	}
}

func selectRowsGeneric(rows []uint32, selected, scores []float32, panels []uint32, bounds []float32) (n int) {
	for i, p := range panels {
		for r, x := range scores[int(p)*PanelRows:][:PanelRows] {
			rows[n], selected[n] = p*PanelRows+uint32(r), x
			if x >= bounds[i] {
				n++
			}
		}
	}
	return n
}

func addReachGeneric(dst, gauge, share, level []float32, reach, margin, mark, steps float32) {
	for i, g := range gauge {
		far, rise := float32(reach*g), float32(float32(share[i]*(mark-level[i]))*steps)+float32(margin*g)
		if rise > far {
			far = rise
		}
		dst[i] += far
	}
}
