package kernels

import (
	"encoding/binary"
	"math"
	"runtime"
	"unsafe"
)

const (
	// PanelRows is the number of rows of a panel of codes.
	PanelRows = 16
	stepCodes = 4 // adjacent codes of a row
	// StepBytes is the size of a step, a cache line.
	StepBytes = PanelRows * stepCodes
)

// Int8Panels holds rows of an [Int8Rows] that are scanned one after the other: 16 rows
// form a panel, in which the codes 4j to 4j+3 of all rows are adjacent, each plus 128, in
// a step of 64 bytes. After the ceil(dim/4) steps of a panel come the scales of its rows,
// their biases, errors and norms, 64 bytes each.
//
// A scan of panels needs no sums across the lanes of a register, reads streams of
// memory, and makes each code take one byte: rows of 200 codes take 216 bytes instead
// of the 256 of an Int8Rows. But single rows cannot be gathered.
//
// If no code of the rows is above 7 in magnitude the panels are narrow: two codes share a
// byte. A step is then eight codes of all rows, each plus 8: codes 8j to 8j+3 in the low halves
// of the bytes, 8j+4 to 8j+7 in the high ones.
//
// Int8Panels is immutable and safe for use by many goroutines.
type Int8Panels struct {
	data     []byte
	n, steps int // panels, and steps of a panel
	dim      int
	narrow   bool
	slack    float32
}

// PanelBytes returns the number of bytes of a panel of rows of dimension dim.
func PanelBytes(dim int, narrow bool) int {
	if narrow {
		dim = (dim + 1) / 2
	}
	return ((dim+stepCodes-1)/stepCodes + MetaBytes/4) * StepBytes
}

// PanelsIn returns panels of rows of m in data: PanelBytes(Dim, narrow) bytes each, 64-byte aligned.
// Package encode makes them. PanelsIn keeps data, which must not be changed once intervals are
// computed. It may be memory outside the Go heap, released after the Int8Panels is unreachable.
func PanelsIn(data []byte, m *Int8Rows, narrow bool) *Int8Panels {
	size := PanelBytes(m.dim, narrow)
	if len(data)%size != 0 {
		panic("kernels: length of data is not a multiple of the bytes of a panel")
	}
	if len(data) > 0 && uintptr(unsafe.Pointer(&data[0]))%rowAlign != 0 {
		panic("kernels: data is not 64-byte aligned")
	}
	return &Int8Panels{data: data, n: len(data) / size, steps: size/StepBytes - MetaBytes/4, dim: m.dim, narrow: narrow, slack: m.slack}
}

// size returns the bytes of a panel.
func (p *Int8Panels) size() int { return (p.steps + MetaBytes/4) * StepBytes }

// Narrowed is the difference between a code of a record and one of narrow panels, in eight bytes.
const Narrowed = (CodeBias - code4Bias) * 0x0101010101010101

// PanelsOf returns the number of panels that hold n rows.
func PanelsOf(n int) int { return (n + PanelRows - 1) / PanelRows }

// Len returns the number of panels.
func (p *Int8Panels) Len() int { return p.n }

const (
	startBytes   = 256 // of the panels that are among their lines: the CPU reads on by itself
	largePage    = 2 << 20
	maxLinePages = 8
)

// AddLines adds the start of the panels, and a line of each 2 MiB of them up to maxLinePages: each
// line is on a different large page, if there are large pages, so that the CPU knows the address of
// the page before it needs the first of its panels.
func (p *Int8Panels) AddLines(l *Lines) {
	AddLines(l, startBytes, p.data)
	for page := 1; page < min(maxLinePages, (len(p.data)+largePage-1)/largePage); page++ {
		AddLines(l, 1, p.data[page*largePage:])
	}
}

// Bias returns the bias of a row, row i of panel j being row PanelRows*j+i.
func (p *Int8Panels) Bias(row int) float32 {
	panel, r := uint(row)/PanelRows, uint(row)%PanelRows
	at := panel*uint(p.steps+MetaBytes/4)*StepBytes + uint(p.steps+1)*StepBytes + 4*r
	return math.Float32frombits(binary.LittleEndian.Uint32(p.data[at:]))
}

