package tail

import (
	"context"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/parallel"
)

// The choice of the ridge: factors of the mean variance of an element of a context.
var ridges = [...]float64{1, 30, 1000}

const (
	ridgeFolds    = 4
	ridgeClusters = 4
)

// ridgeSample are clusters with contexts enough, evenly spaced.
func (f *fit) ridgeSample() (chosen []int) {
	var full []int
	for t := range f.clusters {
		if len(f.fitted[t]) >= 2*ridgeFolds {
			full = append(full, t)
		}
	}
	n := min(len(full), ridgeClusters)
	for i := range n {
		chosen = append(chosen, full[i*len(full)/n])
	}
	return chosen
}

// chooseRidge returns the weight with the least sum of squared errors in
// cross-validation over runs of neighbouring contexts.
func (f *fit) chooseRidge(ctx context.Context) (float64, error) {
	chosen := f.ridgeSample()
	scale := f.scale(chosen)
	if !(scale > 0) {
		return 1, nil // contexts that do not differ have no slope
	}
	errors := make([][len(ridges)]float64, len(chosen))
	done := f.Report.Part(Stage, "ridge", "clusters", len(chosen))
	err := parallel.Each(ctx, f.Threads, len(chosen), 1, done, func(_, at, _ int) (err error) {
		errors[at], err = f.crossValidate(ctx, f.fitted[chosen[at]], scale)
		return err
	})
	if err != nil {
		return 0, err
	}
	best, least := 0, math.Inf(1)
	for i := range ridges {
		sum := 0.0
		for _, e := range errors {
			sum += e[i]
		}
		if sum < least {
			best, least = i, sum
		}
	}
	return float64(ridges[best] * scale), nil
}

// scale is the mean variance of an element of a context within clusters.
func (f *fit) scale(clusters []int) float64 {
	variance, n := 0.0, 0
	for _, t := range clusters {
		if len(f.fitted[t]) > 0 {
			variance, n = variance+f.variance(t), n+len(f.fitted[t])
		}
	}
	return variance / (float64(n) * float64(f.Dim))
}

// variance is the sum over the elements of a context of their squared distances from the mean
// in a cluster.
func (f *fit) variance(t int) (sum float64) {
	sums, squares, buffer := make([]float64, f.Dim), make([]float64, f.Dim), f.Buffer()
	for _, i := range f.fitted[t] {
		for j, x := range f.Row(i, buffer) {
			sums[j] += float64(x)
			squares[j] += float64(float64(x) * float64(x))
		}
	}
	for j, x := range sums {
		sum += squares[j] - float64(x*x)/float64(len(f.fitted[t]))
	}
	return sum
}

// crossValidate returns for each ridge the sum of the squared errors of a cluster's contexts, of
// each run of them by a fit to the others.
func (f *fit) crossValidate(ctx context.Context, ids []uint32, scale float64) (sums [len(ridges)]float64, err error) {
	rows, rests := f.rows(ids), f.rests(ids)
	for fold := range ridgeFolds {
		lo, hi := fold*len(ids)/ridgeFolds, (fold+1)*len(ids)/ridgeFolds
		others := slices.Concat(rows[:lo*f.width], rows[hi*f.width:])
		r := newRegression(others, slices.Concat(rests[:lo*f.temps], rests[hi*f.temps:]), ones(len(ids)-(hi-lo)), f.width)
		for i, ridge := range ridges {
			if err := ctx.Err(); err != nil {
				return sums, err
			}
			c := r.solve(float64(ridge * scale))
			for j := lo; j < hi; j++ {
				for k, y := range rests[j*f.temps:][:f.temps] {
					e := y - c.predict(k, rows[j*f.width:][:f.width])
					sums[i] += float64(e * e)
				}
			}
		}
	}
	return sums, nil
}

// perFeature bounds the contexts that the slopes of all clusters come from: so many for
// each feature.
const perFeature = 40

// fitAll fits slopes to the contexts of all clusters together, each with an intercept of its
// own.
func (f *fit) fitAll(ctx context.Context) error {
	f.all, f.shared = newCoefficients(f.width, f.temps), make([]float64, len(f.logs))
	drawn := 0
	for t := range f.clusters {
		drawn += len(f.fitted[t])
	}
	step := max(1, drawn/(perFeature*f.width))
	all, clusters := newNormal(f.width, f.temps), []int(nil)
	for t := range f.clusters {
		if err := ctx.Err(); err != nil {
			return err
		}
		var ids []uint32
		for j := 0; j < len(f.fitted[t]); j += step {
			ids = append(ids, f.fitted[t][j])
		}
		if ids != nil {
			all.add(newRegression(f.rows(ids), f.targets(ids), ones(len(ids)), f.width))
			clusters = append(clusters, t)
		}
	}
	scale := f.scale(clusters)
	if !(scale > 0) {
		return nil
	}
	all.solve(f.all.u, scale)
	return parallel.Each(ctx, f.Threads, f.N, chunk, nil, func(_, lo, hi int) error {
		buffer := make([]float32, 0, f.width)
		for i := lo; i < hi; i++ {
			if at := f.place[i]; at >= 0 {
				h := f.features(buffer, uint32(i))
				for k := range f.temps {
					f.shared[int(at)*f.temps+k] = f.all.predict(k, h)
				}
			}
		}
		return nil
	})
}
