package screen

import (
	"fmt"
	"math"

	"github.com/learning-to-screen/l2s/kernels"
)

// Regression estimates the tail of a screen: for a context h of cluster t, the log
// of the sum of e^(x_s/T) over the labels s outside the candidate set of t is about
//
//	a_t + u_t.h + c_t ||h||^2 + e_t sum_k (g_k.h)^2
//
// with coefficients for each temperature T that it has. The directions g_k, some of those in
// which logits differ most, are shared by all clusters: how far logits spread decides how
// much the tail weighs. Without directions the estimate is a_t + u_t.h. So the log of the sum over
// all labels, log Z, costs a few products beside the logits of the set. It also holds,
// for some levels of confidence, how far the log of the tail of a context of the
// cluster is from that at most (half-widths found by split conformal prediction,
// see train.FitRegression). A Regression is immutable and safe for use by many
// goroutines.
type Regression struct {
	c   RegressionConfig
	dim int
}

// RegressionConfig is what a Regression is made of. Blocks for the temperatures
// come one after the other, in each of them rows for the clusters.
type RegressionConfig struct {
	// Clusters is r, at least 1.
	Clusters int
	// Temperatures are those that there are coefficients for, m of them, ascending,
	// above 0 and finite.
	Temperatures []float64
	// Intercepts holds a_t: m x r numbers.
	Intercepts []float32
	// Slopes holds u_t: m x r rows of dimension d.
	Slopes []float32
	// Directions holds g_k: rows of dimension d, at most 64. None: there are no squares.
	Directions []float32
	// Squares holds c_t and e_t, if there are directions: m x r pairs.
	Squares []float32
	// Levels are the levels of confidence of the half-widths, q of them, ascending,
	// above 0 and below 1. None: there are no intervals.
	Levels []float64
	// Widths holds the half-widths: m x r rows of q numbers, which do not descend in
	// a row, and none is negative. +Inf: nothing can be said.
	Widths []float32
}

// maxFits bounds the temperatures, the levels and the directions of a Regression.
const maxFits = 64

// NewRegression returns the regression of c, whose slices are kept, not copied. An
// error names the field, what was found and what was expected.
func NewRegression(c RegressionConfig) (*Regression, error) {
	r, err := newRegression(c)
	if err != nil {
		return nil, fmt.Errorf("screen: regression: %w", err)
	}
	return r, nil
}

func newRegression(c RegressionConfig) (*Regression, error) {
	m, q := len(c.Temperatures), len(c.Levels)
	if c.Clusters < 1 {
		return nil, fmt.Errorf("clusters: found %d, expected at least 1", c.Clusters)
	}
	if m < 1 || m > maxFits || q > maxFits {
		return nil, fmt.Errorf("found %d temperatures and %d levels, expected 1 to %d and 0 to %[3]d", m, q, maxFits)
	}
	for i, t := range c.Temperatures {
		if !(t > 0) || math.IsInf(t, 1) || i > 0 && t <= c.Temperatures[i-1] {
			return nil, fmt.Errorf("temperatures: found %v at %d, expected finite numbers above 0, ascending", t, i)
		}
	}
	for i, p := range c.Levels {
		if !(p > 0 && p < 1) || i > 0 && p <= c.Levels[i-1] {
			return nil, fmt.Errorf("levels: found %v at %d, expected numbers above 0 and below 1, ascending", p, i)
		}
	}
	rows := m * c.Clusters
	if len(c.Intercepts) != rows {
		return nil, fmt.Errorf("intercepts: found %d, expected one for each of %d clusters and %d temperatures", len(c.Intercepts), c.Clusters, m)
	}
	dim := len(c.Slopes) / rows
	if dim < 1 || len(c.Slopes) != rows*dim {
		return nil, fmt.Errorf("slopes: found %d elements, expected a row for each of %d clusters and %d temperatures", len(c.Slopes), c.Clusters, m)
	}
	if n := len(c.Directions); n%dim != 0 || n/dim > maxFits {
		return nil, fmt.Errorf("directions: found %d elements, expected at most %d rows of dim %d", n, maxFits, dim)
	}
	squares := 0
	if len(c.Directions) > 0 {
		squares = 2 * rows
	}
	if len(c.Squares) != squares {
		return nil, fmt.Errorf("squares: found %d, expected %d for %d directions", len(c.Squares), squares, len(c.Directions)/dim)
	}
	if len(c.Widths) != rows*q {
		return nil, fmt.Errorf("widths: found %d, expected %d for each of %d clusters and %d temperatures", len(c.Widths), q, c.Clusters, m)
	}
	for _, part := range []struct {
		name  string
		x     []float32
		width int
	}{{"intercepts", c.Intercepts, 1}, {"slopes", c.Slopes, dim}, {"directions", c.Directions, dim}, {"squares", c.Squares, 2}} {
		if i, j, found := kernels.Float32Rows(part.x, part.width).NotFinite(); found {
			return nil, fmt.Errorf("%s: found %v at row %d, column %d, expected finite numbers", part.name, part.x[i*part.width+j], i, j)
		}
	}
	for i, w := range c.Widths {
		if !(w >= 0) || math.Signbit(float64(w)) || i%q > 0 && w < c.Widths[i-1] {
			return nil, fmt.Errorf("widths: found %v at row %d, column %d, expected numbers that are not negative and do not descend", w, i/q, i%q)
		}
	}
	return &Regression{c, dim}, nil
}

