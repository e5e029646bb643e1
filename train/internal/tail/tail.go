// Package tail fits what labels outside the candidates weigh: a regression of the log of
// their sum on the context.
package tail

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/internal/router"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
	"github.com/learning-to-screen/l2s/train/internal/corpus"
)

// Stage is the name of the stage.
const Stage = "tail"

// Options are those of train.TailOptions.
type Options struct {
	Temperatures []float64 `json:"temperatures"`
	Levels       []float64 `json:"levels"`
	Share        float64   `json:"share"`
	PerCluster   int       `json:"per_cluster"`
	HeldOut      float64   `json:"held_out"`
	Directions   int       `json:"directions"`
}

// maxDirections bounds Options.Directions.
const maxDirections = 64

// Check returns an error that names the first option out of its range.
func (o *Options) Check() error {
	switch {
	case len(o.Temperatures) == 0:
		return fmt.Errorf("tail: temperatures: found none, want at least 1")
	case o.PerCluster < 1:
		return fmt.Errorf("tail: contexts of a cluster: found %d, want at least 1", o.PerCluster)
	case !(o.HeldOut >= 0 && o.HeldOut < 1):
		return fmt.Errorf("tail: held out: found %v, want at least 0 and below 1", o.HeldOut)
	}
	if !(o.Share > 0 && o.Share <= 1) {
		return fmt.Errorf("tail: share: found %v, want above 0, at most 1", o.Share)
	}
	if o.Directions < 1 || o.Directions > maxDirections {
		return fmt.Errorf("tail: directions: found %d, want 1 to %d", o.Directions, maxDirections)
	}
	if len(o.Temperatures) > screen.MaxFits || len(o.Levels) > screen.MaxFits {
		return fmt.Errorf("tail: found %d temperatures and %d levels, want at most %d of each", len(o.Temperatures), len(o.Levels), screen.MaxFits)
	}
	for i, t := range o.Temperatures {
		if !finite(t) || t < softmax.MinTemperature || i > 0 && t <= o.Temperatures[i-1] {
			return fmt.Errorf("tail: temperatures: found %v at %d, want finite numbers of at least %v, ascending", t, i, softmax.MinTemperature)
		}
	}
	for i, p := range o.Levels {
		if !(p > 0 && p < 1) || i > 0 && p <= o.Levels[i-1] {
			return fmt.Errorf("tail: levels: found %v at %d, want numbers above 0 and below 1, ascending", p, i)
		}
	}
	return nil
}

// Fit says how well a tail estimates, on the contexts held out of it.
type Fit struct {
	// Fitted is the number of contexts that the coefficients come from, HeldOut the number
	// of contexts that the intervals and the figures come from.
	Fitted  int `json:"fitted_contexts"`
	HeldOut int `json:"held_out_contexts"`
	// Ridge is the weight of the squares of the slopes that cross-validation chose.
	Ridge float64 `json:"ridge"`
	// Errors are those at each temperature.
	Errors []Error `json:"errors"`
}

// Error are root mean squares over the contexts held out at one temperature: of the log of the
// tail, and of the log of the sum over all labels.
type Error struct {
	Temperature float64 `json:"temperature"`
	Tail        float64 `json:"log_tail"`
	LogZ        float64 `json:"log_z"`
}

// Screen is what a tail is fitted for: the candidates of a cell are those of its list whose
// share is at least Share.
type Screen struct {
	Layer  *softmax.Layer
	Router *router.Router
	Lists  []screen.List // of each cell
	Share  uint16
}

// Find fits the tail of a screen on contexts, whose cells are given. See train.FitTail.
func Find(ctx context.Context, c *corpus.Corpus, s *Screen, cells []uint32, opt *Options) (*screen.Tail, *Fit, error) {
	f := &fit{Corpus: c, screen: s, cells: cells, opt: opt, clusters: s.Router.Clusters(), temps: len(opt.Temperatures)}
	f.draw()
	if err := f.square(ctx); err != nil {
		return nil, nil, err
	}
	if err := f.measure(ctx); err != nil {
		return nil, nil, err
	}
	if err := f.fitAll(ctx); err != nil {
		return nil, nil, err
	}
	ridge, err := f.chooseRidge(ctx)
	if err != nil {
		return nil, nil, err
	}
	config, fit, err := f.solve(ctx, ridge)
	if err != nil {
		return nil, nil, err
	}
	t, err := screen.NewTail(config)
	if err != nil { // the fit has left the finite numbers
		return nil, nil, fmt.Errorf("%w: %w", ErrNotFinite, err)
	}
	return t, fit, nil
}

// ErrNotFinite is the cause of the error of a fit that has left the finite numbers.
var ErrNotFinite = errors.New("no finite solution")

