package tail

import (
	"context"

	"github.com/learning-to-screen/l2s/internal/ground/parallel"
)

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

// ownRidge is the weight of the squares of a cluster's own slopes, as a multiple of the mean variance
// of an element of a context: a cluster of few contexts stays near the others.
const ownRidge = 1000

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
	if f.ridge = 1; !(scale > 0) {
		return nil // contexts that do not differ have no slope
	}
	f.ridge = float64(ownRidge * scale)
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
