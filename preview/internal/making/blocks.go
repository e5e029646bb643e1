package making

import (
	"context"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/encode"
	"github.com/learning-to-screen/l2s/internal/grow"
	"github.com/learning-to-screen/l2s/internal/kernels"
	"github.com/learning-to-screen/l2s/internal/linear"
	"github.com/learning-to-screen/l2s/internal/parallel"
)

// points are labels in coordinates: integers, with a step per coordinate.
type points struct {
	n, dim int
	x      []int16
	step   []float32
}

func (p *points) row(i int) []int16 { return p.x[i*p.dim : (i+1)*p.dim] }

// centres are the centres to which points are assigned: numbers of 7 bits in panels, with a step
// per coordinate, and half their squared lengths.
type centres struct {
	n, dim int
	step   []float32
	codes  []int8
	panels []byte // with the codes
	halves []float32
}

// newCentres quantises n centres of dim numbers.
func newCentres(x []float64, dim int) *centres {
	n := len(x) / dim
	c := &centres{n: n, dim: dim, step: make([]float32, dim), codes: make([]int8, n*dim), halves: make([]float32, n)}
	for i := range n {
		for j, v := range x[i*dim : (i+1)*dim] {
			c.step[j] = max(c.step[j], float32(math.Abs(v)/63))
		}
	}
	c.panels = make([]byte, padded(n)*dim)
	for i := range n {
		square := 0.0
		for j, v := range x[i*dim : (i+1)*dim] {
			code := 0.0
			if c.step[j] > 0 {
				code = math.RoundToEven(v / float64(c.step[j]))
			}
			c.codes[i*dim+j] = int8(code)
			encode.PutCode7(c.panels, dim, i, j, int8(code))
			y := code * float64(c.step[j])
			square += float64(y * y)
		}
		c.halves[i] = float32(square / 2)
	}
	return c
}

// padded is a number of rows by whole panels.
func padded(n int) int { return (n + kernels.PanelRows - 1) &^ (kernels.PanelRows - 1) }

// finder finds the nearest centre of a point. It is for one goroutine.
type finder struct {
	v         []float64
	high, low []int8
	scores    []float32
}

func (f *finder) nearest(c *centres, p *points, i int) int {
	if f.v == nil {
		f.v, f.high, f.low = make([]float64, c.dim), make([]int8, c.dim), make([]int8, c.dim)
	}
	f.scores = grow.Slice(f.scores, padded(c.n))
	for j, x := range p.row(i) {
		f.v[j] = float64(x) * float64(p.step[j]) * float64(c.step[j])
	}
	step := kernels.Planes7(f.high, f.low, f.v)
	kernels.Scores7(f.scores, c.panels, f.high, f.low, step)
	best, most := 0, float32(math.Inf(-1))
	for t, half := range c.halves {
		if x := f.scores[t] - half; x > most {
			best, most = t, x
		}
	}
	return best
}

// means returns the means of the points ids[i] assigned to each of n centres, and their number; a
// centre without points keeps its old mean. The sums are sums of integers, and exact.
func means(p *points, ids, to []uint32, n int, old []float64) []float64 {
	sums, counts := make([]int64, n*p.dim), make([]int, n)
	for i, id := range ids {
		t := int(to[i])
		counts[t]++
		sum := sums[t*p.dim : (t+1)*p.dim]
		for j, x := range p.row(int(id)) {
			sum[j] += int64(x)
		}
	}
	x := make([]float64, n*p.dim)
	for t, count := range counts {
		for j := range p.dim {
			at := t*p.dim + j
			if count > 0 {
				x[at] = float64(sums[at]) / float64(count) * float64(p.step[j])
			} else if old != nil {
				x[at] = old[at]
			}
		}
	}
	return x
}

const (
	perBlock    = 64 // labels, about
	lloydRounds = 6
	fullRounds  = 2
	sampled     = 256 // points for each coarse cluster
)

