package train

import (
	"testing"

	"github.com/learning-to-screen/l2s/softmax"
	"github.com/learning-to-screen/l2s/train/internal/traintest"
)

// synthetic is a layer and contexts.
type synthetic struct {
	layer    *softmax.Layer
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
	labels, err := Labels(t.Context(), s.layer, s.contexts, k, RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return labels
}