// fit is a fit under way.
type fit struct {
	*corpus.Corpus
	screen   *Screen
	cells    []uint32
	opt      *Options
	clusters int
	temps    int
	width    int // of the features of a context: its elements, and its squares

	directions []float32    // of the squares
	squares    [][2]float64 // of each context drawn: ||h||^2 and the sum of (g_k.h)^2
	scales     [2]float64   // of the squares as features

	// The contexts of each cluster, ascending, those of cells whose lists lack labels: to fit
	// to, and held out.
	fitted, held [][]uint32
	// place is the row in logs and heads of each context drawn; -1 for others.
	place []int32
	// Of each context drawn, at each temperature: the log of the sum outside the candidates, and
	// within them, and what the slopes of all clusters together say of the first.
	logs, heads, shared []float64
	all                 *coefficients // of all clusters together
}

// rows are the features of contexts.
func (f *fit) rows(ids []uint32) []float32 {
	rows := make([]float32, 0, len(ids)*f.width)
	for _, i := range ids {
		rows = append(rows, f.features(rows[len(rows):cap(rows)], i)...)
	}
	return rows
}

// targets are the logs of contexts drawn, rests what the slopes of all clusters leave of
// them, and head is a sum within the candidates at a temperature.
func (f *fit) targets(ids []uint32) (y []float64) {
	for _, i := range ids {
		y = append(y, f.target(i)...)
	}
	return y
}

func (f *fit) target(i uint32) []float64 { return f.logs[int(f.place[i])*f.temps:][:f.temps] }

func (f *fit) rests(ids []uint32) []float64 {
	y := f.targets(ids)
	for j := range y {
		y[j] -= f.base(ids[j/f.temps], j%f.temps)
	}
	return y
}

func (f *fit) base(i uint32, k int) float64 { return f.shared[int(f.place[i])*f.temps+k] }

func (f *fit) head(i uint32, k int) float64 { return f.heads[int(f.place[i])*f.temps+k] }

// solve fits all clusters, and takes the half-widths and the figures from the
// contexts held out.
func (f *fit) solve(ctx context.Context, ridge float64) (screen.TailConfig, *Fit, error) {
	m, q, cells := f.temps, len(f.opt.Levels), f.screen.Router.Cells()
	c := screen.TailConfig{
		Share: f.screen.Share, Cells: cells, Clusters: f.clusters, Temperatures: f.opt.Temperatures, Levels: f.opt.Levels,
		Intercepts: make([]float32, m*cells), Slopes: make([]float32, m*f.clusters*f.Dim), Widths: make([]float32, m*f.clusters*q),
		Directions: f.directions, Squares: make([]float32, 2*m*f.clusters),
	}
	own := make([][]int, f.clusters) // the cells of each cluster
	for cell := range cells {
		t := f.screen.Router.ClusterOf(cell)
		own[t] = append(own[t], cell)
	}
	type sums struct {
		tail, logZ []float64
		away       [][]float64 // at each temperature, of each context held out
	}
	errors := make([]sums, f.clusters)
	done := f.Report.Part(Stage, "coefficients", "clusters", f.clusters)
	err := parallel.Each(ctx, f.Threads, f.clusters, 1, done, func(_, t, _ int) error {
		if len(f.fitted[t]) == 0 {
			return nil
		}
		x, shifts := f.coefficients(t, ridge)
		e := sums{make([]float64, m), make([]float64, m), make([][]float64, m)}
		for k := range m {
			row := k*f.clusters + t
			for _, cell := range own[t] {
				c.Intercepts[k*cells+cell] = float32(x.a[k] + shifts[uint32(cell)].at(k))
			}
			slope := c.Slopes[row*f.Dim:][:f.Dim]
			for i := range slope {
				slope[i] = float32(x.u[k*f.width+i])
			}
			squares := c.Squares[2*row:][:2]
			for i := range squares {
				squares[i] = float32(x.u[k*f.width+f.Dim+i] * f.scales[i])
			}
			away, buffer := make([]float64, len(f.held[t])), f.Buffer()
			for j, i := range f.held[t] {
				var product [1]float64
				kernels.Float32Rows(slope, f.Dim).RefScan(product[:], nil, f.Row(i, buffer))
				head, tail := f.head(i, k), f.target(i)[k]
				guess := product[0] + float64(c.Intercepts[k*cells+int(f.cells[i])])
				guess += float64(float64(squares[0])*f.squares[i][0]) + float64(float64(squares[1])*f.squares[i][1])
				away[j] = math.Abs(guess - tail)
				e.tail[k] += float64(away[j] * away[j])
				z := kernels.LogSumExp([]float64{head, guess}) - kernels.LogSumExp([]float64{head, tail})
				e.logZ[k] += float64(z * z)
			}
			e.away[k] = away
		}
		errors[t] = e
		return nil
	})
	fit := &Fit{Ridge: ridge, Errors: make([]Error, m)}
	means := f.means()
	for t, e := range errors {
		if len(f.fitted[t]) == 0 {
			// No context, or candidates that are all labels, beside which there is no tail
			// whatever the row says.
			for k, mean := range means {
				for _, cell := range own[t] {
					c.Intercepts[k*cells+cell] = float32(mean)
				}
			}
			continue
		}
		fit.Fitted, fit.HeldOut = fit.Fitted+len(f.fitted[t]), fit.HeldOut+len(f.held[t])
		for k := range e.tail {
			fit.Errors[k].Tail += e.tail[k]
			fit.Errors[k].LogZ += e.logZ[k]
		}
	}
	for k := range m {
		away := make([][]float64, f.clusters)
		for t, e := range errors {
			if e.away != nil {
				away[t] = e.away[k]
			}
		}
		conformal(c.Widths[k*f.clusters*q:][:f.clusters*q], away, f.opt.Levels)
	}
	n := float64(max(fit.HeldOut, 1))
	for k := range fit.Errors {
		x := &fit.Errors[k]
		x.Temperature, x.Tail, x.LogZ = f.opt.Temperatures[k], math.Sqrt(x.Tail/n), math.Sqrt(x.LogZ/n)
	}
	return c, fit, err
}

