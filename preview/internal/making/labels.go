package making

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/encode"
	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/internal/previewing"
)

// reader computes the coordinates of labels from their rows. It is for one goroutine.
type reader struct {
	m      *maker
	turner previewing.Turner
	offset []float64 // the coordinates of the mean row
	row    []float32
	a      []float64 // the coordinates of a label
}

// readers returns a function that makes readers, for coordinates that are the products of rows,
// less the mean row, with some directions.
func (m *maker) readers(through []float32) func() *reader {
	width := m.Width()
	directions, offset := previewing.NewDirections(through, width), make([]float64, len(through)/width)
	for r := range offset {
		for j, x := range through[r*width : (r+1)*width] {
			offset[r] += float64(float64(x) * float64(m.Mean[j]))
		}
	}
	return func() *reader {
		return &reader{m, directions.Turner(), offset, make([]float32, width), make([]float64, len(offset))}
	}
}

// widen writes the row of a label to row, with its bias at the end if the layer has biases.
func (m *maker) widen(row []float32, id int) {
	m.layer.Weights().Widen(row[:m.Dim], id)
	if m.Biased > 0 {
		row[m.Dim] = m.layer.Bias()[id]
	}
}

// read leaves the coordinates of a label in r.a, and its row in r.row. A huge row counts as the
// mean row.
func (r *reader) read(id int) {
	r.m.widen(r.row, id)
	if r.m.huge[uint32(id)] {
		clear(r.a)
		return
	}
	r.turner.Turn(r.a, r.row)
	for i, x := range r.offset {
		r.a[i] -= x
	}
}

// eachLabel calls work for each label.
func eachLabel[S any](ctx context.Context, m *maker, fresh func() S, work func(s S, id int)) error {
	return parallel.With(ctx, 0, m.Labels, 256, nil, fresh, func(s S, lo, hi int) error {
		for id := lo; id < hi; id++ {
			work(s, id)
		}
		return nil
	})
}

// coder makes the codes of the labels of a block. It is for one goroutine.
type coder struct {
	*reader
	block  int
	codes  []byte
	centre []float64 // of the block, in all coordinates
	scale  []float64 // codes per coordinate
	lost   []float64 // the square of what each code loses
}

// eachBlock calls work for each block whose number is a multiple of step, with its labels.
func (m *maker) eachBlock(ctx context.Context, fresh func() *reader, step int, work func(c *coder, b int, ids []uint32)) error {
	coders := func() *coder {
		n := m.Coordinates
		return &coder{fresh(), 0, make([]byte, n), make([]float64, n), make([]float64, n), make([]float64, n)}
	}
	return parallel.With(ctx, 0, m.Blocks, 8, nil, coders, func(c *coder, lo, hi int) error {
		for b := lo; b < hi; b++ {
			if b%step == 0 {
				c.begin(b)
				work(c, b, m.IDs[m.starts[b]:m.starts[b+1]])
			}
		}
		return nil
	})
}

func (c *coder) begin(block int) {
	m := c.m
	c.block = block
	for j, x := range m.Centres[block*m.Centred : (block+1)*m.Centred] {
		c.centre[j] = float64(x) * float64(m.Axes[j])
	}
	for r, step := range m.Steps {
		c.scale[r] = 0
		if s := float64(step) * float64(m.Gauges[block]); s > 0 {
			c.scale[r] = 1 / s
		}
	}
}

// encode leaves the codes of the label that was read in c.codes, and what they lose in c.lost.
func (c *coder) encode() {
	const toInt = 3 << 51
	for r, a := range c.a {
		middle := c.m.middle(r)
		y := float64((a-c.centre[r])*c.scale[r]) + middle
		y = min(max(y, 0), 2*middle)
		c.codes[r] = byte(math.Float64bits(y + toInt))
		off := a - c.centre[r] - (float64(c.codes[r])-middle)*float64(c.m.Steps[r])*float64(c.m.Gauges[c.block])
		c.lost[r] = float64(off * off)
	}
}

const (
	clip       = 3.5 // deviations of a coordinate that codes of 4 bits reach to
	coarseStep = 1.0 // deviations from a code of 2 bits to the next: the best for a normal distribution
)

// stepOf is the step of the codes of a coordinate, in deviations of the labels of a block.
func (m *maker) stepOf(r int) float64 {
	if r < m.Fine {
		return clip / 7.5
	}
	return coarseStep
}

// middle is half the largest code of a coordinate, which means the centre's.
func (m *maker) middle(r int) float64 {
	if r < m.Fine {
		return 7.5
	}
	return 1.5
}

