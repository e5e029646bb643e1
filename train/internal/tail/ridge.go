package tail

import (
	"context"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/internal/stage"
)

// The choice of the ridge: factors of the mean variance of an element of a context.
var ridges = [...]float64{1, 30, 1000}

const (
	ridgeFolds    = 4
	ridgeClusters = 4
)

// chooseRidge returns the weight with the least sum of squared errors in cross-validation over
// runs of neighbouring contexts, in clusters with contexts enough, evenly spaced.
func (f *fit) chooseRidge(ctx context.Context) (float64, error) {
	var full []int
	for t := range f.clusters {
		if len(f.fitted[t]) >= 2*ridgeFolds {
			full = append(full, t)
		}
	}
	chosen := make([]int, min(len(full), ridgeClusters))
	for i := range chosen {
		chosen[i] = full[i*len(full)/len(chosen)]
	}
	scale := f.scale(chosen)
	if !(scale > 0) {
		return 1, nil // contexts that do not differ have no slope
	}
	errors := make([][len(ridges)]float64, len(chosen))
	done := f.Report.Part(stage.Tail, "ridge", "clusters", len(chosen))
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

// scale is the mean variance of an element of a context within clusters, each of which has
// contexts.
func (f *fit) scale(clusters []int) float64 {
	variance, n, buffer := 0.0, 0, f.Buffer()
	for _, t := range clusters {
		sums, squares, own := make([]float64, f.Dim), make([]float64, f.Dim), 0.0
		for _, i := range f.fitted[t] {
			for j, x := range f.Row(i, buffer) {
				sums[j] += float64(x)
				squares[j] += float64(float64(x) * float64(x))
			}
		}
		for j, x := range sums {
			own += squares[j] - float64(x*x)/float64(len(f.fitted[t]))
		}
		variance, n = variance+own, n+len(f.fitted[t])
	}
	return variance / (float64(n) * float64(f.Dim))
}

// crossValidate returns for each ridge the sum of the squared errors of a cluster's contexts, where
// a fit to the other runs predicts each run of them.
func (f *fit) crossValidate(ctx context.Context, ids []uint32, scale float64) (sums [len(ridges)]float64, err error) {
	rows, residuals := f.rows(ids), f.residuals(ids)
	for fold := range ridgeFolds {
		lo, hi := fold*len(ids)/ridgeFolds, (fold+1)*len(ids)/ridgeFolds
		others := slices.Concat(rows[:lo*f.width], rows[hi*f.width:])
		r := newRegression(others, slices.Concat(residuals[:lo*f.temps], residuals[hi*f.temps:]), len(ids)-(hi-lo), f.width)
		for i, ridge := range ridges {
			if err := ctx.Err(); err != nil {
				return sums, err
			}
			c := r.solve(float64(ridge * scale))
			for j := lo; j < hi; j++ {
				for k, y := range residuals[j*f.temps:][:f.temps] {
					e := y - c.predict(k, rows[j*f.width:][:f.width])
					sums[i] += float64(e * e)
				}
			}
		}
	}
	return sums, nil
}

// perFeature bounds the contexts that the slopes of all clusters come from: this number per
// feature.
const perFeature = 40

// fitAll fits slopes to the contexts of all clusters together, each with an intercept of its
// own.
func (f *fit) fitAll(ctx context.Context) error {
	f.all = newCoefficients(f.width, f.temps)
	drawn := 0
	for _, ids := range f.fitted {
		drawn += len(ids)
	}
	step := max(1, drawn/(perFeature*f.width))
	all, clusters := newNormal(f.width, f.temps), []int(nil)
	for t, fitted := range f.fitted {
		if err := ctx.Err(); err != nil {
			return err
		}
		var ids []uint32
		for j := 0; j < len(fitted); j += step {
			ids = append(ids, fitted[j])
		}
		if ids != nil {
			all.add(newRegression(f.rows(ids), f.residuals(ids), len(ids), f.width))
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
		for i := uint32(lo); i < uint32(hi); i++ {
			h := f.features(buffer, i)
			for k := range f.temps {
				f.shared[f.at(i, k)] = f.all.predict(k, h)
			}
		}
		return nil
	})
}
