package preview

import (
	"context"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/encode"
	"github.com/learning-to-screen/l2s/internal/kernels"
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
	panels []byte
	halves []float32
}

// newCentres quantises n centres of dim numbers.
func newCentres(x []float64, dim int) *centres {
	n := len(x) / dim
	c := &centres{n: n, dim: dim, step: make([]float32, dim), halves: make([]float32, n)}
	for i := range n {
		for j, v := range x[i*dim : (i+1)*dim] {
			c.step[j] = max(c.step[j], float32(math.Abs(v)/63))
		}
	}
	c.panels = make([]byte, panelsOf(n)*kernels.PanelRows*dim)
	for i := range n {
		square := 0.0
		for j, v := range x[i*dim : (i+1)*dim] {
			code := 0.0
			if c.step[j] > 0 {
				code = math.RoundToEven(v / float64(c.step[j]))
			}
			encode.PutCode7(c.panels, dim, i, j, int8(code))
			y := code * float64(c.step[j])
			square += float64(y * y)
		}
		c.halves[i] = float32(square / 2)
	}
	return c
}

func panelsOf(n int) int { return (n + kernels.PanelRows - 1) / kernels.PanelRows }

// planes quantises a vector to 15 bits, in two planes, and returns the step: 0 for a vector of
// zeros, or a vector whose step is outside float32.
func planes(high, low []int8, v []float64) (step float32) {
	largest := 0.0
	for _, x := range v {
		largest = max(largest, math.Abs(x))
	}
	const most = 127 * 128
	step = float32(largest / most)
	if !(step > 0x1p-100 && step < 0x1p100) {
		return 0
	}
	scale := most / largest
	for j, x := range v {
		q := int(math.RoundToEven(x * scale))
		h := (q + 64) >> 7
		high[j], low[j] = int8(h), int8(q-h<<7)
	}
	return step
}

// finder finds the nearest centre of a point. It is for one goroutine.
type finder struct {
	v         []float64
	high, low []int8
	scores    []float32
}

func (f *finder) room(dim, n int) {
	if len(f.v) < dim {
		f.v, f.high, f.low = make([]float64, dim), make([]int8, dim), make([]int8, dim)
	}
	if n = panelsOf(n) * kernels.PanelRows; len(f.scores) < n {
		f.scores = make([]float32, n)
	}
}

func (f *finder) nearest(c *centres, p *points, i int) int {
	f.room(c.dim, c.n)
	for j, x := range p.row(i) {
		f.v[j] = float64(x) * float64(p.step[j]) * float64(c.step[j])
	}
	step := planes(f.high[:c.dim], f.low[:c.dim], f.v[:c.dim])
	scores := f.scores[:panelsOf(c.n)*kernels.PanelRows]
	kernels.Scores7(scores, c.panels, f.high[:c.dim], f.low[:c.dim], step)
	best, most := 0, float32(math.Inf(-1))
	for t, half := range c.halves {
		if x := scores[t] - half; x > most {
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