// all returns all labels.
func (m *maker) all() []uint32 {
	ids := make([]uint32, m.Labels)
	for id := range ids {
		ids[id] = uint32(id)
	}
	return ids
}

// largest returns the n labels of ids with the largest numbers.
func largest(ids []uint32, of []float64, n int) []uint32 {
	slices.SortFunc(ids, func(a, b uint32) int { return cmp.Or(cmp.Compare(of[b], of[a]), cmp.Compare(a, b)) })
	return ids[:min(n, len(ids))]
}

const (
	hugeLength    = 16 // times the median
	labelsPerHuge = 64 // at least
)

// findHuge finds labels whose rows, with their biases, are much longer than most: a few of them
// would decide the mean row, the coordinates and the blocks of all others.
func (m *maker) findHuge(ctx context.Context) error {
	n := m.Labels / labelsPerHuge
	if n == 0 {
		return nil
	}
	squares := make([]float64, m.Labels)
	err := eachLabel(ctx, m, func() []float32 { return make([]float32, m.Width()) }, func(row []float32, id int) {
		m.widen(row, id)
		for _, x := range row {
			squares[id] += float64(float64(x) * float64(x))
		}
	})
	if err != nil {
		return err
	}
	median := slices.Sorted(slices.Values(squares))[m.Labels/2]
	m.huge = map[uint32]bool{}
	for _, id := range largest(m.all(), squares, n) {
		if median > 0 && squares[id] > hugeLength*hugeLength*median {
			m.huge[id] = true
		}
	}
	return nil
}

const (
	mostOutliers     = 64
	labelsPerOutlier = 512 // at least
)

// encode makes the codes of all labels but the outliers, which it takes out of their blocks: labels
// with previews that tell little of their logits. They are the huge ones, those whose codes lose
// most, since coordinates are too large for them, and those whose rows have the longest part
// outside the coordinates. Such a row has a direction almost for itself: contexts along it are
// rare, so the coordinates leave it out.
func (m *maker) encode(ctx context.Context) error {
	size, lost := m.RowBytes(), make([]float64, m.Labels)
	m.codes = make([]byte, m.Labels*size)
	err := m.eachBlock(ctx, m.readers(m.through), 1, func(c *coder, b int, ids []uint32) {
		for i, id := range ids {
			c.read(int(id))
			c.encode()
			for _, square := range c.lost {
				lost[id] += square
			}
			encode.PackCodes42(m.codes[(m.starts[b]+i)*size:], c.codes, m.Fine)
		}
	})
	if err != nil {
		return err
	}
	n := min(mostOutliers, m.Labels/labelsPerOutlier) / 2
	if n == 0 && len(m.huge) == 0 {
		return nil
	}
	longest, err := m.farthest(ctx, n)
	if err != nil {
		return err
	}
	apart := map[uint32]bool{}
	for _, id := range append(longest, largest(m.all(), lost, n)...) {
		apart[id] = true
	}
	var outliers []uint32
	kept := 0
	for b := range m.Sizes {
		for at := m.starts[b]; at < m.starts[b+1]; at++ {
			id := m.IDs[at]
			if (apart[id] || m.huge[id]) && m.Sizes[b] > 1 { // no block is empty
				outliers = append(outliers, id)
				m.Sizes[b]--
				continue
			}
			m.IDs[kept] = id
			copy(m.codes[kept*size:(kept+1)*size], m.codes[at*size:])
			kept++
		}
	}
	slices.Sort(outliers)
	copy(m.IDs[kept:], outliers)
	m.codes, m.Outliers = m.codes[:kept*size], len(outliers)
	return nil
}

// farthest returns the n labels whose rows have the longest part outside the coordinates. Probes
// estimate the length for all labels, and some of the longest are measured.
func (m *maker) farthest(ctx context.Context, n int) ([]uint32, error) {
	squares := make([]float64, m.Labels)
	err := eachLabel(ctx, m, m.readers(m.rest), func(r *reader, id int) {
		r.read(id)
		for _, x := range r.a {
			squares[id] += float64(x * x)
		}
	})
	if err != nil {
		return nil, err
	}
	ids := largest(m.all(), squares, 16*n)
	width, r := m.Width(), m.readers(m.through)()
	rest := make([]float64, width)
	for _, id := range ids {
		r.read(int(id))
		for j, x := range r.row {
			rest[j] = float64(x) - float64(m.Mean[j])
		}
		for i, a := range r.a {
			for j, x := range m.Turn[i*width : (i+1)*width] {
				rest[j] -= float64(a * float64(x))
			}
		}
		squares[id] = 0
		for _, x := range rest {
			squares[id] += float64(x * x)
		}
	}
	return largest(ids, squares, n), nil
}
