// Package tail fits what labels outside the candidates weigh: a regression of the log of
// their sum on the context.
package tail

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/internal/router"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
	"github.com/learning-to-screen/l2s/train/internal/corpus"
	"github.com/learning-to-screen/l2s/train/internal/rng"
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
	for i, t := range o.Temperatures {
		if !finite(t) || t <= 0 || i > 0 && t <= o.Temperatures[i-1] {
			return fmt.Errorf("tail: temperatures: found %v at %d, want finite numbers above 0, ascending", t, i)
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
	Fitted  int
	HeldOut int
	Ridge   float64
	Errors  []Error
}

// Error are root mean squares over the contexts held out at one temperature.
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

// Keeper keeps sums under way. Load returns the last ones, or nil.
type Keeper interface {
	Load() []float64
	Save([]float64) error
}

// Find fits the tail of a screen on contexts, whose cells are given. See train.FitTail.
func Find(ctx context.Context, c *corpus.Corpus, s *Screen, cells []uint32, opt *Options, keep Keeper) (*screen.Tail, *Fit, error) {
	f := &fit{Corpus: c, screen: s, cells: cells, opt: opt, clusters: s.Router.Clusters(), temps: len(opt.Temperatures)}
	f.draw()
	if err := f.square(ctx); err != nil {
		return nil, nil, err
	}
	if err := f.measure(ctx, keep); err != nil {
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
	// within them.
	logs, heads []float64
}

// draw draws the contexts of each cluster.
func (f *fit) draw() {
	cluster := make([]uint32, f.N)
	var open []uint32
	for i, cell := range f.cells {
		cluster[i] = uint32(f.screen.Router.ClusterOf(int(cell)))
		if len(f.candidates(cell)) < f.Labels {
			open = append(open, uint32(i))
		}
	}
	p := corpus.NewPartition(open, cluster, f.clusters)
	f.fitted, f.held = make([][]uint32, f.clusters), make([][]uint32, f.clusters)
	for t := range f.clusters {
		random, ids := rng.New(f.Seed, rng.Tail, uint64(t)), slices.Clone(p.Members(t))
		random.Shuffle(ids)
		n := int(math.Ceil(float64(f.opt.Share * float64(len(ids)))))
		ids = ids[:min(n, f.opt.PerCluster)]
		held := int(float64(f.opt.HeldOut * float64(len(ids))))
		f.held[t], f.fitted[t] = ids[:held:held], ids[held:]
		slices.Sort(f.held[t])
		slices.Sort(f.fitted[t])
	}
}

// candidates are those of a cell.
func (f *fit) candidates(cell uint32) []uint32 {
	list := &f.screen.Lists[cell]
	n, _ := slices.BinarySearchFunc(list.Shares, f.screen.Share, func(s, share uint16) int {
		if s >= share {
			return -1
		}
		return 1
	})
	return list.IDs[:n]
}

// members are the contexts of a cluster that were drawn.
func (f *fit) members(t int) []uint32 { return slices.Concat(f.fitted[t], f.held[t]) }

// square finds the directions, and the squares of the contexts drawn. As features the
// squares are scaled such that the ridge, which is in proportion to the variance of an
// element of a context, hardly weighs on them.
func (f *fit) square(ctx context.Context) (err error) {
	n := min(f.opt.Directions, f.Dim, f.Labels)
	if f.directions, err = directions(ctx, f.screen.Layer, n, f.Seed, f.Threads); err != nil {
		return err
	}
	f.width, f.squares = f.Dim+2, make([][2]float64, f.N)
	type sums struct {
		elements float64
		squares  [2]float64
	}
	within := make([]sums, f.clusters) // squared distances from the means
	err = parallel.Each(ctx, f.Threads, f.clusters, 1, nil, func(_, t, _ int) error {
		ids := f.members(t)
		mean, means := make([]float64, f.Dim), [2]float64{}
		for _, i := range ids {
			h := f.Row(i)
			f.squares[i][0], f.squares[i][1] = screen.SquaresOf(f.directions, h)
			for j, x := range h {
				mean[j] += float64(x) / float64(len(ids))
			}
			for j, x := range f.squares[i] {
				means[j] += x / float64(len(ids))
			}
		}
		for _, i := range ids {
			for j, x := range f.Row(i) {
				away := float64(x) - mean[j]
				within[t].elements += float64(away * away)
			}
			for j, x := range f.squares[i] {
				away := x - means[j]
				within[t].squares[j] += float64(away * away)
			}
		}
		return nil
	})
	var all sums
	for _, w := range within {
		all.elements += w.elements / float64(f.Dim)
		for j, x := range w.squares {
			all.squares[j] += x
		}
	}
	for j, x := range all.squares {
		if x > 0 && finite(x) {
			f.scales[j] = 10 * math.Sqrt(all.elements/x)
		}
	}
	return err
}

// features are the elements of a context and its scaled squares, in dst.
func (f *fit) features(dst []float32, i uint32) []float32 {
	dst = append(dst[:0], f.Row(i)...)
	for j, x := range f.squares[i] {
		dst = append(dst, float32(x*f.scales[j]))
	}
	return dst
}

// chunk is the number of contexts that are searched together, and parts the number of parts
// of the work after each of which its state is kept.
const (
	chunk = 64
	parts = 16
)

// leastTail is the least part of the sum over all labels that a tail is told apart from
// nothing.
const leastTail = 1e-12

// measure computes the sums within the candidates of each context drawn, and outside them.
func (f *fit) measure(ctx context.Context, keep Keeper) error {
	var drawn []uint32
	f.place = make([]int32, f.N)
	for i := range f.place {
		f.place[i] = -1
	}
	for t := range f.clusters {
		for _, i := range f.members(t) {
			f.place[i] = int32(len(drawn))
			drawn = append(drawn, i)
		}
	}
	// The logs of the sums over all labels, in the order of drawn.
	n := len(drawn) * f.temps
	f.logs, f.heads = make([]float64, 0, n), make([]float64, n)
	if left := keep.Load(); len(left) <= n && len(left)%f.temps == 0 {
		f.logs = append(f.logs, left...)
	}
	type scratch struct {
		*softmax.Searcher
		queries []*softmax.Query
		answers []softmax.Answer
	}
	workers := make([]scratch, f.Threads)
	for i := range workers {
		workers[i] = scratch{softmax.NewSearcher(f.screen.Layer), corpus.NewQueries(chunk, f.Dim), make([]softmax.Answer, chunk)}
	}
	sums := func(w *scratch, dst []float64, ids []uint32, among softmax.Labels) error {
		for j, i := range ids {
			if err := w.queries[j].Set(f.Row(i)); err != nil {
				return fmt.Errorf("context %d: %w", i, err)
			}
		}
		for k, temperature := range f.opt.Temperatures {
			req := softmax.Request{Among: among, LogSum: true, Temperature: temperature}
			if err := w.Find(nil, w.answers[:len(ids)], w.queries[:len(ids)], &req); err != nil {
				return err
			}
			for j, a := range w.answers[:len(ids)] {
				dst[j*f.temps+k] = a.LogSum
			}
		}
		return nil
	}
	done := f.Report.Stage(Stage, 0, len(drawn))
	before := len(f.logs) / f.temps
	if before > 0 {
		f.Report.Message(fmt.Sprintf("tail: continuing after %d of %d contexts", before, len(drawn)))
		if done != nil {
			done(before)
		}
	}
	for part := range parts {
		end := (part + 1) * len(drawn) / parts
		ids := drawn[min(before, end):end]
		if len(ids) == 0 {
			continue
		}
		f.logs = f.logs[:end*f.temps]
		first := end - len(ids)
		err := parallel.Each(ctx, f.Threads, len(ids), chunk, done, func(worker, lo, hi int) error {
			return sums(&workers[worker], f.logs[(first+lo)*f.temps:], ids[lo:hi], softmax.Labels{})
		})
		if err != nil {
			return err
		}
		before = end
		if err := keep.Save(f.logs); err != nil {
			return err
		}
	}
	return parallel.Each(ctx, f.Threads, len(drawn), chunk, nil, func(worker, lo, hi int) error {
		for j := lo; j < hi; j++ {
			at := f.heads[j*f.temps:][:f.temps]
			if err := sums(&workers[worker], at, drawn[j:j+1], softmax.Only(f.candidates(f.cells[drawn[j]]))); err != nil {
				return err
			}
			for k, head := range at {
				all := &f.logs[j*f.temps+k]
				*all += kernels.Log(max(leastTail, 1-kernels.Exp(head-*all)))
			}
		}
		return nil
	})
}

// The choice of the ridge: factors of the mean variance of an element of a context.
var ridges = [...]float64{0.1, 1, 10, 100, 1000, 10000}

const (
	ridgeFolds    = 4
	ridgeClusters = 32
)

// targets are the logs of a context drawn, and head its sum within the candidates at a
// temperature.
func (f *fit) targets(i uint32) []float64 { return f.logs[int(f.place[i])*f.temps:][:f.temps] }

func (f *fit) head(i uint32, k int) float64 { return f.heads[int(f.place[i])*f.temps+k] }

// chooseRidge returns the weight with the least sum of squared errors in
// cross-validation over runs of neighbouring contexts.
func (f *fit) chooseRidge(ctx context.Context) (float64, error) {
	var full []int
	for t := range f.clusters {
		if len(f.fitted[t]) >= 2*ridgeFolds {
			full = append(full, t)
		}
	}
	if len(full) == 0 {
		return 1, nil
	}
	var chosen []int
	for i := range min(len(full), ridgeClusters) {
		chosen = append(chosen, full[i*len(full)/min(len(full), ridgeClusters)])
	}
	type result struct {
		variance, n float64
		errors      [len(ridges)]float64
	}
	results := make([]result, len(chosen))
	run := func(scale float64) error {
		return parallel.Each(ctx, f.Threads, len(chosen), 1, nil, func(_, at, _ int) error {
			t := chosen[at]
			ids := f.fitted[t]
			sums, buffer := make([]*equations, ridgeFolds), make([]float32, 0, f.width)
			all := newEquations(f.width, f.temps)
			ends := func(fold int) (lo, hi int) {
				return fold * len(ids) / ridgeFolds, (fold + 1) * len(ids) / ridgeFolds
			}
			for fold := range sums {
				sums[fold] = newEquations(f.width, f.temps)
				for lo, hi := ends(fold); lo < hi; lo++ {
					sums[fold].add(f.features(buffer, ids[lo]), f.targets(ids[lo]), 1)
				}
				all.plus(sums[fold], 1)
			}
			r := &results[at]
			if scale == 0 {
				for i, x := range all.h[:f.Dim] {
					r.variance += all.hh[i*f.width+i] - float64(x*x)/all.n
				}
				r.n = all.n
				return nil
			}
			c := newCoefficients(f.width, f.temps)
			for i, ridge := range ridges {
				if err := ctx.Err(); err != nil {
					return err
				}
				for fold, part := range sums {
					all.plus(part, -1)
					c.solve(all, float64(ridge*scale))
					all.plus(part, 1)
					for lo, hi := ends(fold); lo < hi; lo++ {
						x := f.features(buffer, ids[lo])
						for k, y := range f.targets(ids[lo]) {
							e := y - c.predict(k, x)
							r.errors[i] += float64(e * e)
						}
					}
				}
			}
			return nil
		})
	}
	if err := run(0); err != nil {
		return 0, err
	}
	variance, n := 0.0, 0.0
	for _, r := range results {
		variance, n = variance+r.variance, n+r.n
	}
	scale := variance / (n * float64(f.Dim))
	if !(scale > 0) {
		return 1, nil // contexts that do not differ have no slope
	}
	if err := run(scale); err != nil {
		return 0, err
	}
	best, least := 0, math.Inf(1)
	for i := range ridges {
		sum := 0.0
		for _, r := range results {
			sum += r.errors[i]
		}
		if sum < least {
			best, least = i, sum
		}
	}
	return float64(ridges[best] * scale), nil
}

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
	type sums struct{ tail, logZ []float64 }
	errors := make([]sums, f.clusters)
	err := parallel.Each(ctx, f.Threads, f.clusters, 1, nil, func(_, t, _ int) error {
		if len(f.fitted[t]) == 0 {
			return nil
		}
		x, shifts := f.coefficients(t, ridge)
		e := sums{make([]float64, m), make([]float64, m)}
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
			away := make([]float64, len(f.held[t]))
			for j, i := range f.held[t] {
				var product [1]float64
				kernels.Float32Rows(slope, f.Dim).RefScan(product[:], nil, f.Row(i))
				head, tail := f.head(i, k), f.targets(i)[k]
				guess := product[0] + float64(c.Intercepts[k*cells+int(f.cells[i])])
				guess += float64(float64(squares[0])*f.squares[i][0]) + float64(float64(squares[1])*f.squares[i][1])
				away[j] = math.Abs(guess - tail)
				e.tail[k] += float64(away[j] * away[j])
				z := kernels.LogSumExp([]float64{head, guess}) - kernels.LogSumExp([]float64{head, tail})
				e.logZ[k] += float64(z * z)
			}
			conformal(c.Widths[row*q:][:q], away, f.opt.Levels)
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
				conformal(c.Widths[(k*f.clusters+t)*q:][:q], nil, f.opt.Levels)
			}
			continue
		}
		fit.Fitted, fit.HeldOut = fit.Fitted+len(f.fitted[t]), fit.HeldOut+len(f.held[t])
		for k := range e.tail {
			fit.Errors[k].Tail += e.tail[k]
			fit.Errors[k].LogZ += e.logZ[k]
		}
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

// coefficients fits a cluster, and the shifts of its cells, which are the mean errors of a
// first regression. After it a second one, at each temperature, weighs a context by the square
// of the share of the sum over all labels that the first gives to its tail: to first order it
// is the error of log Z that counts then, not the error of tails that hardly matter. The
// intercept is then moved so that the mean of the error of log Z is 0: log Z is convex in the
// log of the tail, so that errors of either sign would raise it, and perplexities with it.
func (f *fit) coefficients(t int, ridge float64) (*coefficients, map[uint32]*shift) {
	ids, first, all := f.fitted[t], newCoefficients(f.width, f.temps), newCoefficients(f.width, f.temps)
	s, buffer := newEquations(f.width, f.temps), make([]float32, 0, f.width)
	for _, i := range ids {
		s.add(f.features(buffer, i), f.targets(i), 1)
	}
	first.solve(s, ridge)
	shifts := map[uint32]*shift{}
	guesses := make([]float64, len(ids)*f.temps)
	for j, i := range ids {
		at := shifts[f.cells[i]]
		if at == nil {
			at = &shift{sums: make([]float64, f.temps)}
			shifts[f.cells[i]] = at
		}
		at.n++
		x := f.features(buffer, i)
		for k := range f.temps {
			guesses[j*f.temps+k] = first.predict(k, x)
			at.sums[k] += f.targets(i)[k] - guesses[j*f.temps+k]
		}
	}
	one, c := newEquations(f.width, 1), newCoefficients(f.width, 1)
	weights, slopes, heads := make([]float64, len(ids)), make([]float64, len(ids)), make([]float64, len(ids))
	for k := range f.temps {
		mean := 0.0
		for j, i := range ids {
			heads[j] = f.head(i, k)
			share := tailShare(heads[j], guesses[j*f.temps+k]+shifts[f.cells[i]].at(k))
			weights[j] = float64(share*share) + leastWeight
			mean += weights[j] / float64(len(ids))
		}
		one.clear()
		for j, i := range ids {
			y := f.targets(i)[k] - shifts[f.cells[i]].at(k)
			one.add(f.features(buffer, i), []float64{y}, float32(weights[j]/mean))
		}
		c.solve(one, ridge)
		copy(all.u[k*f.width:][:f.width], c.u)
		a := c.a[0]
		c.a[0] = 0
		for j, i := range ids {
			slopes[j] = c.predict(0, f.features(buffer, i)) + shifts[f.cells[i]].at(k)
		}
		all.a[k] = centre(a, slopes, heads, func(j int) float64 { return f.targets(ids[j])[k] })
	}
	return all, shifts
}

// means are the means of the logs over all contexts fitted, at each temperature; 0
// if there are none.
func (f *fit) means() []float64 {
	sums, n := make([]float64, f.temps), 0
	for t := range f.clusters {
		for _, i := range f.fitted[t] {
			for k, y := range f.targets(i) {
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
