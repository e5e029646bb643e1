package tail

import (
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/kernels"
)

// equations are the sums of the normal equations over some contexts of a cluster: of
// 1, of h, of y, of h h^T in its lower half, and of y h, with y at each temperature.
type equations struct {
	dim, temps int
	n          float64
	h, hh      []float64
	y, yh      []float64
}

func newEquations(dim, temps int) *equations {
	return &equations{dim: dim, temps: temps, h: make([]float64, dim), hh: make([]float64, dim*dim), y: make([]float64, temps), yh: make([]float64, temps*dim)}
}

// lists are the sums, to be treated alike.
func (s *equations) lists() [][]float64 { return [][]float64{s.h, s.hh, s.y, s.yh} }

func (s *equations) clear() {
	s.n = 0
	for _, list := range s.lists() {
		clear(list)
	}
}

// add adds a context that counts weight times.
func (s *equations) add(h []float32, y []float64, weight float32) {
	s.n += float64(weight)
	kernels.Axpy(s.h, weight, h)
	for i, x := range h {
		kernels.Axpy(s.hh[i*s.dim:][:i+1], weight*x, h[:i+1])
	}
	for k, v := range y {
		v *= float64(weight)
		s.y[k] += v
		row := s.yh[k*s.dim:][:s.dim]
		for i, x := range h {
			row[i] += float64(v * float64(x))
		}
	}
}

// centre makes the sums those of the contexts less their mean. There is at least one.
func (s *equations) centre() {
	for i := range s.dim {
		for j := range i + 1 {
			s.hh[i*s.dim+j] -= float64(s.h[i]*s.h[j]) / s.n
		}
	}
	for k, y := range s.y {
		for i, x := range s.h {
			s.yh[k*s.dim+i] -= float64(y*x) / s.n
		}
	}
	clear(s.h)
	clear(s.y)
}

// plus adds o, or takes it off with sign -1.
func (s *equations) plus(o *equations, sign float64) {
	s.n += sign * o.n
	from := o.lists()
	for k, list := range s.lists() {
		for i, x := range from[k] {
			list[i] += sign * x
		}
	}
}

// coefficients of a cluster: a and u at each temperature.
type coefficients struct {
	a, u    []float64
	factor  []float64
	centred []float64
}

func newCoefficients(dim, temps int) *coefficients {
	return &coefficients{a: make([]float64, temps), u: make([]float64, temps*dim), factor: make([]float64, dim*dim), centred: make([]float64, dim)}
}

// solve finds the coefficients that minimise the sum of the squares of the errors plus
// ridge times the square of u. There is at least one context.
func (c *coefficients) solve(s *equations, ridge float64) {
	d := s.dim
	for i := range d {
		for j := range i + 1 {
			c.factor[i*d+j] = s.hh[i*d+j] - float64(s.h[i]*s.h[j])/s.n
		}
		c.factor[i*d+i] += ridge
	}
	cholesky(c.factor, d)
	for k := range s.temps {
		u := c.u[k*d:][:d]
		for i := range d {
			u[i] = s.yh[k*d+i] - float64(s.y[k]*s.h[i])/s.n
		}
		substitute(c.factor, u)
		c.a[k] = (s.y[k] - dot(u, s.h)) / s.n
	}
}

// cholesky replaces the lower half of a symmetric matrix by L with L L^T = A. Rows
// that depend on those before, up to rounding, are left out of the solution: if
// the diagonal is not above 0 it becomes +Inf. No product is fused with a sum, so that
// the result has the same bits on every CPU.
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

// leastWeight is the weight of a context without a tail, if one that is all tail has 1.
const leastWeight = 1e-4

// tailShare is e^tail / (e^head + e^tail).
func tailShare(head, tail float64) float64 {
	return 1 / (1 + kernels.Exp(head-tail))
}

// centre returns the intercept near a at which the mean of log(e^head + e^(a + slope))
// equals the mean of the true sums, whose tails are given, by Newton's method.
func centre(a float64, slopes, heads []float64, tail func(j int) float64) float64 {
	want := 0.0
	for j, head := range heads {
		want += kernels.LogSumExp([]float64{head, tail(j)})
	}
	for range 30 {
		sum, slope := 0.0, 0.0
		for j, head := range heads {
			sum += kernels.LogSumExp([]float64{head, a + slopes[j]})
			slope += tailShare(head, a+slopes[j])
		}
		step := (want - sum) / slope
		if !(math.Abs(step) < 10) { // no tail to speak of: the intercept does not matter
			return a
		}
		if a += step; math.Abs(step) < 1e-9 {
			break
		}
	}
	return a
}

// conformal writes the half-widths of clusters, a row of levels for each, for the errors of
// each, which it sorts: of n the one at ceil((n+1) level). The clusters with too few errors
// for a level have that of their errors together; if these are too few, +Inf.
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
	// What holds at a level holds at lower ones.
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

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
