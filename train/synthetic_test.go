package train

import (
	"context"
	"testing"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/train/internal/traintest"
)

// synthetic is a layer and contexts.
type synthetic struct {
	layer    *exact.Layer
	contexts []float32
	n, dim   int
}

func newSynthetic(t testing.TB, seed uint64, n, dim, labels, directions int, spread float64) synthetic {
	d := traintest.Around(t, seed, n, dim, labels, directions, spread)
	return synthetic{d.Layer, d.Contexts, d.N, d.Dim}
}

// clustersOf are contexts around six centres, and the labels of a layer.
func clustersOf(t testing.TB, n int, seed uint64) synthetic {
	d, _ := traintest.Clusters(t, n, seed)
	return synthetic{d.Layer, d.Contexts, d.N, d.Dim}
}

// testOptions are small and quick.
func testOptions() Options {
	o := DefaultOptions()
	o.Clusters, o.Budget, o.K = 8, 12, 5
	o.Iterations, o.Learning.EpochFraction, o.Learning.BatchSize = 3, 0.5, 32
	o.Learning.Budget = 12
	o.HeldOut = 60
	return o
}

// ascending returns 0 .. n-1.
func ascending(n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i)
	}
	return ids
}

// labelsOf are the k best labels of each context.
func labelsOf(t testing.TB, s synthetic, k int) []uint32 {
	t.Helper()
	labels, err := labelsOver(t.Context(), s.layer, s.contexts, k, RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return labels
}

// The inside of the package's functions, for layers and screens of the inside.

func public(l *exact.Layer) *l2s.Layer { return (*l2s.Layer)(engine.Over(l)) }

func index(m *screening.Model) *l2s.Index { return (*l2s.Index)(engine.OfScreen(m)) }

func basisOf(m *screening.Model) (k, heldOut int) { return m.Config().K, m.Config().HeldOut }

func screenOf(x *l2s.Index) *screening.Model {
	if x == nil {
		return nil
	}
	return (*engine.Index)(x).Screen()
}

func runOver[C []float32 | kernels.Rows](ctx context.Context, l *exact.Layer, contexts C, o Options) (*screening.Model, *Record, error) {
	var m l2s.Matrix
	switch c := any(contexts).(type) {
	case []float32:
		m = l2s.Float32(c, l.Dim())
	case kernels.Rows:
		m = l2s.Matrix(engine.MatrixOfRows(c))
	}
	x, r, err := Run(ctx, public(l), m, o)
	return screenOf(x), r, err
}

func labelsOver(ctx context.Context, l *exact.Layer, contexts []float32, k int, o RunOptions) ([]uint32, error) {
	return Labels(ctx, public(l), contexts, k, o)
}

func fitOver(ctx context.Context, m *screening.Model, l *exact.Layer, contexts []float32, opt TailOptions, o RunOptions) (*screening.Model, *TailFit, error) {
	x, fit, err := FitTail(ctx, public(l), index(m), contexts, opt, o)
	return screenOf(x), fit, err
}
