package kernels

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"runtime"
	"unsafe"

	"github.com/learning-to-screen/l2s/internal/parallel"
)

const (
	// PanelRows is the number of rows of a panel of codes.
	PanelRows = 16
	stepCodes = 4                     // adjacent codes of a row
	stepBytes = PanelRows * stepCodes // a cache line
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

// noRow returns the record of an unused row of a panel.
func (m *Int8Rows) noRow() []byte {
	rec := bytes.Repeat([]byte{codeBias}, m.stride)
	for i, x := range [...]float32{0, float32(math.Inf(-1)), 0, 0} {
		binary.LittleEndian.PutUint32(rec[m.stride-metaBytes+4*i:], math.Float32bits(x))
	}
	return rec
}

func panelSteps(dim int) int { return (dim + stepCodes - 1) / stepCodes }

// Int8PanelBytes returns the number of bytes of a panel of rows of dimension dim.
func Int8PanelBytes(dim int) int { return (panelSteps(dim) + metaBytes/4) * stepBytes }

// Panels copies the rows ids[starts[t]:starts[t+1]] of each list t to separate panels, the panels
// of list t after the panels of the earlier lists. If a list does not fill its last panel, the
// lower and upper ends of the other rows are -Inf. The panels are written to data:
// Int8PanelBytes(Dim) bytes each, 64-byte aligned. Panels keeps data, which must not be changed.
// Narrow panels leave about the second half of it unused. It may be memory outside the Go heap,
// released after the Int8Panels is unreachable. Each id must be less than Len, and starts
// ascending, from 0 to the number of ids. All cores copy. It returns an error if the records are in
// a mapped file that can no longer be read.
func (m *Int8Rows) Panels(data []byte, ids []uint32, starts []int) (*Int8Panels, error) {
	size := Int8PanelBytes(m.dim)
	p := &Int8Panels{data: data, n: len(data) / size, steps: panelSteps(m.dim), dim: m.dim, slack: m.slack}
	checkIDs(ids, m.n)
	if len(starts) == 0 || starts[0] != 0 || starts[len(starts)-1] != len(ids) {
		panic("kernels: starts are not from 0 to the number of ids")
	}
	firsts, at := make([]int, len(starts)), 0
	for t := range starts[1:] {
		if starts[t] > starts[t+1] {
			panic("kernels: starts are not ascending")
		}
		firsts[t] = at
		at += panelsOf(starts[t+1] - starts[t])
	}
	if len(data) != at*size {
		panic("kernels: length of data is not the number of panels times the bytes of a panel")
	}
	if len(data) > 0 && uintptr(unsafe.Pointer(&data[0]))%rowAlign != 0 {
		panic("kernels: data is not 64-byte aligned")
	}
	err := parallel.Each(context.Background(), 1, 1, 1, nil, func(_, _, _ int) error {
		p.narrow = m.withinHalves(ids)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if p.narrow {
		p.steps = panelSteps((m.dim + 1) / 2)
		size = p.size()
		p.data = data[:at*size]
	}
	none := m.noRow()
	err = parallel.Each(context.Background(), 0, len(starts)-1, 1, nil, func(_, lo, hi int) error {
		for t := lo; t < hi; t++ {
			panels := data[firsts[t]*size:]
			for list := ids[starts[t]:starts[t+1]]; len(list) > 0; panels = panels[size:] {
				n := min(PanelRows, len(list))
				p.fill(panels[:size], m, list[:n], none)
				list = list[n:]
			}
		}
		return nil
	})
	runtime.KeepAlive(m)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// withinHalves reports whether no code of the rows ids is above maxCode4 in magnitude.
func (m *Int8Rows) withinHalves(ids []uint32) bool {
	for _, id := range ids {
		for _, c := range m.data[int(id)*m.stride:][:m.dim] {
			if c-(codeBias-maxCode4) > 2*maxCode4 {
				return false
			}
		}
	}
	return true
}

// size returns the bytes of a panel.
func (p *Int8Panels) size() int { return (p.steps + metaBytes/4) * stepBytes }

// The difference between a code of a record and one of narrow panels, in eight bytes.
const narrowed = (codeBias - code4Bias) * 0x0101010101010101

func panelsOf(n int) int { return (n + PanelRows - 1) / PanelRows }

// fill writes a panel of the rows ids, at most PanelRows of them.
func (p *Int8Panels) fill(panel []byte, m *Int8Rows, ids []uint32, none []byte) {
	meta := panel[p.steps*stepBytes:]
	for r := range PanelRows {
		rec := none
		if r < len(ids) {
			rec = m.data[int(ids[r])*m.stride:][:m.stride]
		}
		at := panel[r*stepCodes:]
		for s := range p.steps {
			var codes uint32
			if p.narrow {
				eight := binary.LittleEndian.Uint64(rec[2*s*stepCodes:]) - narrowed
				codes = uint32(eight) | uint32(eight>>32)<<4
			} else {
				codes = binary.LittleEndian.Uint32(rec[s*stepCodes:])
			}
			binary.LittleEndian.PutUint32(at[s*stepBytes:], codes)
		}
		for f := range metaBytes / 4 {
			copy(meta[f*stepBytes+4*r:][:4], rec[m.stride-metaBytes+4*f:])
		}
	}
}

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
	at := panel*uint(p.steps+metaBytes/4)*stepBytes + uint(p.steps+1)*stepBytes + 4*r
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
	most := maxCallBytes
	if len(vs) > 1 {
		most = batchBytes
	}
	var bounds [BatchContexts]bound
	for i, v := range vs {
		bounds[i].set(v, p.excess(v), p.slack)
	}
	for c := callsOf(n, max(1, most/size)); c.at < c.n; c = c.next() {
		data := p.data[(first+c.at)*size : (first+c.end)*size]
		raceReads(data)
		for i := range vs {
			at, end := PanelRows*(i*n+c.at), PanelRows*(i*n+c.end)
			raceReads(vs[i].codes)
			raceWrites(lower[at:end])
			raceWrites(upper[at:end])
			p.leaf(&lower[at], &upper[at], data, c.end-c.at, &bounds[i])
		}
	}
	runtime.KeepAlive(p)
}

// survivors is Survivors for work of more than one call, or for more than laneCount labels.
func (p *Int8Panels) survivors(lower, upper []float32, rows []uint32, first, n, k int, v *Int8Vector) int {
	p.Bounds(lower, upper, first, panelsOf(n), v)
	threshold, ok := KthBound(lower[:n], k)
	if !ok {
		scores := unsafe.Slice((*float32)(unsafe.Pointer(&rows[0])), n) // before there are rows
		copy(scores, lower)
		threshold = KthLargest(scores, k)
	}
	return SelectAtLeast(rows, upper[:n], threshold)
}

// panelGeneric computes the intervals of n panels. Several threads may call it with one vector.
func panelGeneric(lower, upper *float32, data []byte, n int, p *Int8Panels, b *bound) {
	lo, up := unsafe.Slice(lower, PanelRows*n), unsafe.Slice(upper, PanelRows*n)
	h, size, step := b.v.plainCodes8(), len(data)/n, stepCodes
	if p.narrow {
		step *= 2
	}
	var row [256]byte // some codes of a row at a time, whose products dot8 sums
	for i := range lo {
		panel, r := data[i/PanelRows*size:][:size], i%PanelRows
		dot := int32(0)
		for s, rest := 0, h; s < p.steps; s += len(row) / step {
			for j := range min(len(row)/step, p.steps-s) {
				codes, at := panel[(s+j)*stepBytes+r*stepCodes:][:stepCodes], row[j*step:]
				if p.narrow {
					x := uint64(binary.LittleEndian.Uint32(codes))
					binary.LittleEndian.PutUint64(at, (x&0x0f0f0f0f|x>>4&0x0f0f0f0f<<32)+narrowed)
				} else {
					copy(at, codes)
				}
			}
			part := min(len(row)/8, len(rest)) // codes after the last are multiplied by zeros
			dot += dot8(row[:], rest[:part])
			rest = rest[part:]
		}
		var rec [metaBytes]byte
		for f := range metaBytes / 4 {
			copy(rec[4*f:], panel[(p.steps+f)*stepBytes+4*r:][:4])
		}
		lo[i], up[i] = interval(rec[:], dot-codeBias*b.v.sum, b.v, b.slack)
	}
}
