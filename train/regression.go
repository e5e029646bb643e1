package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/internal/router"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
	"github.com/learning-to-screen/l2s/train/internal/member"
	"github.com/learning-to-screen/l2s/train/internal/rng"
)

// TailOptions say how [FitRegression] estimates what the labels outside the candidate
// sets weigh.
type TailOptions struct {
	// Temperatures are those that coefficients are fitted for, ascending, above 0.
	// A query between two of them interpolates.
	Temperatures []float64 `json:"temperatures"`
	// Levels are the levels of confidence of the intervals, ascending, above 0 and
	// below 1.
	Levels []float64 `json:"levels"`
	// PerCluster bounds the contexts of a cluster that are drawn, at least 1.
	PerCluster int `json:"per_cluster"`
	// HeldOut is the share of the contexts of a cluster that the intervals come from,
	// and not the coefficients: at least 0, below 1.
	HeldOut float64 `json:"held_out"`
	// Directions is the number of directions of the squares, 0 to 64; 0 for estimates
	// without squares. A layer of fewer labels or a lower dimension has fewer.
	Directions int `json:"directions"`
}

// maxDirections bounds TailOptions.Directions.
const maxDirections = 64

// DefaultTailOptions asks for the temperatures 0.7 and 1, for intervals at confidence
// 0.8 to 0.995, for 2,000 contexts of a cluster, of which a fifth is
// held out, and for 8 directions.
func DefaultTailOptions() TailOptions {
	return TailOptions{Temperatures: []float64{0.7, 1}, Levels: []float64{0.8, 0.9, 0.95, 0.975, 0.99, 0.995}, PerCluster: 2000, HeldOut: 0.2, Directions: 8}
}