// shift says how far the logs of a cell lie above those of its cluster, at each
// temperature: its list is another one.
type shift struct {
	sums []float64
	n    float64
}

// shiftWeight is the number of contexts that the cluster counts for beside those of a cell.
const shiftWeight = 4

func (s *shift) at(k int) float64 {
	if s == nil {
		return 0
	}
	return s.sums[k] / (s.n + shiftWeight)
}

// coefficients fits a cluster, and the shifts of its cells, which are the mean errors of a first
// regression. Slopes are those of all clusters, and a ridge regression of what these leave: a
// cluster of few contexts keeps near to the others. After it a second one, at each temperature,
// weighs a context by the square of the share of the sum over all labels that the first gives to
// its tail: to first order it is the error of log Z that counts then, not the error of tails
// that hardly matter. The intercept is then moved so that the mean of the error of log Z is 0:
// log Z is convex in the log of the tail, so that errors of either sign would raise it, and
// perplexities with it.
func (f *fit) coefficients(t int, ridge float64) (*coefficients, map[uint32]*shift) {
	ids := f.fitted[t]
	n, rows, rests := len(ids), f.rows(ids), f.rests(ids)
	row := func(j int) []float32 { return rows[j*f.width:][:f.width] }
	first := newRegression(rows, rests, ones(n), f.width).solve(ridge)
	shifts := map[uint32]*shift{}
	guesses := make([]float64, n*f.temps)
	for j, i := range ids {
		at := shifts[f.cells[i]]
		if at == nil {
			at = &shift{sums: make([]float64, f.temps)}
			shifts[f.cells[i]] = at
		}
		at.n++
		for k := range f.temps {
			guesses[j*f.temps+k] = f.base(i, k) + first.predict(k, row(j))
			at.sums[k] += f.target(i)[k] - guesses[j*f.temps+k]
		}
	}
	all := newCoefficients(f.width, f.temps)
	weights, y, slopes, heads := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	for k := range f.temps {
		for j, i := range ids {
			shift := shifts[f.cells[i]].at(k)
			heads[j] = f.head(i, k)
			share := tailShare(heads[j], guesses[j*f.temps+k]+shift)
			weights[j] = float64(share*share) + leastWeight
			y[j] = rests[j*f.temps+k] - shift
		}
		mean := 0.0
		for _, w := range weights {
			mean += w / float64(n)
		}
		for j := range weights {
			weights[j] /= mean
		}
		c := newRegression(rows, y, weights, f.width).solve(ridge)
		for j, u := range c.u {
			all.u[k*f.width+j] = f.all.u[k*f.width+j] + u
		}
		a := c.a[0]
		c.a[0] = 0
		for j, i := range ids {
			slopes[j] = f.base(i, k) + c.predict(0, row(j)) + shifts[f.cells[i]].at(k)
		}
		all.a[k] = centre(a, slopes, heads, func(j int) float64 { return f.target(ids[j])[k] })
	}
	return all, shifts
}

// means are the means of the logs over all contexts fitted, at each temperature; 0
// if there are none.
func (f *fit) means() []float64 {
	sums, n := make([]float64, f.temps), 0
	for t := range f.clusters {
		for _, i := range f.fitted[t] {
			for k, y := range f.target(i) {
				sums[k] += y
			}
			n++
		}
	}
	for k := range sums {
		sums[k] /= float64(max(n, 1))
	}
	return sums
}
