package preview

import (
	"context"
	"math"
	"runtime"

	"github.com/learning-to-screen/l2s/internal/bigmem"
	"github.com/learning-to-screen/l2s/internal/encode"
	"github.com/learning-to-screen/l2s/internal/kernels"
	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/softmax"
)

// directions compute the products of vectors with some directions by integers: vectors of 15 bits,
// directions of 14. So they are the same on every CPU.
type directions struct {
	width, n int
	panels   []byte // the upper halves of the directions, and the lower ones
	steps    []float32
}

func newDirections(rows []float32, width int) *directions {
	d := &directions{width: width, n: len(rows) / width}
	d.steps = make([]float32, d.n)
	padded, half := d.padded(), panelsOf(d.n)*kernels.PanelRows
	d.panels = make([]byte, 2*half*padded)
	for r := range d.n {
		row := rows[r*width : (r+1)*width]
		largest := 0.0
		for _, x := range row {
			largest = max(largest, math.Abs(float64(x)))
		}
		d.steps[r] = float32(largest / (63 * 128))
		for j := range padded {
			q := 0
			if j < width && largest > 0 {
				q = int(math.RoundToEven(float64(row[j]) * (63 * 128 / largest)))
			}
			h := (q + 64) >> 7
			encode.PutCode7(d.panels, padded, r, j, int8(h))
			encode.PutCode7(d.panels, padded, half+r, j, int8(q-h<<7))
		}
	}
	return d
}

func (d *directions) padded() int { return (d.width + 3) &^ 3 }

// turner has the memory of a goroutine that computes products with directions.
type turner struct {
	*directions
	high, low []int8
	products  []float32
}

func (d *directions) turner() turner {
	return turner{d, make([]int8, d.padded()), make([]int8, d.padded()), make([]float32, 2*panelsOf(d.n)*kernels.PanelRows)}
}

// turn writes the products of v with the directions.
func (t *turner) turn(dst []float64, v []float32) {
	step := planes32(t.high[:t.width], t.low[:t.width], v)
	kernels.Scores7(t.products, t.panels, t.high, t.low, step)
	half := len(t.products) / 2
	for i := range dst {
		both := float64(t.products[i])*128 + float64(t.products[half+i])
		dst[i] = float64(both * float64(t.steps[i]))
	}
}

// coder computes the coordinates of labels from their rows.
type coder struct {
	*directions
	layer  *softmax.Layer
	offset []float64 // the coordinates of the mean row
	huge   map[uint32]bool
}

func (m *Model) coder(l *softmax.Layer, through []float32) *coder {
	width := len(m.mean)
	c := &coder{newDirections(through, width), l, make([]float64, len(through)/width), m.huge}
	for r := range c.offset {
		for j, x := range through[r*width : (r+1)*width] {
			c.offset[r] += float64(float64(x) * float64(m.mean[j]))
		}
	}
	return c
}

// reader has the memory of a goroutine that reads labels.
type reader struct {
	*coder
	turner
	row []float32
	a   []float64 // the coordinates of a label
}

func (c *coder) reader() *reader {
	return &reader{c, c.turner(), make([]float32, c.directions.width), make([]float64, len(c.offset))}
}

// widen writes the row of a label to row, with its bias at the end if there is room for it.
func widen(row []float32, l *softmax.Layer, id int) {
	d := l.Dim()
	l.Weights().Widen(row[:d], id)
	if len(row) > d {
		row[d] = l.Bias()[id]
	}
}

// read leaves the coordinates of a label in r.a, and its row in r.row. A huge row counts as the mean
// row.
func (r *reader) read(id int) {
	widen(r.row, r.layer, id)
	if r.huge[uint32(id)] {
		clear(r.a)
		return
	}
	r.turn(r.a, r.row)
	for i, x := range r.offset {
		r.a[i] -= x
	}
}

// planes32 is planes for float32.
func planes32(high, low []int8, v []float32) (step float32) {
	largest := float32(0)
	for _, x := range v {
		largest = max(largest, x, -x)
	}
	const most = 127 * 128
	step = largest / most
	if !(step > 0x1p-100 && step < 0x1p100) {
		clear(high)
		clear(low)
		return 0
	}
	const toInt = 3 << 22 // adding a number to it rounds the number to an integer, ties to even
	scale := most / largest
	high, low = high[:len(v)], low[:len(v)]
	for j, x := range v {
		q := int32(math.Float32bits(float32(x*scale)+toInt)) - int32(math.Float32bits(toInt))
		h := (q + 64) >> 7
		high[j], low[j] = int8(h), int8(q-h<<7)
	}
	return step
}

// tables hold the codes of all labels, block after block, each in its own panels.
type tables struct {
	codes  []byte
	first  []uint32 // the first panel of each block, and the panel after the last block
	slots  []uint32 // the label of each row of the panels, noLabel for none
	panels []byte   // of the centres
	turn   *directions
	owner  []uint32 // the block of each panel
}

const noLabel = math.MaxUint32

