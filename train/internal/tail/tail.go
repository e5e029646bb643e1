// Package tail fits the weight of the labels outside the candidates: a regression of the log of
// their sum on the context.
package tail

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/parallel"
	"github.com/learning-to-screen/l2s/internal/ground/stage"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/router"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/search/tail"
	"github.com/learning-to-screen/l2s/train/internal/corpus"
	"github.com/learning-to-screen/l2s/train/internal/record"
)

// Options are the options of train.TailOptions.
type Options struct {
	Temperatures []float64
	Levels       []float64
	Share        float64
	PerCluster   int
	HeldOut      float64
	Directions   int
}

// maxDirections bounds Options.Directions.
const maxDirections = 64

// Check returns an error that names the first option out of its range.
func (o *Options) Check() error {
	var c record.Options
	c.Want(len(o.Temperatures) > 0, "tail: temperatures", "none", "at least 1")
	c.Want(o.PerCluster >= 1, "tail: contexts of a cluster", o.PerCluster, "at least 1")
	c.Want(o.HeldOut >= 0 && o.HeldOut < 1, "tail: held out", o.HeldOut, "at least 0 and below 1")
	c.Want(o.Share > 0 && o.Share <= 1, "tail: share", o.Share, "above 0, at most 1")
	c.Want(o.Directions >= 1 && o.Directions <= maxDirections, "tail: directions", o.Directions, "1 to %d", maxDirections)
	c.Want(len(o.Temperatures) <= tail.MaxFits, "tail: temperatures", len(o.Temperatures), "at most %d", tail.MaxFits)
	c.Want(len(o.Levels) <= tail.MaxFits, "tail: levels", len(o.Levels), "at most %d", tail.MaxFits)
	for i, t := range o.Temperatures {
		ok := t >= exact.MinTemperature && !math.IsInf(t, 0) && (i == 0 || 1/t < 1/o.Temperatures[i-1])
		c.Want(ok, fmt.Sprintf("tail: temperatures[%d]", i), t, "finite numbers of at least %v, ascending", exact.MinTemperature)
	}
	for i, p := range o.Levels {
		ok := p > 0 && p < 1 && (i == 0 || p > o.Levels[i-1])
		c.Want(ok, fmt.Sprintf("tail: levels[%d]", i), p, "numbers above 0 and below 1, ascending")
	}
	return c.Err
}

// Fit has the precision of a tail's estimates, on the contexts held out of it.
type Fit struct {
	// Fitted is the number of contexts that the coefficients come from, HeldOut the number
	// of contexts that the intervals and the figures come from.
	Fitted  int `json:"fitted_contexts"`
	HeldOut int `json:"held_out_contexts"`
	// Ridge is the weight of the squares of a cluster's own slopes.
	Ridge float64 `json:"ridge"`
	// Errors are the errors at each temperature.
	Errors []Error `json:"errors"`
}

// Error has root mean squares of errors over the contexts held out, at one temperature: for the log
// of the tail, and for the log of the sum over all labels.
type Error struct {
	Temperature float64 `json:"temperature"`
	Tail        float64 `json:"log_tail"`
	LogZ        float64 `json:"log_z"`
}

// Find fits the tail of a model, for its budget, on contexts, of which r finds these cells. See
// train.FitTail.
func Find(ctx context.Context, c *corpus.Corpus, layer *exact.Layer, m *screening.Model, r *router.Router, cells []uint32, opt *Options) (*tail.Tail, *Fit, error) {
	f := draw(c, m, r, cells, opt)
	f.layer = layer
	for _, step := range []func(context.Context) error{f.square, f.measure, f.fitAll} {
		if err := step(ctx); err != nil {
			return nil, nil, err
		}
	}
	var err error
	if f.cosines, err = f.findCosines(ctx, c, cells); err != nil {
		return nil, nil, err
	}
	config, fit, err := f.solve(ctx)
	if err != nil {
		return nil, nil, err
	}
	if config.Ranges, err = f.ranges(ctx, c, cells, &config); err != nil {
		return nil, nil, err
	}
	t, err := tail.New(config)
	if err != nil { // the fit has left the finite numbers
		err = fmt.Errorf("%w: found contexts and a layer whose numbers are too large or too small for a regression: screen: %w", Err, err)
	}
	return t, fit, err
}

// Err is the cause of the error for contexts and a layer without a tail.
var Err = errors.New("tail")

// fit is the state of a fit to the drawn contexts.
type fit struct {
	*corpus.Corpus // ordered by cluster
	cells          []uint32
	layer          *exact.Layer
	router         *router.Router
	model          *screening.Model
	opt            *Options
	clusters       int
	temps          int
	width          int // of the features of a context: its elements, and its squares

	cosines    []float64    // see tail.Config
	directions []float32    // of the squares
	squares    [][2]float64 // of each context: ||h||^2 and the sum of (g_k.h)^2
	scales     [2]float64   // of the squares as features

	fitted, held [][]uint32 // the contexts of each cluster, ascending: to fit to, and held out
	// For each context, at each temperature: the log of the sum outside the candidates, and within
	// them, and the estimate of the first by the slopes of all clusters together.
	logs, heads, shared []float64
	all                 *coefficients // of the pooled contexts of all clusters
	ridge               float64       // of the slopes of a cluster
}

// candidates returns the candidates of a cell within the budget of the model, which is in its
// ladder.
func (f *fit) candidates(cell uint32) []uint32 {
	ids, _ := f.model.Candidates(int(cell), f.model.Budget())
	return ids
}

