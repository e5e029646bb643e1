package preview

import (
	"context"
	"math"
	"runtime"
	"weak"

	"github.com/learning-to-screen/l2s/internal/bigmem"
	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
)

// coder computes the coordinates of labels from their rows by integers: rows of 15 bits, directions of
// 14. So they are the same on every CPU.
type coder struct {
	layer  *softmax.Layer
	width  int
	n      int       // coordinates
	panels []byte    // the upper halves of the directions, and the lower ones
	steps  []float32 // of the directions
	offset []float64 // the coordinates of the mean row
}

func newCoder(l *softmax.Layer, through, mean []float32) *coder {
	width := len(mean)
	c := &coder{layer: l, width: width, n: len(through) / width}
	c.steps, c.offset = make([]float32, c.n), make([]float64, c.n)
	padded := (width + 3) &^ 3
	half := panelsOf(c.n) * kernels.PanelRows
	c.panels = make([]byte, 2*half*padded)
	for r := range c.n {
		row := through[r*width : (r+1)*width]
		largest := 0.0
		for _, x := range row {
			largest = max(largest, math.Abs(float64(x)))
		}
		c.steps[r] = float32(largest / (63 * 128))
		for j := range padded {
			q := 0
			if j < width && largest > 0 {
				q = int(math.RoundToEven(float64(row[j]) * (63 * 128 / largest)))
				c.offset[r] += float64(float64(row[j]) * float64(mean[j]))
			}
			h := (q + 64) >> 7
			kernels.PutCode7(c.panels, padded, r, j, int8(h))
			kernels.PutCode7(c.panels, padded, half+r, j, int8(q-h<<7))
		}
	}
	return c
}

// reader is what a goroutine reads labels with.
type reader struct {
	*coder
	row       []float32
	high, low []int8
	products  []float32
	a         []float64 // the coordinates of a label
}

func (c *coder) reader() *reader {
	padded := (c.width + 3) &^ 3
	return &reader{coder: c, row: make([]float32, c.width), high: make([]int8, padded), low: make([]int8, padded),
		products: make([]float32, 2*panelsOf(c.n)*kernels.PanelRows), a: make([]float64, c.n)}
}

// widen leaves the row of a label in r.row.
func (r *reader) widen(id int) {
	d := r.layer.Dim()
	r.layer.Weights().Widen(r.row[:d], id)
	if r.width > d {
		r.row[d] = r.layer.Bias()[id]
	}
}

// read leaves the coordinates of a label in r.a.
func (r *reader) read(id int) {
	r.widen(id)
	step := planes32(r.high[:r.width], r.low[:r.width], r.row)
	kernels.Scores7(r.products, r.panels, r.high, r.low, step)
	half := len(r.products) / 2
	for i := range r.a {
		both := float64(r.products[i])*128 + float64(r.products[half+i])
		r.a[i] = float64(both*float64(r.steps[i])) - r.offset[i]
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
	const toInt = 3 << 22 // what is added to it is rounded to an integer, ties to even
	scale := most / largest
	high, low = high[:len(v)], low[:len(v)]
	for j, x := range v {
		q := int32(math.Float32bits(float32(x*scale)+toInt)) - int32(math.Float32bits(toInt))
		h := (q + 64) >> 7
		high[j], low[j] = int8(h), int8(q-h<<7)
	}
	return step
}

// tables hold the codes of all labels, block after block, in panels of their own.
type tables struct {
	codes  []byte
	first  []uint32 // of each block, and behind the last: its first panel
	slots  []uint32 // the label of each row of the panels, noLabel for none
	panels []byte   // of the centres
	owner  []uint32 // the block of each panel
	layer  *softmax.Layer
}

const noLabel = math.MaxUint32

// tables returns the codes for a layer, which is the model's. Searchers keep them alive.
func (m *Model) tables(l *softmax.Layer) (*tables, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.opened.tables.Value(); t != nil && m.layer.Value() == l {
		return t, nil
	}
	t := &tables{first: make([]uint32, m.blocks()+1), layer: l}
	for b, size := range m.sizes {
		t.first[b+1] = t.first[b] + uint32(panelsOf(int(size)))
	}
	panels := int(t.first[m.blocks()])
	t.owner = make([]uint32, panels)
	for b := range m.sizes {
		for p := t.first[b]; p < t.first[b+1]; p++ {
			t.owner[p] = uint32(b)
		}
	}
	size := m.coordinates / 2 * kernels.PanelRows
	table, release := bigmem.Alloc(panels*size + panelsOf(m.blocks())*kernels.PanelRows*m.centred)
	runtime.AddCleanup(t, func(release func()) { release() }, release)
	t.codes, table = table[:panels*size:panels*size], table[panels*size:]
	t.slots = make([]uint32, panels*kernels.PanelRows)
	t.panels = table[:panelsOf(m.blocks())*kernels.PanelRows*m.centred]
	for b := range m.blocks() {
		for j, c := range m.centres[b*m.centred : (b+1)*m.centred] {
			kernels.PutCode7(t.panels, m.centred, b, j, c)
		}
	}
	starts := make([]int, m.blocks()+1)
	for b, size := range m.sizes {
		starts[b+1] = starts[b] + int(size)
	}
	c := newCoder(l, m.through, m.mean)
	type scratch struct {
		*reader
		*encoder
	}
	fresh := func() scratch { return scratch{c.reader(), m.encoder()} }
	err := parallel.With(context.Background(), 0, m.blocks(), 8, nil, fresh, func(s scratch, lo, hi int) error {
		for b := lo; b < hi; b++ {
			first := int(t.first[b])
			block := t.codes[first*size : int(t.first[b+1])*size]
			slots := t.slots[first*kernels.PanelRows : int(t.first[b+1])*kernels.PanelRows]
			s.begin(b)
			for i := range slots {
				slots[i] = noLabel
			}
			for i, id := range m.ids[starts[b]:starts[b+1]] {
				s.read(int(id))
				s.encode(s.a)
				kernels.PutCodes4(block, i, s.codes)
				slots[i] = id
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	m.layer, m.opened.tables = weak.Make(l), weak.Make(t)
	return t, nil
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
		y := float64((x-e.centre[r])*e.scale[r]) + 7.5
		y = min(max(y, 0), 15)
		e.codes[r] = byte(math.Float64bits(y + toInt))
	}
}

// value returns the coordinate, less the centre's, that a code stands for.
func (e *encoder) value(block, r int) float64 {
	return (float64(e.codes[r]) - 7.5) * float64(e.m.steps[r]) * float64(e.m.gauges[block])
}
