// Package tail estimates the weight of the labels that a screen does not look at.
package tail

import (
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// Tail estimates the weight of the labels that a screen does not look at. For a context h in a cell
// of cluster t, take the labels s outside the first candidates of its cell, which are the
// candidates with a share of at least Share. The log of the sum of e^(x_s/T) over these labels is
// about
//
//	a + u_t.h + c_t ||h||^2 + e_t sum_k (g_k.h)^2
//
// with coefficients of the cluster for each temperature T that it has. The directions g_k, some of
// those in which logits differ most, are shared by all clusters: the spread of the logits decides
// the weight of the tail. A Tail also has, for some levels of confidence, the largest distance of
// the log of the tail from this estimate for contexts of the cluster (half-widths found by split
// conformal prediction, see package train).
//
// A regression tells nothing of contexts unlike those that it was fitted to. So a Tail has, for
// each cluster, the ranges of the numbers that it uses: ||h||^2, the last sum, and its own logs, and
// the least cosine of a context and the vector of the cluster. Outside these ranges the exact layer
// answers. Errors grow towards that cosine, and the half-widths with them. A Tail is immutable and
// safe for use by many goroutines.
type Tail struct {
	c   Config
	dim int
}

// Config has the parts of a Tail. Blocks for the temperatures come one after the other, in each
// of them rows for the clusters.
type Config struct {
	// The candidates of a cell with a share of at least Share are not in the tail.
	Share uint16
	// Clusters is r, at least 1.
	Clusters int
	// Temperatures are the m temperatures with coefficients, ascending, finite and at least
	// exact.MinTemperature.
	Temperatures []float64
	// Intercepts holds a: m x r numbers.
	Intercepts []float32
	// Slopes holds u_t: m x r rows of dimension d.
	Slopes []float32
	// Directions holds g_k: 1 to 64 rows of dimension d.
	Directions []float32
	// Squares holds c_t and e_t: m x r pairs.
	Squares []float32
	// Levels are the levels of confidence of the half-widths, q of them, ascending, above 0 and
	// below 1. Without levels there are no intervals.
	Levels []float64
	// Widths holds the half-widths: m x r rows of q numbers, which do not descend in a row, and
	// none is negative. +Inf: unknown. [Stretch] is their factor for a context.
	Widths []float32
	// Ranges holds the ranges of a cluster's contexts: r rows of 2 m + 4 numbers, the least and the
	// largest ||h||^2, sum over k of (g_k.h)^2, and log of the tail at each temperature. None is
	// NaN. The exact layer answers outside any of them, and always if the least is above the
	// largest: from +Inf to -Inf the range is empty, from -Inf to +Inf it includes all contexts.
	Ranges []float64
	// Cosines holds the least and the middle cosine of a cluster's contexts and its vector: r pairs.
	// None is NaN. The exact layer answers below the least: always if it is above 1.
	Cosines []float64
}

// MaxFits bounds the temperatures, the levels and the directions of a Tail.
const MaxFits = 64

// New returns the tail of c, whose slices are kept. An error names the field, the value found and
// the value expected.
func New(c Config) (*Tail, error) {
	dim, err := c.check()
	if err != nil {
		return nil, fmt.Errorf("tail: %w", err)
	}
	return &Tail{c, dim}, nil
}

// check returns the dimension of contexts, and an error unless the parts are as Config requires.
func (c *Config) check() (dim int, err error) {
	m, q := len(c.Temperatures), len(c.Levels)
	if c.Clusters < 1 {
		return 0, fmt.Errorf("clusters: found %d, expected at least 1", c.Clusters)
	}
	if m < 1 || m > MaxFits || q > MaxFits {
		return 0, fmt.Errorf("found %d temperatures and %d levels, expected 1 to %d and 0 to %[3]d", m, q, MaxFits)
	}
	for i, t := range c.Temperatures {
		if !(t >= exact.MinTemperature) || math.IsInf(t, 1) || i > 0 && !(1/t < 1/c.Temperatures[i-1]) {
			return 0, fmt.Errorf("temperatures: found %v at %d, expected finite numbers of at least %v, ascending", t, i, exact.MinTemperature)
		}
	}
	for i, p := range c.Levels {
		if !(p > 0 && p < 1) || i > 0 && p <= c.Levels[i-1] {
			return 0, fmt.Errorf("levels: found %v at %d, expected numbers above 0 and below 1, ascending", p, i)
		}
	}
	rows := m * c.Clusters
	if dim = len(c.Slopes) / rows; dim < 1 {
		return 0, fmt.Errorf("slopes: found %d elements, expected a row for each of %d clusters and %d temperatures", len(c.Slopes), c.Clusters, m)
	}
	if n := len(c.Directions); n == 0 || n%dim != 0 || n/dim > MaxFits {
		return 0, fmt.Errorf("directions: found %d elements, expected 1 to %d rows of dim %d", n, MaxFits, dim)
	}
	for _, part := range []struct {
		name               string
		found, width, rows int
	}{
		{"intercepts", len(c.Intercepts), 1, rows}, {"slopes", len(c.Slopes), dim, rows}, {"squares", len(c.Squares), 2, rows}, {"widths", len(c.Widths), q, rows},
		{"ranges", len(c.Ranges), 2*m + 4, c.Clusters}, {"cosines", len(c.Cosines), 2, c.Clusters},
	} {
		if part.found != part.width*part.rows {
			return 0, fmt.Errorf("%s: found %d numbers, expected %d rows of %d", part.name, part.found, part.rows, part.width)
		}
	}
	for j, list := range [][]float64{c.Ranges, c.Cosines} {
		if i := slices.IndexFunc(list, math.IsNaN); i >= 0 {
			return 0, fmt.Errorf("%s: found NaN at %d, expected numbers", []string{"ranges", "cosines"}[j], i)
		}
	}
	for _, part := range []struct {
		name  string
		x     []float32
		width int
	}{{"intercepts", c.Intercepts, 1}, {"slopes", c.Slopes, dim}, {"directions", c.Directions, dim}, {"squares", c.Squares, 2}} {
		if i, j, found := kernels.FirstNotFinite(kernels.Float32Rows(part.x, part.width)); found {
			return 0, fmt.Errorf("%s: found %v at row %d, column %d, expected finite numbers", part.name, part.x[i*part.width+j], i, j)
		}
	}
	for i, w := range c.Widths {
		if !(w >= 0) || math.Signbit(float64(w)) || i%q > 0 && w < c.Widths[i-1] {
			return 0, fmt.Errorf("widths: found %v at row %d, column %d, expected numbers that are not negative and do not descend", w, i/q, i%q)
		}
	}
	return dim, nil
}

// Config returns the parts of the tail. Its slices must not be changed.
func (t *Tail) Config() Config { return t.c }

// Fits returns the number of clusters and the dimension of contexts that the tail is for.
func (t *Tail) Fits() (clusters, dim int) { return t.c.Clusters, t.dim }

// Covers reports whether there is an estimate at a temperature.
func (t *Tail) Covers(temperature float64) bool {
	list := t.c.Temperatures
	return list[0] <= temperature && temperature <= list[len(list)-1]
}

// CheckTemperature returns an error unless there are probabilities at a temperature.
func CheckTemperature(temperature float64) error {
	if !(temperature >= exact.MinTemperature && temperature <= math.MaxFloat64) {
		return exact.Invalid(exact.ErrRequest, "l2s: temperature: found %v, expected a finite number of at least %v", temperature, exact.MinTemperature)
	}
	return nil
}

// Interval is l2s.Interval.
type Interval struct {
	// Log is the estimate, Low and High are the ends, -Inf and +Inf if nothing is known.
	Log, Low, High float64
}

// NoLabels is the log of the sum over no labels.
var NoLabels = Interval{math.Inf(-1), math.Inf(-1), math.Inf(-1)}

// Rest is what a tail tells about one context: the weight of the labels outside the head of its
// cell, which are the candidates that are not in the tail.
type Rest struct {
	// Of is the layer whose temperatures At takes: a tail is of logits without its scale. Nil: without
	// one.
	Of *exact.Layer

	tail            *Tail
	cluster, labels int              // labels: their number
	stretch         float64          // of the half-widths
	logs            [MaxFits]float64 // at each of the temperatures
}

// steepness is what the half-widths gain from the middle cosine to the least, in widths.
const steepness = 4

// Stretch returns the factor of the half-widths of a cluster for a context with that cosine: 1 from
// the middle of the cluster's contexts on, and growing in proportion to the distance from it. The
// contexts of a fit are the denser the nearer, and what it knows of directions that few of them
// have is little.
func Stretch(least, middle, cosine float64) float64 {
	if !(least < middle && cosine < middle) {
		return 1
	}
	return 1 + float64(steepness*((middle-cosine)/(middle-least)))
}

// Predict sets r to the rest of a context of a cluster, with the cosine of both, which has a number
// of labels. It reports false if a number that it computes with is outside the range of the
// cluster's contexts: then the rest has no meaning.
func (t *Tail) Predict(r *Rest, cluster, labels int, h []float32, cosine float64) bool {
	if r.tail, r.cluster, r.labels = t, cluster, labels; labels == 0 {
		return true
	}
	least := t.c.Cosines[2*cluster]
	if !(cosine >= least) {
		return false
	}
	r.stretch = Stretch(least, t.c.Cosines[2*cluster+1], cosine)
	norm, along := SquaresOf(t.c.Directions, h)
	m := len(t.c.Temperatures)
	ranges := t.c.Ranges[cluster*(2*m+4):][:2*m+4]
	within := func(i int, x float64) bool { return ranges[2*i] <= x && x <= ranges[2*i+1] }
	known := within(0, norm) && within(1, along)
	for at := 0; known && at < m; at++ {
		row := at*t.c.Clusters + cluster
		var product [1]float64
		kernels.Float32Rows(t.c.Slopes[row*t.dim:(row+1)*t.dim], t.dim).RefScan(product[:], nil, h)
		log := product[0] + float64(t.c.Intercepts[row])
		log += float64(float64(t.c.Squares[2*row])*norm) + float64(float64(t.c.Squares[2*row+1])*along)
		r.logs[at], known = log, within(2+at, log)
	}
	return known
}

// At is the log of the sum of e^(x/T) over the labels, and an interval that contains it with the
// confidence. If the tail has no coefficients for T it gives only an upper bound of the sum, by the
// nearest temperature T0 that it has: with a = T0/T a sum of n positive terms to the power a is at
// most the sum of the powers if a >= 1, and otherwise n^(1-a) times the power of the sum. Log is
// High then. A temperature that is no finite number of at least [exact.MinTemperature] tells
// nothing.
func (r *Rest) At(temperature, confidence float64) Interval {
	if CheckTemperature(temperature) != nil {
		return Interval{math.NaN(), math.Inf(-1), math.Inf(1)}
	}
	if r.labels == 0 {
		return NoLabels
	}
	list := r.tail.c.Temperatures
	if r.Of != nil {
		temperature = r.Of.RawTemperature(temperature)
	}
	nearest := min(max(temperature, list[0]), list[len(list)-1])
	x := r.at(nearest, confidence)
	if nearest == temperature {
		return x
	}
	high := float64(x.High * (nearest / temperature))
	if nearest < temperature {
		high += float64((1 - nearest/temperature) * kernels.Log(float64(r.labels)))
	}
	return Interval{high, math.Inf(-1), high}
}

// at is At at a temperature that the tail covers.
//
// Between two temperatures it interpolates linearly in 1/T. The log of the tail is convex in 1/T, so
// that the upper end stays an upper bound: it is valid if both ends that it is made of are valid,
// each at half the risk. Then the lower end is unknown.
func (r *Rest) at(temperature, confidence float64) Interval {
	list, logs := r.tail.c.Temperatures, &r.logs
	at, found := slices.BinarySearch(list, temperature)
	if found {
		log, width := logs[at], r.width(at, confidence)
		return Interval{log, log - width, log + width}
	}
	half := confidence
	if half > 0 {
		half = 1 - (1-confidence)/2
	}
	coldWidth, warmWidth := r.width(at-1, half), r.width(at, half)
	share := (1/temperature - 1/list[at]) / (1/list[at-1] - 1/list[at])
	mix := func(a, b float64) float64 { return float64(share*a) + float64((1-share)*b) }
	log, width := mix(logs[at-1], logs[at]), math.Inf(1)
	if coldWidth < width && warmWidth < width { // otherwise its product with a share of 0 would be NaN
		width = mix(coldWidth, warmWidth)
	}
	return Interval{log, math.Inf(-1), log + width}
}

// SquaresOf returns ||h||^2 and the sum of (g_k.h)^2 over the rows of directions, 0 and 0
// if there are none, by the reference arithmetic, with the same bits on every CPU. It
// panics if directions is not rows of the length of h, or more than 64 of them.
func SquaresOf(directions, h []float32) (norm, along float64) {
	if len(directions) == 0 {
		return 0, 0
	}
	var products [MaxFits]float64
	g := products[:len(directions)/len(h)]
	kernels.Float32Rows(directions, len(h)).RefScan(g, nil, h)
	for _, x := range g {
		along += float64(x * x)
	}
	kernels.Float32Rows(h, len(h)).RefScan(products[:1], nil, h)
	return products[0], along
}

// width is the half-width at the confidence, at one of the temperatures, +Inf for unknown.
func (r *Rest) width(at int, confidence float64) float64 {
	c := &r.tail.c
	q := len(c.Levels)
	if j, _ := slices.BinarySearch(c.Levels, confidence); j < q && !math.IsNaN(confidence) {
		return float64(r.stretch * float64(c.Widths[(at*c.Clusters+r.cluster)*q+j]))
	}
	return math.Inf(1)
}
