package tail

import (
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/codes/floats"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
)

// regression is a regression of some targets on the same rows.
type regression struct {
	dim, temps int
	// Rows and targets less their means.
	rows         []float32
	y            []float64
	means, yMean []float64
}

// newRegression is of n rows of dim elements, with a row of targets for each. There is at least
// one.
func newRegression(rows []float32, y []float64, n, dim int) *regression {
	temps := len(y) / n
	r := &regression{dim: dim, temps: temps, rows: make([]float32, n*dim), y: make([]float64, n*temps), means: make([]float64, dim), yMean: make([]float64, temps)}
	for i := range n {
		for j, x := range rows[i*dim:][:dim] {
			r.means[j] += float64(x) / float64(n)
		}
		for k, x := range y[i*temps:][:temps] {
			r.yMean[k] += x / float64(n)
		}
	}
	for i := range n {
		for j, mean := range r.means {
			r.rows[i*dim+j] = float32(float64(rows[i*dim+j]) - mean)
		}
		for k, mean := range r.yMean {
			r.y[i*temps+k] = y[i*temps+k] - mean
		}
	}
	return r
}

// row is row i.
func (r *regression) row(i int) []float32 { return r.rows[i*r.dim:][:r.dim] }

// normal are normal equations: the products of columns of rows, in the lower half, and of
// columns and targets.
type normal struct {
	dim              int
	products, target []float64
}

func newNormal(dim, temps int) *normal {
	return &normal{dim, make([]float64, dim*dim), make([]float64, temps*dim)}
}

// add adds the equations of a regression.
func (e *normal) add(r *regression) {
	for i := range len(r.rows) / r.dim {
		row := r.row(i)
		for j, x := range row {
			floats.Axpy(e.products[j*e.dim:][:j+1], x, row[:j+1])
		}
		for k, y := range r.y[i*r.temps:][:r.temps] {
			target := e.target[k*e.dim:][:e.dim]
			for j, x := range row {
				target[j] += float64(y * float64(x))
			}
		}
	}
}

// solve writes to u, one row per target, the coefficients that minimise the sum of the squares of
// the errors plus ridge times the square of u. It overwrites the equations.
func (e *normal) solve(u []float64, ridge float64) {
	for j := range e.dim {
		e.products[j*e.dim+j] += ridge
	}
	cholesky(e.products, e.dim)
	copy(u, e.target)
	for ; len(u) > 0; u = u[e.dim:] {
		substitute(e.products, u[:e.dim])
	}
}

// solveFew is normal.solve for fewer rows than elements: the solution is a sum of rows, whose
// factors come from the products of rows with each other.
func (r *regression) solveFew(u []float64, ridge float64) {
	n := len(r.rows) / r.dim
	products := make([]float64, n*n)
	for i := range n {
		for j := range i + 1 {
			products[i*n+j] = kernels.RefDot(r.row(i), r.row(j))
		}
		products[i*n+i] += ridge
	}
	cholesky(products, n)
	factors := make([]float64, n)
	for k := range r.temps {
		for i := range factors {
			factors[i] = r.y[i*r.temps+k]
		}
		substitute(products, factors)
		sum := u[k*r.dim:][:r.dim]
		clear(sum)
		for i, factor := range factors {
			for j, x := range r.row(i) {
				sum[j] += float64(factor * float64(x))
			}
		}
	}
}

// coefficients of a cluster: a and u at each temperature.
type coefficients struct{ a, u []float64 }

func newCoefficients(dim, temps int) *coefficients {
	return &coefficients{make([]float64, temps), make([]float64, temps*dim)}
}

// solve finds the coefficients that minimise the sum of the squares of the errors plus
// ridge times the square of u.
func (r *regression) solve(ridge float64) *coefficients {
	c := newCoefficients(r.dim, r.temps)
	if len(r.rows) < r.dim*r.dim {
		r.solveFew(c.u, ridge)
	} else {
		e := newNormal(r.dim, r.temps)
		e.add(r)
		e.solve(c.u, ridge)
	}
	for k, y := range r.yMean {
		c.a[k] = y - dot(c.u[k*r.dim:][:r.dim], r.means)
	}
	return c
}

// cholesky replaces the lower half of a symmetric matrix by L with L L^T = A. Rows that depend on
// the earlier rows, up to rounding, are left out of the solution: if the diagonal is not above 0 it
// becomes +Inf. No product is fused with a sum, so that the result has the same bits on every CPU.
func cholesky(a []float64, d int) {
	for i := range d {
		row := a[i*d:][:i+1]
		for j := range i {
			row[j] = (row[j] - dot(row[:j], a[j*d:][:j])) / a[j*d+j]
		}
		if x := row[i] - dot(row[:i], row[:i]); x > 0 {
			row[i] = math.Sqrt(x)
		} else {
			row[i] = math.Inf(1)
		}
	}
}

// substitute solves L L^T x = b in place.
func substitute(l, x []float64) {
	d := len(x)
	for i := range d {
		x[i] = (x[i] - dot(l[i*d:][:i], x[:i])) / l[i*d+i]
	}
	for i := d - 1; i >= 0; i-- {
		x[i] /= l[i*d+i]
		for j := range i {
			x[j] -= float64(l[i*d+j] * x[i])
		}
	}
}

// dot is the product of two vectors, by four sums in a fixed order.
func dot(x, y []float64) float64 {
	var s [4]float64
	y = y[:len(x)]
	i := 0
	for ; i+4 <= len(x); i += 4 {
		s[0] += float64(x[i] * y[i])
		s[1] += float64(x[i+1] * y[i+1])
		s[2] += float64(x[i+2] * y[i+2])
		s[3] += float64(x[i+3] * y[i+3])
	}
	for ; i < len(x); i++ {
		s[0] += float64(x[i] * y[i])
	}
	return (s[0] + s[1]) + (s[2] + s[3])
}

// predict is a + u.h at temperature k.
func (c *coefficients) predict(k int, h []float32) float64 {
	var s [4]float64
	for i, x := range h {
		s[i%4] += float64(c.u[k*len(h)+i] * float64(x))
	}
	return c.a[k] + ((s[0] + s[1]) + (s[2] + s[3]))
}

// conformal writes the half-widths of clusters, a row of levels for each, from the errors of each,
// which it sorts: the one at ceil((n+1) level) of n. Clusters with too few errors for a level share
// the width of all their errors together, or +Inf if these are too few.
func conformal(widths []float32, errors [][]float64, levels []float64) {
	for _, list := range errors {
		slices.Sort(list)
	}
	at := func(n int, level float64) int { return int(math.Ceil(float64(float64(n+1) * level))) }
	q := len(levels)
	for j, level := range levels {
		var few []float64
		for _, list := range errors {
			if at(len(list), level) > len(list) {
				few = append(few, list...)
			}
		}
		slices.Sort(few)
		for t, list := range errors {
			if at(len(list), level) > len(list) {
				list = few
			}
			w := float32(math.Inf(1))
			if i := at(len(list), level); i <= len(list) {
				w = atLeast(list[i-1])
			}
			widths[t*q+j] = w
		}
	}
	// A width at a level is valid at lower levels.
	for t := range errors {
		for j := q - 2; j >= 0; j-- {
			widths[t*q+j] = min(widths[t*q+j], widths[t*q+j+1])
		}
	}
}

// atLeast is the least float32 that is not below x.
func atLeast(x float64) float32 {
	w := float32(x)
	if float64(w) < x {
		w = math.Nextafter32(w, float32(math.Inf(1)))
	}
	return w
}
