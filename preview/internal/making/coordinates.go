package making

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/codes/floats"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/codes/linear"
	"github.com/learning-to-screen/l2s/internal/ground/parallel"
)

const (
	mostRows   = 16384 // for the moments
	mostProbes = 64
	ridge      = 1e-4 // of the mean square of an element of a context
)

// turns finds the coordinates. With M = E[hh^T] = L L^T of contexts and G = W'^T W'/labels of the
// rows less their mean, let the rows of Q be the first eigenvectors of L^T G L. Then z = Q L^-1 h
// has E[zz^T] = 1, the coordinates of a label are a = Q L^T w', and w'.h = a.z + the part outside.
func (m *maker) turns(ctx context.Context, states []float32) error {
	width := m.Width()
	contexts, err := linear.Moments(ctx, states, width)
	if err != nil {
		return err
	}
	trace := 0.0
	for i := range width {
		trace += contexts.X[i*width+i]
	}
	if !(trace > 0) || math.IsInf(trace, 1) {
		return fmt.Errorf("states: found a mean square of %v, expected a finite number above 0", trace)
	}
	for i := range width {
		contexts.X[i*width+i] += ridge * trace / float64(width)
	}
	lower, ok := linear.Cholesky(contexts)
	if !ok {
		return errors.New("states: found second moments that are not positive, expected smaller numbers")
	}
	m.opt.Progress("coordinates", 0.1)
	rows := m.someRows()
	gram, err := linear.Moments(ctx, rows, width)
	if err != nil {
		return err
	}
	m.opt.Progress("coordinates", 0.4)
	both, err := linear.Within(ctx, lower, gram)
	if err != nil {
		return err
	}
	m.opt.Progress("coordinates", 0.6)
	most := min(m.Coordinates, width)
	q, err := linear.Leading(ctx, both, most)
	if err != nil {
		return err
	}
	m.opt.Progress("coordinates", 0.9)
	m.Probes = mostProbes
	m.Turn = make([]float32, (m.Coordinates+m.Probes)*width)
	m.through = make([]float32, m.Coordinates*width)
	m.outside, m.rest = make([]float32, m.Probes*width), make([]float32, m.Probes*width)
	x, y := make([]float64, width), make([]float64, width)
	for r := range most {
		// x L = q: back substitution from the last.
		copy(x, q.Row(r))
		for i := width - 1; i >= 0; i-- {
			x[i] /= lower.X[i*width+i]
			linear.Axpy(x[:i], -x[i], lower.Row(i)[:i])
		}
		clear(y)
		for i := range width { // y = L q
			y[i] = linear.Dot(lower.Row(i)[:i+1], q.Row(r)[:i+1])
		}
		for i := range width {
			m.Turn[r*width+i], m.through[r*width+i] = float32(x[i]), float32(y[i])
		}
	}
	units := make([]float32, width*width)
	for i := range width {
		units[i*width+i] = 1
	}
	for _, x := range []struct {
		to, of, from, less []float32
	}{
		{m.Turn[m.Coordinates*width:], rows, m.through, m.Turn},
		{m.outside, states, m.Turn, m.through},
		{m.rest, units, m.Turn, m.through},
	} {
		if err := m.probe(ctx, x.to, x.of, x.from, x.less); err != nil {
			return err
		}
	}
	for _, x := range [][]float32{m.Turn, m.through} {
		if _, _, found := kernels.FirstNotFinite(kernels.Float32Rows(x, width)); found {
			return errors.New("states: found coordinates that are not finite, expected states and weights of smaller numbers")
		}
	}
	return nil
}

// someRows returns rows of the layer less their mean, which it leaves in m.Mean.
func (m *maker) someRows() []float32 {
	width, most := m.Width(), min(m.Labels, mostRows)
	rows, sum := make([]float32, 0, most*width), make([]float64, width)
	for i := range most {
		id := i * m.Labels / most
		if m.huge[uint32(id)] {
			continue
		}
		rows = rows[:len(rows)+width]
		row := rows[len(rows)-width:]
		m.widen(row, id)
		for j, x := range row {
			sum[j] += float64(x)
		}
	}
	m.Mean = make([]float32, width)
	for j, x := range sum {
		m.Mean[j] = float32(x / float64(len(rows)/width))
	}
	for i := range rows {
		rows[i] -= m.Mean[i%width]
	}
	return rows
}

// probe writes probes to dst: sums of rows, or of contexts, with random signs, each without its
// part along the directions of less; the products of a row with the directions of from are its
// coordinates along these. The sum of the squares of the probes' products with a context is about
// the mean square, over the rows, of the part of their logits outside the coordinates; and the same
// for a row, less the mean row, over contexts.
func (m *maker) probe(ctx context.Context, dst, rows, from, less []float32) error {
	width := m.Width()
	n := len(rows) / width
	return parallel.Each(ctx, 0, m.Probes, 1, nil, func(_, p, _ int) error {
		state := uint64(p + 1)
		sum := make([]float64, width)
		bits := uint64(0)
		for i := range n {
			if i%32 == 0 {
				state = state*6364136223846793005 + 1442695040888963407
				bits = state >> 32
			}
			floats.Axpy(sum, float32(1-2*int(bits&1)), rows[i*width:(i+1)*width])
			bits >>= 1
		}
		rest := slices.Clone(sum)
		for r := range m.Coordinates {
			a := 0.0
			for j, x := range from[r*width : (r+1)*width] {
				a += float64(float64(x) * sum[j])
			}
			for j, x := range less[r*width : (r+1)*width] {
				rest[j] -= float64(a * float64(x))
			}
		}
		scale := 1 / math.Sqrt(float64(n)*float64(m.Probes))
		for j, x := range rest {
			dst[p*width+j] = float32(x * scale)
		}
		return nil
	})
}
