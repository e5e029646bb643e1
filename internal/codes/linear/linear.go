// Package linear has products and factors of matrices of float64, in a fixed order and without fused
// multiply-adds, so that what is made from them has the same bits on every CPU and with any number
// of threads.
package linear

import (
	"context"
	"math"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/parallel"
)

// Matrix is row-major.
type Matrix struct {
	Rows, Cols int
	X          []float64
}

// New returns a matrix of zeros.
func New(rows, cols int) Matrix { return Matrix{rows, cols, make([]float64, rows*cols)} }

// Row returns row i, which changes with the matrix.
func (m Matrix) Row(i int) []float64 { return m.X[i*m.Cols : (i+1)*m.Cols] }

// Dot returns the product of x with as many elements of y.
func Dot(x, y []float64) float64 {
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

// Axpy adds a*x to dst.
func Axpy(dst []float64, a float64, x []float64) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] += float64(a * x[i])
	}
}

// Moments returns X^T X / n of n rows of d float32.
func Moments(ctx context.Context, x []float32, d int) (Matrix, error) {
	n := len(x) / d
	columns := make([]float32, len(x))
	for i := range n {
		for j, v := range x[i*d : (i+1)*d] {
			columns[j*n+i] = v
		}
	}
	m := New(d, d)
	err := parallel.Each(ctx, 0, d, 1, nil, func(_, i, _ int) error {
		kernels.Float32Rows(columns[i*n:], n).RefScan(m.Row(i)[i:], nil, columns[i*n:(i+1)*n])
		return nil
	})
	for i := range d {
		for j := i; j < d; j++ {
			m.X[i*d+j] /= float64(n)
			m.X[j*d+i] = m.X[i*d+j]
		}
	}
	return m, err
}

// Cholesky returns the lower L with L L^T = m, which is symmetric and positive, and false if it is
// not.
func Cholesky(m Matrix) (Matrix, bool) {
	d := m.Rows
	l := New(d, d)
	for i := range d {
		li := l.Row(i)
		for j := range i {
			li[j] = (m.X[i*d+j] - Dot(li[:j], l.Row(j)[:j])) / l.X[j*d+j]
		}
		square := m.X[i*d+i] - Dot(li[:i], li[:i])
		if !(square > 0) || math.IsInf(square, 1) {
			return l, false
		}
		li[i] = math.Sqrt(square)
	}
	return l, true
}

// Within returns L^T G L for a lower L and a symmetric G.
func Within(ctx context.Context, l, g Matrix) (Matrix, error) {
	d := l.Rows
	gl, s := New(d, d), New(d, d)
	err := parallel.Each(ctx, 0, d, 8, nil, func(_, lo, hi int) error {
		for i := lo; i < hi; i++ {
			for k := range d {
				Axpy(gl.Row(i)[:k+1], g.X[i*d+k], l.Row(k)[:k+1])
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
				Axpy(s.Row(i), l.X[k*d+i], gl.Row(k))
			}
		}
		return nil
	})
}

const (
	rounds = 12 // of subspace iteration: the coordinates need not be eigenvectors
	spare  = 16 // further vectors, with which the last of the n vectors converges faster
)

// Leading returns about the first n eigenvectors of a symmetric positive matrix, in rows,
// orthonormal, by subspace iteration.
func Leading(ctx context.Context, s Matrix, n int) (Matrix, error) {
	d := s.Rows
	width := min(n+spare, d)
	v, image := New(width, d), New(width, d)
	state := uint64(1)
	for i := range v.X { // any start will do
		state = state*6364136223846793005 + 1442695040888963407
		v.X[i] = float64(int64(state)>>11) * 0x1p-53
	}
	for range rounds {
		err := parallel.Each(ctx, 0, width, 1, nil, func(_, k, _ int) error {
			out, in := image.Row(k), v.Row(k)
			for i := range out {
				out[i] = Dot(s.Row(i), in)
			}
			return nil
		})
		if err != nil {
			return v, err
		}
		v, image = image, v
		if err := orthonormalise(ctx, v); err != nil {
			return v, err
		}
	}
	v.Rows = n
	return v, nil
}

// orthonormalise makes the rows orthogonal and of length 1, twice for the sake of rounding. A row
// that the ones before leave nothing of becomes the part of the next axis that they leave.
func orthonormalise(ctx context.Context, v Matrix) error {
	axis := 0 // the rows before leave nothing of the axes before it
	for k := range v.Rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		row := v.Row(k)
		for {
			before := Dot(row, row)
			for range 2 {
				for j := range k {
					Axpy(row, -Dot(row, v.Row(j)), v.Row(j))
				}
			}
			if after := Dot(row, row); after > 1e-20*before && after > 0 || axis >= v.Cols {
				scale := 1 / math.Sqrt(after)
				for i := range row {
					row[i] *= scale
				}
				break
			}
			clear(row)
			row[axis] = 1
			axis++
		}
	}
	return nil
}
