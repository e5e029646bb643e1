package making

import (
	"context"
	"math"

	"github.com/learning-to-screen/l2s/internal/kernels"
	"github.com/learning-to-screen/l2s/internal/parallel"
)

// Sums here are of float64 in a fixed order, without fused multiply-adds, so that a model has the
// same bits on every CPU and with any number of threads.

// matrix is row-major.
type matrix struct {
	rows, cols int
	x          []float64
}

func newMatrix(rows, cols int) matrix { return matrix{rows, cols, make([]float64, rows*cols)} }

func (m matrix) row(i int) []float64 { return m.x[i*m.cols : (i+1)*m.cols] }

func dot(x, y []float64) float64 {
	y = y[:len(x)]
	var s0, s1, s2, s3 float64
	i := 0
	for ; i+4 <= len(x); i += 4 {
		s0 += float64(x[i] * y[i])
		s1 += float64(x[i+1] * y[i+1])
		s2 += float64(x[i+2] * y[i+2])
		s3 += float64(x[i+3] * y[i+3])
	}
	for ; i < len(x); i++ {
		s0 += float64(x[i] * y[i])
	}
	return (s0 + s2) + (s1 + s3)
}

// axpy adds a*x to dst.
func axpy(dst []float64, a float64, x []float64) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] += float64(a * x[i])
	}
}

// moments returns X^T X / n of n rows of d float32.
func moments(ctx context.Context, x []float32, d int) (matrix, error) {
	n := len(x) / d
	columns := make([]float32, len(x))
	for i := range n {
		for j, v := range x[i*d : (i+1)*d] {
			columns[j*n+i] = v
		}
	}
	m := newMatrix(d, d)
	err := parallel.Each(ctx, 0, d, 1, nil, func(_, i, _ int) error {
		kernels.Float32Rows(columns[i*n:], n).RefScan(m.row(i)[i:], nil, columns[i*n:(i+1)*n])
		return nil
	})
	for i := range d {
		for j := i; j < d; j++ {
			m.x[i*d+j] /= float64(n)
			m.x[j*d+i] = m.x[i*d+j]
		}
	}
	return m, err
}

// cholesky returns the lower L with L L^T = m, which is symmetric and positive, and false if it is
// not.
func cholesky(m matrix) (matrix, bool) {
	d := m.rows
	l := newMatrix(d, d)
	for i := range d {
		li := l.row(i)
		for j := range i {
			li[j] = (m.x[i*d+j] - dot(li[:j], l.row(j)[:j])) / l.x[j*d+j]
		}
		square := m.x[i*d+i] - dot(li[:i], li[:i])
		if !(square > 0) || math.IsInf(square, 1) {
			return l, false
		}
		li[i] = math.Sqrt(square)
	}
	return l, true
}

// within returns L^T G L for a lower L and a symmetric G.
func within(ctx context.Context, l, g matrix) (matrix, error) {
	d := l.rows
	gl, s := newMatrix(d, d), newMatrix(d, d)
	err := parallel.Each(ctx, 0, d, 8, nil, func(_, lo, hi int) error {
		for i := lo; i < hi; i++ {
			for k := range d {
				axpy(gl.row(i)[:k+1], g.x[i*d+k], l.row(k)[:k+1])
			}
		}
		return nil
	})
	if err != nil {
		return s, err
	}
	return s, parallel.Each(ctx, 0, d, 8, nil, func(_, lo, hi int) error {
		for i := lo; i < hi; i++ {
			for k := i; k < d; k++ {
				axpy(s.row(i), l.x[k*d+i], gl.row(k))
			}
		}
		return nil
	})
}

const (
	rounds = 12 // of subspace iteration: the coordinates need not be eigenvectors
	spare  = 16 // further vectors, with which the last of the n vectors converges faster
)

// leading returns about the first n eigenvectors of a symmetric positive matrix, in rows,
// orthonormal, by subspace iteration.
func leading(ctx context.Context, s matrix, n int) (matrix, error) {
	d := s.rows
	width := min(n+spare, d)
	v, image := newMatrix(width, d), newMatrix(width, d)
	state := uint64(1)
	for i := range v.x { // any start will do
		state = state*6364136223846793005 + 1442695040888963407
		v.x[i] = float64(int64(state)>>11) * 0x1p-53
	}
	for range rounds {
		err := parallel.Each(ctx, 0, width, 1, nil, func(_, k, _ int) error {
			out, in := image.row(k), v.row(k)
			for i := range out {
				out[i] = dot(s.row(i), in)
			}
			return nil
		})
		if err != nil {
			return v, err
		}
		v, image = image, v
		orthonormalise(v)
	}
	v.rows = n
	return v, nil
}

// orthonormalise makes the rows orthogonal and of length 1, twice for the sake of rounding. A row
// that the ones before leave nothing of becomes the axis that they leave most of.
func orthonormalise(v matrix) {
	for k := range v.rows {
		row := v.row(k)
		for try := 0; ; try++ {
			before := dot(row, row)
			for range 2 {
				for j := range k {
					axpy(row, -dot(row, v.row(j)), v.row(j))
				}
			}
			if after := dot(row, row); after > 1e-20*before && after > 0 || try >= v.cols {
				scale := 1 / math.Sqrt(after)
				for i := range row {
					row[i] *= scale
				}
				break
			}
			clear(row)
			row[try] = 1
		}
	}
}