// batchBytes is the size of a part of the panels that all contexts of a batch use before the next
// part: it stays in the first-level cache.
const batchBytes = 16 << 10

// Bounds computes the intervals of the rows of some panels, as Int8Rows.Bounds does and
// bit for bit the same, for up to BatchContexts contexts: of the n panels from first on. The
// interval of row i of these panels and context c is at [c*PanelRows*n+i] of lower and
// upper, which have PanelRows*n elements a context. All vectors must be Certified.
func (p *Int8Panels) Bounds(lower, upper []float32, first, n int, vs ...*Int8Vector) {
	if first < 0 || n < 0 || first > p.n-n {
		panic("kernels: panels are out of range")
	}
	checkVectors(len(lower), len(upper), PanelRows*n, p.dim, vs)
	size := p.size()
	most := MaxCallBytes
	if len(vs) > 1 {
		most = batchBytes
	}
	var bounds [BatchContexts]bound
	for i, v := range vs {
		bounds[i].set(v, p.excess(v), p.slack)
	}
	for c := callsOf(n, max(1, most/size)); c.at < c.n; c = c.next() {
		data := p.data[(first+c.at)*size : (first+c.end)*size]
		RaceReads(data)
		for i := range vs {
			at, end := PanelRows*(i*n+c.at), PanelRows*(i*n+c.end)
			RaceReads(vs[i].codes)
			RaceWrites(lower[at:end])
			RaceWrites(upper[at:end])
			p.leaf(&lower[at], &upper[at], data, c.end-c.at, &bounds[i], vs[i])
		}
	}
	runtime.KeepAlive(p)
}

// survivors is Survivors for work of more than one call, or for more than laneCount labels.
func (p *Int8Panels) survivors(lower, upper []float32, rows []uint32, first, n, k int, v *Int8Vector) int {
	p.Bounds(lower, upper, first, PanelsOf(n), v)
	threshold, ok := KthBound(lower[:n], k)
	if !ok {
		scores := unsafe.Slice((*float32)(unsafe.Pointer(&rows[0])), n) // before there are rows
		copy(scores, lower)
		threshold = KthLargest(scores, k)
	}
	return SelectAtLeast(rows, upper[:n], threshold)
}

// panelGeneric computes the intervals of n panels. Several threads may call it with one vector.
func panelGeneric(lower, upper *float32, data []byte, n int, p *Int8Panels, v *Int8Vector) {
	lo, up := unsafe.Slice(lower, PanelRows*n), unsafe.Slice(upper, PanelRows*n)
	h, size, step := v.plainCodes8(), len(data)/n, stepCodes
	if p.narrow {
		step *= 2
	}
	var row [256]byte // some codes of a row at a time, whose products dot8 sums
	for i := range lo {
		panel, r := data[i/PanelRows*size:][:size], i%PanelRows
		dot := int32(0)
		for s, rest := 0, h; s < p.steps; s += len(row) / step {
			for j := range min(len(row)/step, p.steps-s) {
				codes, at := panel[(s+j)*StepBytes+r*stepCodes:][:stepCodes], row[j*step:]
				if p.narrow {
					x := uint64(binary.LittleEndian.Uint32(codes))
					binary.LittleEndian.PutUint64(at, (x&0x0f0f0f0f|x>>4&0x0f0f0f0f<<32)+Narrowed)
				} else {
					copy(at, codes)
				}
			}
			part := min(len(row)/8, len(rest)) // codes after the last are multiplied by zeros
			dot += dot8(row[:], rest[:part])
			rest = rest[part:]
		}
		var rec [MetaBytes]byte
		for f := range MetaBytes / 4 {
			copy(rec[4*f:], panel[(p.steps+f)*StepBytes+4*r:][:4])
		}
		lo[i], up[i] = interval(rec[:], dot-CodeBias*v.sum, v, p.slack)
	}
}
