package kernels

import (
	"encoding/binary"
	"math"

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

// Scores2 writes the score of each row of panels of codes of 2 bits to dst, in float32. The score of a row
// is the sum of the products of its codes with the numbers of the vector, less an excess, of Excess2; it is
// exact.
//
// A panel has 16*len(vector)/4 bytes, and dst 16 elements for each panel. The vector has 16, 32, 48, 64 or
// 80 numbers, none of them -128.
func Scores2(dst []float32, panels []byte, vector []int8, excess int32) {
	size := check2(len(dst), len(panels), vector)
	for c := callsOf(len(dst)/PanelRows, max(1, MaxCallBytes/size)); c.at < c.n; c = c.next() {
		out, part := dst[PanelRows*c.at:PanelRows*c.end], panels[size*c.at:size*c.end]
		RaceReads(part)
		RaceReads(vector)
		RaceWrites(out)
		if !asm.Scores2(&out[0], &part[0], c.end-c.at, len(vector)/step2, &vector[0], excess) {
			scores2Generic(out, part, vector, excess)
		}
	}
}

// Near2 tells how far rows may be from their scores after a stage: a row by as much as its panel's number
// of Far times its own of Near.
type Near2 struct {
	Far  []float32 // of each panel
	Near []byte    // of each row
}

// Select2 scores the rows of listed panels of a table, each by the score of its panel and its own codes, as
// those of Scores2, and writes the rows near a mark to rows, panel after panel, with their scores in selected:
// those of which the score and the distance by now are at least the mark, in float32. To least it writes the
// mark less the distance by then, of each such row. It returns their number.
//
// scores has an element for each panel of the table. rows, selected and least have room for all rows of the
// list, and the rest of them may be overwritten. The vector is one of Scores2.
func Select2(rows []uint32, selected, least, scores []float32, now, then Near2, table []byte, panels []uint32, vector []int8, excess int32, mark float32) (n int) {
	all := len(scores)
	size := check2(PanelRows*all, len(table), vector)
	for _, x := range []Near2{now, then} {
		if len(x.Far) != all || len(x.Near) != PanelRows*all {
			panic("kernels: distances are not one for each panel and row")
		}
	}
	if room := min(len(rows), len(selected), len(least)); room/PanelRows < len(panels) {
		panic("kernels: rows, selected or least is shorter than the rows of the list")
	}
	checkList(panels, all, "kernels: a panel is not in the table")
	for c := callsOf(len(panels), max(1, MaxCallBytes/size)); c.at < c.n; c = c.next() {
		list, end := panels[c.at:c.end], n+PanelRows*(c.end-c.at) // n <= 16*c.at
		ids, found, bounds := rows[n:end], selected[n:end], least[n:end]
		RaceReadsRows(table, size, list)
		RaceReadsRows(scores, 1, list)
		RaceReads(vector)
		for _, x := range []Near2{now, then} {
			RaceReadsRows(x.Far, 1, list)
			RaceReadsRows(x.Near, PanelRows, list)
		}
		RaceWrites(ids)
		RaceWrites(found)
		RaceWrites(bounds)
		k, ok := asm.Select2(&ids[0], &found[0], &bounds[0], &scores[0], &now.Far[0], &then.Far[0], &now.Near[0], &then.Near[0], &table[0], &list[0], len(list), size, len(vector)/step2, &vector[0], excess, mark)
		if !ok {
			k = select2Generic(ids, found, bounds, scores, now, then, table, list, vector, excess, mark)
		}
		n += k
	}
	return n
}

// KeepRows keeps, in place and in order, the rows whose scores are at least their elements of least, with
// their scores, and returns their number. The rest of rows and scores may be overwritten. Both have the
// length of least.
func KeepRows(rows []uint32, scores, least []float32) (n int) {
	if len(rows) != len(least) || len(scores) != len(least) {
		panic("kernels: lengths of rows, scores and least differ")
	}
	at := 0
	for c := callsOf(len(least)&^15, MaxCallBytes/16); c.at < c.n; c = c.next() {
		ids, x, bounds := rows[c.at:c.end], scores[c.at:c.end], least[c.at:c.end]
		RaceReads(bounds)
		RaceWrites(ids)
		RaceWrites(x)
		k, ok := asm.KeepRows(&ids[0], &x[0], &bounds[0], len(x))
		if !ok {
			k = keepRowsGeneric(ids, x, bounds)
		}
		copy(rows[n:], ids[:k]) // n <= c.at
		copy(scores[n:], x[:k])
		n, at = n+k, c.end
	}
	k := keepRowsGeneric(rows[at:], scores[at:], least[at:])
	copy(rows[n:], rows[at:at+k])
	copy(scores[n:], scores[at:at+k])
	return n + k
}

// check2 returns the bytes of a panel of codes of 2 bits.
func check2(dst, panels int, vector []int8) (size int) {
	if len(vector) > MostPanelCodes {
		panic("kernels: more than 80 codes of panels")
	}
	size = PanelRows * len(vector) / 4
	checkPanels(dst, panels, len(vector), size, step2)
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

func scores2Generic(dst []float32, panels []byte, vector []int8, excess int32) {
	size := PanelRows * len(vector) / 4
	for i := range dst {
		dst[i] = float32(score2(panels[i/PanelRows*size+i%PanelRows*stepCodes:], vector) - excess)
	}
}

// score2 returns the sum of the products of the codes of a row of a panel, from its first on.
func score2(at []byte, vector []int8) (s int32) {
	for v := vector; len(v) > 0; v = v[step2:] {
		codes := binary.LittleEndian.Uint32(at)
		for j, x := range v[:step2] {
			s += int32(codes>>(j%stepCodes*8+j/stepCodes*2)&3) * int32(x)
		}
		at = at[min(StepBytes, len(at)):]
	}
	return s
}

func select2Generic(rows []uint32, selected, least, scores []float32, now, then Near2, table []byte, panels []uint32, vector []int8, excess int32, mark float32) (n int) {
	size := PanelRows * len(vector) / 4
	for _, p := range panels {
		for r := range uint32(PanelRows) {
			row := p*PanelRows + r
			x := scores[p] + float32(score2(table[int(p)*size+int(r)*stepCodes:], vector)-excess)
			rows[n], selected[n], least[n] = row, x, mark-float32(then.Far[p]*float32(then.Near[row]))
			if x+float32(now.Far[p]*float32(now.Near[row])) >= mark {
				n++
			}
		}
	}
	return n
}

func keepRowsGeneric(rows []uint32, scores, least []float32) (n int) {
	for i, x := range scores {
		rows[n], scores[n] = rows[i], x
		if x >= least[i] {
			n++
		}
	}
	return n
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

func addReachGeneric(dst, gauge, share, level []float32, reach, margin, mark, steps float32) {
	for i, g := range gauge {
		far, rise := float32(reach*g), float32(float32(share[i]*(mark-level[i]))*steps)+float32(margin*g)
		if rise > far {
			far = rise
		}
		dst[i] += far
	}
}
