package tail

import (
	"context"
	"math"

	"github.com/learning-to-screen/l2s/internal/parallel"
)

// The choice of the ridge: factors of the mean variance of an element of a context.
var ridges = [...]float64{1, 30, 1000}

const (
	ridgeFolds    = 4
	ridgeClusters = 4
)

// folds are the contexts of a cluster in runs of neighbours, for cross-validation.
type folds struct {
	ids  []uint32
	ends [ridgeFolds + 1]int
	sums [ridgeFolds]*equations
	all  *equations
}

func (f *fit) folds(t int) *folds {
	x := &folds{ids: f.fitted[t], all: newEquations(f.width, f.temps)}
	buffer, rests := make([]float32, 0, f.width), make([]float64, 0, f.temps)
	for fold := range x.sums {
		x.ends[fold+1] = (fold + 1) * len(x.ids) / ridgeFolds
		x.sums[fold] = newEquations(f.width, f.temps)
		for _, i := range x.ids[x.ends[fold]:x.ends[fold+1]] {
			x.sums[fold].add(f.features(buffer, i), f.rests(rests, i), 1)
		}
		x.all.plus(x.sums[fold], 1)
	}
	return x
}

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
	err := parallel.Each(ctx, f.Threads, len(chosen), 1, done, func(_, at, _ int) error {
		x := f.folds(chosen[at])
		for i, ridge := range ridges {
			if err := ctx.Err(); err != nil {
				return err
			}
			errors[at][i] = f.crossValidate(x, float64(ridge*scale))
		}
		return nil
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

// crossValidate is the sum of the squared errors on each fold of a fit to the others.
func (f *fit) crossValidate(x *folds, ridge float64) (sum float64) {
	c, buffer, rests := newCoefficients(f.width, f.temps), make([]float32, 0, f.width), make([]float64, 0, f.temps)
	for fold, part := range x.sums {
		x.all.plus(part, -1)
		c.solve(x.all, ridge)
		x.all.plus(part, 1)
		for _, i := range x.ids[x.ends[fold]:x.ends[fold+1]] {
			h := f.features(buffer, i)
			for k, y := range f.rests(rests, i) {
				e := y - c.predict(k, h)
				sum += float64(e * e)
			}
		}
	}
	return sum
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
	all, own := newEquations(f.width, f.temps), newEquations(f.width, f.temps)
	buffer, clusters := make([]float32, 0, f.width), []int(nil)
	for t := range f.clusters {
		if err := ctx.Err(); err != nil {
			return err
		}
		own.clear()
		for j := 0; j < len(f.fitted[t]); j += step {
			i := f.fitted[t][j]
			own.add(f.features(buffer, i), f.targets(i), 1)
		}
		if own.n > 0 {
			own.centre()
			all.plus(own, 1)
			clusters = append(clusters, t)
		}
	}
	scale := f.scale(clusters)
	if !(scale > 0) {
		return nil
	}
	f.all.solve(all, scale)
	clear(f.all.a)
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