// arrange makes the tables, except the codes.
func (m *Model) arrange() {
	t := &tables{first: make([]uint32, m.blocks()+1), turn: newDirections(m.turn, m.width())}
	for b, size := range m.sizes {
		t.first[b+1] = t.first[b] + uint32(panelsOf(int(size)))
	}
	panels := int(t.first[m.blocks()])
	t.owner, t.slots = make([]uint32, panels), make([]uint32, panels*kernels.PanelRows)
	ids := m.ids
	for b, size := range m.sizes {
		for p := t.first[b]; p < t.first[b+1]; p++ {
			t.owner[p] = uint32(b)
		}
		slots := t.slots[t.first[b]*kernels.PanelRows : t.first[b+1]*kernels.PanelRows]
		for i := copy(slots, ids[:size]); i < len(slots); i++ {
			slots[i] = noLabel
		}
		ids = ids[size:]
	}
	size := m.rowBytes() * kernels.PanelRows
	table, release := bigmem.Alloc(panels*size + panelsOf(m.blocks())*kernels.PanelRows*m.centred)
	runtime.AddCleanup(t, func(release func()) { release() }, release)
	t.codes, t.panels = table[:panels*size:panels*size], table[panels*size:][:panelsOf(m.blocks())*kernels.PanelRows*m.centred]
	for b := range m.blocks() {
		for j, c := range m.centres[b*m.centred : (b+1)*m.centred] {
			encode.PutCode7(t.panels, m.centred, b, j, c)
		}
	}
	m.tables = t
}

// rows returns the packed codes of all labels, block after block.
func (t *tables) rows(size int) []byte {
	rows := make([]byte, 0, len(t.codes))
	for at, id := range t.slots {
		if id != noLabel {
			rows = rows[:len(rows)+size]
			encode.Packed(rows[len(rows)-size:], t.codes, at)
		}
	}
	return rows
}

// put takes the packed codes of all labels.
func (t *tables) put(rows []byte, size int) {
	for at, id := range t.slots {
		if id != noLabel {
			encode.PutPacked(t.codes, at, rows[:size])
			rows = rows[size:]
		}
	}
}

// encodeAll makes the codes of all labels, and adds the squares of what the codes of a label lose.
func (m *Model) encodeAll(ctx context.Context, l *softmax.Layer, lost []float64) error {
	type scratch struct {
		*reader
		*encoder
	}
	c := m.coder(l, m.through)
	fresh := func() scratch { return scratch{c.reader(), m.encoder()} }
	return parallel.With(ctx, 0, m.blocks(), 8, nil, fresh, func(s scratch, lo, hi int) error {
		row := make([]byte, m.rowBytes())
		for b := lo; b < hi; b++ {
			s.begin(b)
			for at := m.tables.first[b] * kernels.PanelRows; at < m.tables.first[b+1]*kernels.PanelRows; at++ {
				if id := m.tables.slots[at]; id != noLabel {
					s.read(int(id))
					s.encode(s.a)
					for r, a := range s.a {
						off := a - s.centre[r] - s.value(b, r)
						lost[id] += float64(off * off)
					}
					encode.PackCodes42(row, s.codes, m.fine)
					encode.PutPacked(m.tables.codes, int(at), row)
				}
			}
		}
		return nil
	})
}

// encoder makes the codes of the labels of a block.
type encoder struct {
	m      *Model
	codes  []byte
	centre []float64 // of the block, in all coordinates
	scale  []float64 // codes per coordinate
}

func (m *Model) encoder() *encoder {
	return &encoder{m: m, codes: make([]byte, m.coordinates), centre: make([]float64, m.coordinates), scale: make([]float64, m.coordinates)}
}

func (e *encoder) begin(block int) {
	m := e.m
	for j, c := range m.centres[block*m.centred : (block+1)*m.centred] {
		e.centre[j] = float64(c) * float64(m.axes[j])
	}
	for r, step := range m.steps {
		e.scale[r] = 0
		if s := float64(step) * float64(m.gauges[block]); s > 0 {
			e.scale[r] = 1 / s
		}
	}
}

// encode leaves the codes of a label with the coordinates a in e.codes.
func (e *encoder) encode(a []float64) {
	const toInt = 3 << 51
	for r, x := range a[:len(e.codes)] {
		middle := e.m.middle(r)
		y := float64((x-e.centre[r])*e.scale[r]) + middle
		y = min(max(y, 0), 2*middle)
		e.codes[r] = byte(math.Float64bits(y + toInt))
	}
}

// stepOf is the step of the codes of a coordinate, in deviations of the labels of a block.
func (m *Model) stepOf(r int) float64 {
	if r < m.fine {
		return clip / 7.5
	}
	return coarseStep
}

// middle is half the largest code of a coordinate, which stands for the centre's.
func (m *Model) middle(r int) float64 {
	if r < m.fine {
		return 7.5
	}
	return 1.5
}

// rowBytes is the size of the packed codes of a label.
func (m *Model) rowBytes() int { return kernels.RowBytes42(m.coordinates, m.fine) }

// value returns the coordinate, less the centre's, of a code.
func (e *encoder) value(block, r int) float64 {
	return (float64(e.codes[r]) - e.m.middle(r)) * float64(e.m.steps[r]) * float64(e.m.gauges[block])
}