// at is the place of a context, at a temperature, in logs, heads and shared.
func (f *fit) at(i uint32, k int) int { return int(i)*f.temps + k }

// rows are the features of contexts.
func (f *fit) rows(ids []uint32) []float32 {
	rows := make([]float32, 0, len(ids)*f.width)
	for _, i := range ids {
		rows = append(rows, f.features(rows[len(rows):cap(rows)], i)...)
	}
	return rows
}

// residuals returns the logs of contexts less their estimates by the slopes of all clusters.
func (f *fit) residuals(ids []uint32) (y []float64) {
	for _, i := range ids {
		for k := range f.temps {
			y = append(y, f.logs[f.at(i, k)]-f.shared[f.at(i, k)])
		}
	}
	return y
}

// solve fits all clusters, and takes the half-widths and the figures from the
// contexts held out.
func (f *fit) solve(ctx context.Context) (tail.Config, *Fit, error) {
	m, q := f.temps, len(f.opt.Levels)
	ladder := f.model.Ladder()
	rung := slices.IndexFunc(ladder, func(x screening.Rung) bool { return x.Budget == f.model.Budget() })
	c := tail.Config{
		Share: ladder[rung].Share, Clusters: f.clusters, Temperatures: f.opt.Temperatures, Levels: f.opt.Levels,
		Intercepts: make([]float32, m*f.clusters), Slopes: make([]float32, m*f.clusters*f.Dim), Widths: make([]float32, m*f.clusters*q),
		Directions: f.directions, Squares: make([]float32, 2*m*f.clusters), Cosines: f.cosines,
	}
	// A cluster without contexts to fit to has the mean for its tail. If its candidates are all
	// labels there is no tail, and this value is not used.
	for k, mean := range f.means() {
		for t := range f.clusters {
			c.Intercepts[k*f.clusters+t] = float32(mean)
		}
	}
	// The errors of the contexts held out of each cluster, at each temperature: absolute errors of
	// the log of the tail, and of log Z.
	away, awayZ := make([][][]float64, m), make([][][]float64, m)
	for k := range m {
		away[k], awayZ[k] = make([][]float64, f.clusters), make([][]float64, f.clusters)
	}
	done := f.Report.Part(stage.Tail, "coefficients", "clusters", f.clusters)
	err := parallel.Each(ctx, f.Threads, f.clusters, 1, done, func(_, t, _ int) error {
		if len(f.fitted[t]) == 0 {
			return nil
		}
		x := f.coefficients(t)
		for k := range m {
			row := k*f.clusters + t
			c.Intercepts[row] = float32(x.a[k])
			slope := c.Slopes[row*f.Dim:][:f.Dim]
			for i := range slope {
				slope[i] = float32(x.u[k*f.width+i])
			}
			squares := c.Squares[2*row:][:2]
			for i := range squares {
				squares[i] = float32(x.u[k*f.width+f.Dim+i] * f.scales[i])
			}
			buffer := f.Buffer()
			for _, i := range f.held[t] {
				var product [1]float64
				kernels.Float32Rows(slope, f.Dim).RefScan(product[:], nil, f.Row(i, buffer))
				head, log := f.heads[f.at(i, k)], f.logs[f.at(i, k)]
				guess := product[0] + float64(c.Intercepts[row])
				guess += float64(float64(squares[0])*f.squares[i][0]) + float64(float64(squares[1])*f.squares[i][1])
				away[k][t] = append(away[k][t], math.Abs(guess-log))
				awayZ[k][t] = append(awayZ[k][t], kernels.LogSumExp([]float64{head, guess})-kernels.LogSumExp([]float64{head, log}))
			}
		}
		return nil
	})
	fit := &Fit{Ridge: f.ridge}
	for t := range f.clusters {
		fit.Fitted, fit.HeldOut = fit.Fitted+len(f.fitted[t]), fit.HeldOut+len(f.held[t])
	}
	n := float64(max(fit.HeldOut, 1))
	for k, temperature := range f.opt.Temperatures {
		fit.Errors = append(fit.Errors, Error{temperature, math.Sqrt(sumOfSquares(away[k]) / n), math.Sqrt(sumOfSquares(awayZ[k]) / n)})
		conformal(c.Widths[k*f.clusters*q:][:f.clusters*q], away[k], f.opt.Levels)
	}
	return c, fit, err
}

func sumOfSquares(lists [][]float64) (sum float64) {
	for _, list := range lists {
		own := 0.0
		for _, x := range list {
			own += float64(x * x)
		}
		sum += own
	}
	return sum
}

// coefficients fits a cluster. The slopes are the slopes of all clusters plus a ridge regression of
// the residuals.
func (f *fit) coefficients(t int) *coefficients {
	ids := f.fitted[t]
	c := newRegression(f.rows(ids), f.residuals(ids), len(ids), f.width).solve(f.ridge)
	for j, u := range f.all.u {
		c.u[j] += u
	}
	return c
}

// means are the means of the logs over all contexts fitted, at each temperature; 0
// if there are none.
func (f *fit) means() []float64 {
	sums, n := make([]float64, f.temps), 0
	for t := range f.clusters {
		for _, i := range f.fitted[t] {
			for k := range sums {
				sums[k] += f.logs[f.at(i, k)]
			}
			n++
		}
	}
	for k := range sums {
		sums[k] /= float64(max(n, 1))
	}
	return sums
}