func (o *TailOptions) check() error {
	switch {
	case len(o.Temperatures) == 0:
		return fmt.Errorf("tail: temperatures: found none, want at least 1")
	case o.PerCluster < 1:
		return fmt.Errorf("tail: contexts of a cluster: found %d, want at least 1", o.PerCluster)
	case !(o.HeldOut >= 0 && o.HeldOut < 1):
		return fmt.Errorf("tail: held out: found %v, want at least 0 and below 1", o.HeldOut)
	}
	if o.Directions < 0 || o.Directions > maxDirections {
		return fmt.Errorf("tail: directions: found %d, want 0 to %d", o.Directions, maxDirections)
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

// TailFit says how well a regression estimates, on the contexts held out. It stands in
// the record of the screen, under the name "tail_fit".
type TailFit struct {
	Options TailOptions `json:"options"`
	// Fitted is the number of contexts that the coefficients come from, HeldOut the number
	// of contexts that the intervals and the figures come from.
	Fitted  int `json:"fitted_contexts"`
	HeldOut int `json:"held_out_contexts"`
	// Ridge is the weight of the squares of the slopes that cross-validation chose.
	Ridge float64 `json:"ridge"`
	// Errors are those at each temperature.
	Errors []TailError `json:"errors"`
}

// TailError are root mean squares over the contexts held out at one temperature.
type TailError struct {
	Temperature float64 `json:"temperature"`
	// Tail is the error of the log of the tail, LogZ the error of the log of the
	// sum over all labels.
	Tail float64 `json:"log_tail"`
	LogZ float64 `json:"log_z"`
}

// FitRegression returns the screen with a regression of its tail, [screen.Regression],
// instead of any that it has, and how well it estimates, which its record holds too.
//
// For each cluster it draws contexts among those that fall into it and computes
// the log of the sum of e^(x/T) over the labels outside the set, by the intervals of the
// int8 codes. A ridge regression on most of them gives a_t + u_t.h + c_t ||h||^2 + e_t
// sum_k (g_k.h)^2; its weight, one for all clusters, is chosen by 4-fold cross-validation
// in at most 32 of them. The directions g_k are the leading eigenvectors of the covariance
// of the rows of W, times the square roots of their eigenvalues, so that the last sum is
// about the variance of the logits over the labels. The
// others give the half-widths, for each cluster by its own (split conformal prediction;
// Lei, G'Sell, Rinaldo, Tibshirani and Wasserman 2018): at level p, of n errors in order,
// the one at ceil((n+1) p), which a further context exceeds with a probability of at
// most 1 - p. If there is none of that number nothing is said: +Inf.
//
// That promise is about contexts that are drawn as those given, independently, and that
// had no part in training the screen. Contexts of training serve well, but their sets
// know them: figures are then of a slightly better screen.
//
// The result has the same bits for any number of threads and on every CPU. Errors:
// options out of range, a model that does not go with the layer, contexts that are not
// whole rows, a NaN or Inf, ctx cancelled.
func FitRegression(ctx context.Context, m *screen.Model, layer *softmax.Layer, contexts []float32, opt TailOptions, run RunOptions) (fitted *screen.Model, fit *TailFit, err error) {
	err = outward(func() error {
		d, err := newData(layer, contexts, &Options{Seed: run.Seed, Threads: run.Threads, Progress: run.Progress})
		if err != nil {
			return err
		}
		if err := opt.check(); err != nil {
			return err
		}
		if _, err := screen.NewSearcher(m, layer); err != nil { // it does not go with the layer
			return err
		}
		fitted, fit, err = fitRegression(ctx, d, m, layer, &opt, nil)
		return err
	})
	return fitted, fit, err
}

// RunOptions say how work is done that the result does not depend on, but for the seed.
type RunOptions struct {
	Seed     uint64
	Threads  int // 0 means runtime.GOMAXPROCS(0)
	Progress func(Progress)
}

// tailFitName is the member of the record that holds a TailFit.
const tailFitName = "tail_fit"

// addRegression fits the tail of each screen, if the options want it.
func addRegression(ctx context.Context, d *data, layer *softmax.Layer, models []*screen.Model, opt *Options, c *checkpoint) error {
	if opt.Tail == nil {
		return nil
	}
	if opt.TailContexts != nil {
		report := d.report
		var err error
		if d, err = newData(layer, opt.TailContexts, opt); err != nil {
			return fmt.Errorf("tail: %w", err)
		}
		d.report = report
		if err := d.identify(ctx); err != nil {
			return fmt.Errorf("tail: %w", err)
		}
	}
	for i, m := range models {
		kept, err := c.tail(d, m, opt.Tail)
		if err != nil {
			return err
		}
		fitted, fit, err := fitRegression(ctx, d, m, layer, opt.Tail, kept)
		if err != nil {
			return err
		}
		d.report.message(fmt.Sprintf("tail: log Z of contexts held out within %.3f (root mean square)", fit.Errors[len(fit.Errors)-1].LogZ))
		models[i] = fitted
	}
	return nil
}

func fitRegression(ctx context.Context, d *data, m *screen.Model, layer *softmax.Layer, opt *TailOptions, kept *tailState) (*screen.Model, *TailFit, error) {
	f := &tailFit{kept: kept, data: d, model: m, layer: layer, opt: opt, clusters: m.Clusters(), temps: len(opt.Temperatures), width: d.dim}
	if err := f.draw(ctx); err != nil {
		return nil, nil, err
	}
	if err := f.square(ctx); err != nil {
		return nil, nil, err
	}
	if err := f.measure(ctx); err != nil {
		return nil, nil, err
	}
	ridge, err := f.chooseRidge(ctx)
	if err != nil {
		return nil, nil, err
	}
	c, fit, err := f.solve(ctx, ridge)
	if err != nil {
		return nil, nil, err
	}
	r, err := screen.NewRegression(c)
	if err != nil { // the fit has left the finite numbers
		return nil, nil, fmt.Errorf("%w: found contexts and a layer whose numbers are too large or too small for a regression: %w", ErrTail, err)
	}
	record, err := member.Set(m.Record(), tailFitName, fit)
	if err != nil {
		return nil, nil, fmt.Errorf("record: %w", err)
	}
	fitted, err := m.WithRegression(r, record)
	return fitted, fit, err
}

// ErrTail is the cause of the error of a tail that the contexts and the layer have none of.
var ErrTail = errors.New("tail")

// tailFit is a fit under way.
type tailFit struct {
	*data
	kept     *tailState
	model    *screen.Model
	layer    *softmax.Layer
	opt      *TailOptions
	clusters int
	temps    int
	width    int // of the features of a context: its elements, and its squares

	directions []float32    // of the squares, or nil
	squares    [][2]float64 // of each context drawn: ||h||^2 and the sum of (g_k.h)^2
	scales     [2]float64   // of the squares as features

	// The contexts of cluster t: first those to fit, then those held out, each
	// ascending.
	fit, held [][]uint32
	// For each of them and each temperature the log of the sum outside the set, and
	// of the held-out ones the sum within the set. Nil if the set has all labels.
	logs, heads [][]float64
	spread      float64 // mean variance of an element of a context within a cluster
}

// members are the contexts of a cluster, as in logs.
func (f *tailFit) members(t int) []uint32 { return slices.Concat(f.fit[t], f.held[t]) }

// draw draws the contexts of each cluster.
func (f *tailFit) draw(ctx context.Context) error {
	r, err := router.New(f.model.ClusterWeights(), f.model.GroupWeights(), f.model.GroupSizes(), f.model.GroupClusters(), f.dim)
	if err != nil {
		return err
	}
	cluster := make([]uint32, f.n)
	err = f.eachRoute(ctx, r, 1, f.report.stage(StageAssign, 0, f.n), func(_, i int, best []softmax.Prediction) { cluster[i] = best[0].ID })
	if err != nil {
		return err
	}
	p := newPartition(f.all(), cluster, f.clusters)
	f.fit, f.held = make([][]uint32, f.clusters), make([][]uint32, f.clusters)
	for t := range f.clusters {
		random, ids := rng.New(f.seed, rng.Tail, uint64(t)), slices.Clone(p.members(t))
		random.Shuffle(ids)
		ids = ids[:min(len(ids), f.opt.PerCluster)]
		held := int(float64(f.opt.HeldOut * float64(len(ids))))
		f.held[t], f.fit[t] = ids[:held:held], ids[held:]
		slices.Sort(f.held[t])
		slices.Sort(f.fit[t])
	}
	return nil
}

// square finds the directions, and the squares of the contexts drawn. As features the
// squares are scaled such that the ridge, which is in proportion to the variance of an
// element of a context, hardly weighs on them.
func (f *tailFit) square(ctx context.Context) (err error) {
	n := min(f.opt.Directions, f.dim, f.universe)
	if n == 0 {
		return nil
	}
	if f.directions, err = directions(ctx, f.layer, n, f.seed, f.threads); err != nil {
		return err
	}
	f.width, f.squares = f.dim+2, make([][2]float64, f.n)
	type sums struct {
		elements float64
		squares  [2]float64
	}
	within := make([]sums, f.clusters) // squared distances from the means
	err = parallel.Each(ctx, f.threads, f.clusters, 1, nil, func(_, t, _ int) error {
		ids := f.members(t)
		mean, means := make([]float64, f.dim), [2]float64{}
		for _, i := range ids {
			h := f.row(i)
			f.squares[i][0], f.squares[i][1] = screen.SquaresOf(f.directions, h)
			for j, x := range h {
				mean[j] += float64(x) / float64(len(ids))
			}
			for j, x := range f.squares[i] {
				means[j] += x / float64(len(ids))
			}
		}
		for _, i := range ids {
			for j, x := range f.row(i) {
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
		all.elements += w.elements / float64(f.dim)
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
func (f *tailFit) features(dst []float32, i uint32) []float32 {
	if f.width == f.dim {
		return f.row(i)
	}
	dst = append(dst[:0], f.row(i)...)
	for j, x := range f.squares[i] {
		dst = append(dst, float32(x*f.scales[j]))
	}
	return dst
}

// measure computes the sums inside and outside the set of each context drawn.
func (f *tailFit) measure(ctx context.Context) error {
	f.logs, f.heads = make([][]float64, f.clusters), make([][]float64, f.clusters)
	total := 0
	for t := range f.clusters {
		total += len(f.fit[t]) + len(f.held[t])
	}
	type scratch struct {
		*softmax.Searcher
		queries []*softmax.Query
		answers []softmax.Answer
		set     *bitset.Set
	}
	threads := parallel.Threads(f.threads, f.clusters)
	workers := make([]scratch, threads)
	for i := range workers {
		workers[i] = scratch{softmax.NewSearcher(f.layer), newQueries(labelChunk, f.dim), make([]softmax.Answer, labelChunk), bitset.New(f.universe)}
	}
	var open []int // the clusters whose sums are not kept
	kept, before := 0, 0
	for t := range f.clusters {
		n := len(f.fit[t]) + len(f.held[t])
		var ok bool
		if f.logs[t], f.heads[t], ok = f.kept.sums(t, n*f.temps); !ok {
			open = append(open, t)
		} else if n > 0 {
			kept, before = kept+1, before+n
		}
	}
	if kept > 0 {
		f.report.message(fmt.Sprintf("tail: continuing after %d of %d clusters", kept, f.clusters))
	}
	done := f.report.stage(StageTail, 0, total)
	if done != nil && before > 0 {
		done(before)
	}
	cluster := func(worker, t int) error {
		w, set, ids := &workers[worker], f.model.Candidates(t), f.members(t)
		if len(set) == f.universe || len(ids) == 0 {
			return nil
		}
		w.set.Clear()
		for _, id := range set {
			w.set.Add(id)
		}
		f.logs[t], f.heads[t] = make([]float64, len(ids)*f.temps), make([]float64, len(ids)*f.temps)
		for lo := 0; lo < len(ids); lo += labelChunk {
			if err := ctx.Err(); err != nil {
				return err
			}
			n := min(labelChunk, len(ids)-lo)
			for j, q := range w.queries[:n] {
				if err := q.Set(f.row(ids[lo+j])); err != nil {
					return fmt.Errorf("context %d: %w", ids[lo+j], err)
				}
			}
			for k, temperature := range f.opt.Temperatures {
				for _, sum := range []struct {
					dst []float64
					req softmax.Request
				}{
					{f.logs[t], softmax.Request{Banned: w.set}},
					{f.heads[t], softmax.Request{Among: softmax.Only(set)}},
				} {
					sum.req.LogSum, sum.req.Temperature = true, temperature
					if err := w.Find(nil, w.answers[:n], w.queries[:n], &sum.req); err != nil {
						return err
					}
					for j, a := range w.answers[:n] {
						sum.dst[(lo+j)*f.temps+k] = a.LogSum
					}
				}
			}
			if done != nil {
				done(n)
			}
		}
		return nil
	}
	for part := range tailParts {
		ids := open[part*len(open)/tailParts : (part+1)*len(open)/tailParts]
		if len(ids) == 0 {
			continue
		}
		if err := parallel.Each(ctx, threads, len(ids), 1, nil, func(worker, i, _ int) error { return cluster(worker, ids[i]) }); err != nil {
			return err
		}
		for _, t := range ids {
			f.kept.add(t, f.logs[t], f.heads[t])
		}
		if err := f.kept.save(); err != nil {
			return err
		}
	}
	return nil
}

// tailParts is the number of parts of the clusters after each of which a run keeps its state.
const tailParts = 16

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

// The choice of the ridge: factors of the mean variance of an element of a context.
var ridges = [...]float64{0.1, 1, 10, 100, 1000, 10000}

const (
	ridgeFolds    = 4
	ridgeClusters = 32
)

// targets are the logs of context j of cluster t.
func (f *tailFit) targets(t, j int) []float64 { return f.logs[t][j*f.temps:][:f.temps] }

// chooseRidge returns the weight with the least sum of squared errors in
// cross-validation over runs of neighbouring contexts.
func (f *tailFit) chooseRidge(ctx context.Context) (float64, error) {
	var full []int
	for t := range f.clusters {
		if f.logs[t] != nil && len(f.fit[t]) >= 2*ridgeFolds {
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
		return parallel.Each(ctx, f.threads, len(chosen), 1, nil, func(_, at, _ int) error {
			t := chosen[at]
			ids := f.fit[t]
			sums, buffer := make([]*equations, ridgeFolds), make([]float32, 0, f.width)
			all := newEquations(f.width, f.temps)
			ends := func(fold int) (lo, hi int) {
				return fold * len(ids) / ridgeFolds, (fold + 1) * len(ids) / ridgeFolds
			}
			for fold := range sums {
				sums[fold] = newEquations(f.width, f.temps)
				for lo, hi := ends(fold); lo < hi; lo++ {
					sums[fold].add(f.features(buffer, ids[lo]), f.targets(t, lo), 1)
				}
				all.plus(sums[fold], 1)
			}
			r := &results[at]
			if scale == 0 {
				for i, x := range all.h[:f.dim] {
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
						for k, y := range f.targets(t, lo) {
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
	scale := variance / (n * float64(f.dim))
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
func (f *tailFit) solve(ctx context.Context, ridge float64) (screen.RegressionConfig, *TailFit, error) {
	m, q := f.temps, len(f.opt.Levels)
	c := screen.RegressionConfig{
		Clusters: f.clusters, Temperatures: f.opt.Temperatures, Levels: f.opt.Levels,
		Intercepts: make([]float32, m*f.clusters), Slopes: make([]float32, m*f.clusters*f.dim), Widths: make([]float32, m*f.clusters*q),
		Directions: f.directions,
	}
	if f.directions != nil {
		c.Squares = make([]float32, 2*m*f.clusters)
	}
	type sums struct{ tail, logZ []float64 }
	errors := make([]sums, f.clusters)
	err := parallel.Each(ctx, f.threads, f.clusters, 1, nil, func(_, t, _ int) error {
		if f.logs[t] == nil {
			return nil
		}
		x := f.coefficients(t, ridge)
		held := f.held[t]
		e := sums{make([]float64, m), make([]float64, m)}
		for k := range m {
			row := k*f.clusters + t
			c.Intercepts[row] = float32(x.a[k])
			slope := c.Slopes[row*f.dim:][:f.dim]
			for i := range slope {
				slope[i] = float32(x.u[k*f.width+i])
			}
			var squares [2]float32
			for i := range f.width - f.dim {
				squares[i] = float32(x.u[k*f.width+f.dim+i] * f.scales[i])
				c.Squares[2*row+i] = squares[i]
			}
			away := make([]float64, len(held))
			for j, i := range held {
				var product [1]float64
				kernels.Float32Rows(slope, f.dim).RefScan(product[:], nil, f.row(i))
				at := (len(f.fit[t])+j)*m + k
				head, tail, guess := f.heads[t][at], f.logs[t][at], product[0]+float64(c.Intercepts[row])
				if f.directions != nil {
					guess += float64(float64(squares[0])*f.squares[i][0]) + float64(float64(squares[1])*f.squares[i][1])
				}
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
	fit := &TailFit{Options: *f.opt, Ridge: ridge, Errors: make([]TailError, m)}
	means := f.means()
	for t, e := range errors {
		if f.logs[t] == nil {
			// No context, or a set of all labels, which has no tail whatever the row
			// says.
			for k, mean := range means {
				row := k*f.clusters + t
				c.Intercepts[row] = float32(mean)
				conformal(c.Widths[row*q:][:q], nil, f.opt.Levels)
			}
			continue
		}
		fit.Fitted, fit.HeldOut = fit.Fitted+len(f.fit[t]), fit.HeldOut+len(f.held[t])
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

// coefficients fits a cluster. After a first regression a second one, at each
// temperature, weighs a context by the square of the share of the sum over all labels that
// the first gives to its tail: to first order it is the error of log Z that counts then,
// not the error of tails that hardly matter. The intercept is then moved so that the mean of
// the error of log Z is 0: log Z is convex in the log of the tail, so that errors of
// either sign would raise it, and perplexities with it.
func (f *tailFit) coefficients(t int, ridge float64) *coefficients {
	ids, first, all := f.fit[t], newCoefficients(f.width, f.temps), newCoefficients(f.width, f.temps)
	s, buffer := newEquations(f.width, f.temps), make([]float32, 0, f.width)
	for j, i := range ids {
		s.add(f.features(buffer, i), f.targets(t, j), 1)
	}
	first.solve(s, ridge)
	one, c := newEquations(f.width, 1), newCoefficients(f.width, 1)
	weights, slopes, heads := make([]float64, len(ids)), make([]float64, len(ids)), make([]float64, len(ids))
	for k := range f.temps {
		mean := 0.0
		for j, i := range ids {
			heads[j] = f.heads[t][j*f.temps+k]
			share := tailShare(heads[j], first.predict(k, f.features(buffer, i)))
			weights[j] = float64(share*share) + leastWeight
			mean += weights[j] / float64(len(ids))
		}
		one.clear()
		for j, i := range ids {
			one.add(f.features(buffer, i), f.targets(t, j)[k:k+1], float32(weights[j]/mean))
		}
		c.solve(one, ridge)
		copy(all.u[k*f.width:][:f.width], c.u)
		a := c.a[0]
		c.a[0] = 0
		for j, i := range ids {
			slopes[j] = c.predict(0, f.features(buffer, i))
		}
		all.a[k] = centre(a, slopes, heads, func(j int) float64 { return f.targets(t, j)[k] })
	}
	return all
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

// means are the means of the logs over all contexts fitted, at each temperature; 0
// if there are none.
func (f *tailFit) means() []float64 {
	sums, n := make([]float64, f.temps), 0
	for t := range f.clusters {
		if f.logs[t] == nil {
			continue
		}
		for j := range f.fit[t] {
			for k, y := range f.targets(t, j) {
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

// conformal writes the half-width at each level for errors, which it sorts: of n the
// one at ceil((n+1) level), or +Inf if there is none.
func conformal(widths []float32, errors, levels []float64) {
	slices.Sort(errors)
	for j, level := range levels {
		at := int(math.Ceil(float64(float64(len(errors)+1) * level)))
		if at > len(errors) {
			widths[j] = float32(math.Inf(1))
			continue
		}
		w := float32(errors[at-1])
		if float64(w) < errors[at-1] {
			w = math.Nextafter32(w, float32(math.Inf(1)))
		}
		widths[j] = w
	}
}

// directionRounds is the number of rounds of subspace iteration: the leading directions
// need not be exact.
const directionRounds = 10

// directions returns n leading eigenvectors of the covariance of the rows of W, as float32,
// times the square roots of their eigenvalues, about: by subspace iteration from a
// random start. It has the same bits for any number of threads and on every CPU.
func directions(ctx context.Context, l *softmax.Layer, n int, seed uint64, threads int) ([]float32, error) {
	dim, labels := l.Dim(), l.Labels()
	random := rng.New(seed, rng.Directions, 0)
	vectors, next := make([]float32, n*dim), make([][]float64, n)
	for k := range next {
		next[k] = make([]float64, dim)
		for j := range next[k] {
			next[k][j] = random.Uniform() - 0.5
		}
	}
	threads = parallel.Threads(threads, n)
	type scratch struct {
		products []float64
		row      []float32
	}
	workers := make([]scratch, threads)
	values := make([]float64, n)
	for round := range directionRounds + 1 {
		for k, v := range next { // Gram-Schmidt, twice for the sake of roundings
			for range 2 {
				for _, other := range next[:k] {
					product := dot(v, other)
					for j, x := range other {
						v[j] -= float64(product * x)
					}
				}
			}
			length := math.Sqrt(dot(v, v))
			if values[k] = length / float64(labels); length > 0 {
				for j := range v {
					v[j] /= length
				}
			}
			for j, x := range v {
				vectors[k*dim+j] = float32(x)
			}
		}
		if round == directionRounds {
			break
		}
		err := parallel.Each(ctx, threads, n, 1, nil, func(worker, k, _ int) error {
			w := &workers[worker]
			if w.row == nil {
				*w = scratch{make([]float64, labels), make([]float32, dim)}
			}
			l.Weights().RefScan(w.products, nil, vectors[k*dim:][:dim])
			mean := 0.0
			for _, x := range w.products {
				mean += x / float64(labels)
			}
			clear(next[k])
			for i, x := range w.products {
				l.Weights().Widen(w.row, i)
				kernels.Axpy(next[k], float32(x-mean), w.row)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	for k, value := range values {
		root := math.Sqrt(value)
		for j := range vectors[k*dim:][:dim] {
			vectors[k*dim+j] = float32(float64(vectors[k*dim+j]) * root)
		}
	}
	return vectors, nil
}