// Config returns what the regression is made of. Its slices must not be changed.
func (r *Regression) Config() RegressionConfig { return r.c }

// Clusters returns r, the number of clusters.
func (r *Regression) Clusters() int { return r.c.Clusters }

// Dim returns d, the dimension of a context.
func (r *Regression) Dim() int { return r.dim }

// directions is the number of directions.
func (r *Regression) directions() int { return len(r.c.Directions) / r.dim }

// covers reports whether there is a prediction at a temperature.
func (r *Regression) covers(temperature float64) bool {
	list := r.c.Temperatures
	return list[0] <= temperature && temperature <= list[len(list)-1]
}

// estimate is what is known of the log of a tail.
type estimate struct {
	log   float64 // about
	width float64 // of either side, at the confidence; +Inf for unknown
}

// predict returns the log of the tail of a context of cluster t at a temperature,
// and its half-width at a confidence (0: none is wanted). There is none (false)
// unless the temperature lies within the temperatures of the regression.
//
// Between two of them it interpolates linearly in 1/T. The log of the tail is
// convex in 1/T, so that the upper end stays one: it holds if both it is made of
// hold, each at half the risk. The lower end is not known then.
func (r *Regression) predict(h []float32, t int, temperature, confidence float64) (upper estimate, lower float64, ok bool) {
	list := r.c.Temperatures
	last := len(list) - 1
	if !r.covers(temperature) {
		return estimate{}, 0, false
	}
	at := 0
	for at < last && list[at+1] <= temperature {
		at++
	}
	norm, along := SquaresOf(r.c.Directions, h)
	fit := func(at int, confidence float64) estimate { return r.fit(h, norm, along, at, t, confidence) }
	if list[at] == temperature {
		e := fit(at, confidence)
		return e, e.log - e.width, true
	}
	half := confidence
	if half > 0 {
		half = 1 - (1-confidence)/2
	}
	cold, warm := fit(at, half), fit(at+1, half)
	share := (1/temperature - 1/list[at+1]) / (1/list[at] - 1/list[at+1])
	mix := func(a, b float64) float64 { return float64(share*a) + float64((1-share)*b) }
	return estimate{mix(cold.log, warm.log), mix(cold.width, warm.width)}, math.Inf(-1), true
}

// SquaresOf returns ||h||^2 and the sum of (g_k.h)^2 over the rows of directions, by the
// reference arithmetic, so that they have the same bits on every CPU; 0 and 0 if there
// are no directions. It panics if directions is not rows of the length of h, or more than
// 64 of them.
func SquaresOf(directions, h []float32) (norm, along float64) {
	if len(directions) == 0 {
		return 0, 0
	}
	var products [maxFits]float64
	g := products[:len(directions)/len(h)]
	kernels.Float32Rows(directions, len(h)).RefScan(g, nil, h)
	for _, x := range g {
		along += float64(x * x)
	}
	kernels.Float32Rows(h, len(h)).RefScan(products[:1], nil, h)
	return products[0], along
}

// fit is the prediction at one of the temperatures, with what SquaresOf returns.
func (r *Regression) fit(h []float32, norm, along float64, at, t int, confidence float64) estimate {
	row := at*r.c.Clusters + t
	var product [1]float64
	kernels.Float32Rows(r.c.Slopes[row*r.dim:(row+1)*r.dim], r.dim).RefScan(product[:], nil, h)
	e := estimate{product[0] + float64(r.c.Intercepts[row]), math.Inf(1)}
	if len(r.c.Squares) > 0 {
		e.log += float64(float64(r.c.Squares[2*row])*norm) + float64(float64(r.c.Squares[2*row+1])*along)
	}
	q := len(r.c.Levels)
	for j, level := range r.c.Levels {
		if level >= confidence {
			e.width = float64(r.c.Widths[row*q+j])
			break
		}
	}
	return e
}

// Regression returns what estimates the tail, or nil if the model has none.
func (m *Model) Regression() *Regression { return m.regression }

// WithRegression returns the model with that regression instead of its own, nil
// for none, and this training record; if record is nil it keeps its own. The two
// share all else. It returns an error if the regression is for another number of
// clusters or another dimension.
func (m *Model) WithRegression(r *Regression, record []byte) (*Model, error) {
	if err := checkRegression(r, m.Clusters(), m.Dim()); err != nil {
		return nil, fmt.Errorf("screen: %w", err)
	}
	with, err := m.WithMargins(m.ProbeMargin(), m.ExactMargin(), record)
	if err != nil {
		return nil, err
	}
	with.regression = r
	return with, nil
}

func checkRegression(r *Regression, clusters, dim int) error {
	if r != nil && (r.Clusters() != clusters || r.Dim() != dim) {
		return fmt.Errorf("regression: found one for %d clusters and dim %d, expected %d and %d", r.Clusters(), r.Dim(), clusters, dim)
	}
	return nil
}