// lloyd clusters the points ids, and returns the centres. It is sequential.
func lloyd(f *finder, p *points, ids []uint32, n, rounds int) []float64 {
	to := make([]uint32, len(ids))
	x := make([]float64, n*p.dim)
	for t := range n {
		for j, v := range p.row(int(ids[(2*t+1)*len(ids)/(2*n)])) {
			x[t*p.dim+j] = float64(v) * float64(p.step[j])
		}
	}
	for range rounds {
		c := newCentres(x, p.dim)
		for i, id := range ids {
			to[i] = uint32(f.nearest(c, p, int(id)))
		}
		x = means(p, ids, to, n, x)
	}
	return x
}

// cluster returns a block for each of the points, and the centres of the blocks, none of which is
// empty, by k-means, which begins in clusters of clusters.
func cluster(ctx context.Context, p *points, progress func(share float64)) (to []uint32, x []float64, err error) {
	blocks := max(1, p.n/perBlock)
	coarse := max(1, int(math.Sqrt(float64(blocks))))
	all := make([]uint32, p.n)
	for i := range all {
		all[i] = uint32(i)
	}
	some := all
	if n := coarse * sampled; n < p.n {
		some = make([]uint32, n)
		for i := range some {
			some[i] = uint32(i * p.n / n)
		}
	}
	assign := func(c *centres) ([]uint32, error) {
		to := make([]uint32, p.n)
		err := parallel.With(ctx, 0, p.n, 256, nil, func() *finder { return new(finder) }, func(f *finder, lo, hi int) error {
			for i := lo; i < hi; i++ {
				to[i] = uint32(f.nearest(c, p, i))
			}
			return nil
		})
		return to, err
	}
	c := newCentres(lloyd(new(finder), p, some, coarse, lloydRounds), p.dim)
	if to, err = assign(c); err != nil {
		return nil, nil, err
	}
	progress(0.2)
	members := make([][]uint32, coarse)
	for i, t := range to {
		members[t] = append(members[t], uint32(i))
	}
	parts := make([][]float64, coarse)
	err = parallel.With(ctx, 0, coarse, 1, nil, func() *finder { return new(finder) }, func(f *finder, t, _ int) error {
		if n := len(members[t]); n > 0 {
			parts[t] = lloyd(f, p, members[t], max(1, (n+perBlock/2)/perBlock), lloydRounds)
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	progress(0.4)
	x = slices.Concat(parts...)
	for round := range fullRounds {
		if to, err = assign(newCentres(x, p.dim)); err != nil {
			return nil, nil, err
		}
		x = means(p, all, to, len(x)/p.dim, x)
		progress(0.4 + 0.6*float64(round+1)/fullRounds)
	}
	// Blocks without labels go.
	place, n := make([]int, len(x)/p.dim), 0
	for _, t := range to {
		place[t] = 1
	}
	for t, there := range place {
		if there == 1 {
			copy(x[n*p.dim:(n+1)*p.dim], x[t*p.dim:(t+1)*p.dim])
			place[t] = n
			n++
		}
	}
	for i, t := range to {
		to[i] = uint32(place[t])
	}
	return to, x[:n*p.dim], nil
}

// group makes the blocks, by the first coordinates of their labels.
func (m *maker) group(ctx context.Context) error {
	readers := m.readers(m.through)
	p := &points{n: m.Labels, dim: m.Centred, x: make([]int16, m.Labels*m.Centred), step: make([]float32, m.Centred)}
	// The steps of the points, from a sample.
	some, r := min(m.Labels, 4096), readers()
	for i := range some {
		r.read(i * m.Labels / some)
		for j := range p.step {
			p.step[j] += float32(r.a[j] * r.a[j])
		}
	}
	const fine = 2000 // steps of a deviation
	for j, x := range p.step {
		p.step[j] = float32(math.Sqrt(float64(x)/float64(some)) / fine)
	}
	err := eachLabel(ctx, m, readers, func(r *reader, id int) {
		r.read(id)
		for j, step := range p.step {
			if step > 0 {
				p.row(id)[j] = int16(min(max(math.RoundToEven(r.a[j]/float64(step)), -32767), 32767))
			}
		}
	})
	if err != nil {
		return err
	}
	to, x, err := cluster(ctx, p, func(share float64) { m.opt.Progress("blocks", 0.1+0.7*share) })
	if err != nil {
		return err
	}
	c := newCentres(x, m.Centred)
	m.Blocks, m.Axes, m.Centres = c.n, c.step, c.codes
	m.Sizes, m.IDs, m.starts = make([]uint32, c.n), make([]uint32, m.Labels), make([]int, c.n+1)
	for _, t := range to {
		m.Sizes[t]++
	}
	for t, n := range m.Sizes {
		m.starts[t+1] = m.starts[t] + int(n)
	}
	next := slices.Clone(m.starts)
	for id, t := range to {
		m.IDs[next[t]] = uint32(id)
		next[t]++
	}
	return nil
}

const someBlocks = 512 // in which the error of codes is measured, about

// spread finds the spread of the labels around the centres, by blocks and by coordinates, the
// scales of their codes, and what these lose.
func (m *maker) spread(ctx context.Context) error {
	readers := m.readers(m.through)
	m.Radii, m.Gauges = make([]float32, m.Blocks), slices.Repeat([]float32{1}, m.Blocks)
	m.Steps, m.Noise = slices.Repeat([]float32{1}, m.Coordinates), make([]float32, m.Coordinates)
	squares := linear.New(m.Blocks, m.Coordinates)
	err := m.eachBlock(ctx, readers, 1, func(c *coder, b int, ids []uint32) {
		row := squares.Row(b)
		for _, id := range ids {
			c.read(int(id))
			for r, a := range c.a {
				off := a - c.centre[r]
				row[r] += float64(off * off)
			}
		}
	})
	if err != nil {
		return err
	}
	mean := make([]float64, m.Coordinates)
	for b, size := range m.Sizes {
		sum := 0.0
		for r, x := range squares.Row(b) {
			mean[r] += x / float64(m.Labels)
			if r < m.Centred {
				sum += x
			}
		}
		m.Radii[b] = float32(math.Sqrt(sum / float64(size)))
	}
	for b, size := range m.Sizes {
		sum, n := 0.0, 0
		for r, x := range squares.Row(b) {
			if mean[r] > 0 {
				sum += x / mean[r]
				n++
			}
		}
		m.Gauges[b] = float32(max(math.Sqrt(sum/float64(size)/float64(max(n, 1))), 1e-3))
	}
	for r, x := range mean {
		m.Steps[r] = float32(math.Sqrt(x) * m.stepOf(r))
	}
	m.opt.Progress("blocks", 0.9)
	lost, labels, step := linear.New(m.Blocks, m.Coordinates), 0, max(1, m.Blocks/someBlocks)
	err = m.eachBlock(ctx, readers, step, func(c *coder, b int, ids []uint32) {
		row := lost.Row(b)
		for _, id := range ids {
			c.read(int(id))
			c.encode()
			for r, square := range c.lost {
				row[r] += square
			}
		}
	})
	sums := make([]float64, m.Coordinates)
	for b := 0; b < m.Blocks; b += step {
		labels += int(m.Sizes[b])
		for r, x := range lost.Row(b) {
			sums[r] += x
		}
	}
	for r, sum := range sums {
		m.Noise[r] = float32(sum / float64(labels))
	}
	return err
}

const (
	mostBeyond  = 16 // labels of a block that give its part outside the coordinates
	leastBeyond = 0.25
)

// findBeyond finds, for each block, the part of its labels' logits outside the coordinates, from
// some of the labels.
func (m *maker) findBeyond(ctx context.Context) error {
	squares, mean := make([]float64, m.Blocks), 0.0
	err := m.eachBlock(ctx, m.readers(m.outside), 1, func(c *coder, b int, ids []uint32) {
		n := min(len(ids), mostBeyond)
		for i := range n {
			c.read(int(ids[i*len(ids)/n]))
			for _, x := range c.a {
				squares[b] += float64(x*x) / float64(n)
			}
		}
	})
	for b, x := range squares {
		mean += x * float64(m.Sizes[b]) / float64(m.Labels)
	}
	m.Beyond = slices.Repeat([]float32{1}, m.Blocks)
	for b, x := range squares {
		if mean > 0 {
			m.Beyond[b] = float32(max(math.Sqrt(x/mean), leastBeyond))
		}
	}
	return err
}
