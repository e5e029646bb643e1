package train

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
)

// synthetic is a layer and contexts with the structure that screening lives
// from: contexts lie around a few directions, and the largest logits of a
// context depend mostly on its direction.
type synthetic struct {
	layer    *softmax.Layer
	contexts []float32
	n, dim   int
}

func newSynthetic(t testing.TB, seed uint64, n, dim, labels, directions int, spread float64) synthetic {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	normal := func(n int, scale float64) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(scale * random.NormFloat64())
		}
		return x
	}
	layer, err := softmax.NewLayer(kernels.Float32Rows(normal(labels*dim, 1), dim), normal(labels, 0.5))
	if err != nil {
		t.Fatal(err)
	}
	centres := normal(directions*dim, 1)
	contexts := normal(n*dim, spread)
	for i := range n {
		c := random.IntN(directions)
		length := float32(0.5 + random.Float64())
		for j := range dim {
			contexts[i*dim+j] = length * (contexts[i*dim+j] + centres[c*dim+j])
		}
	}
	return synthetic{layer, contexts, n, dim}
}

// testOptions are small and quick.
func testOptions() Options {
	o := DefaultOptions()
	o.Clusters, o.Budget, o.K = 8, 12, 5
	o.Iterations, o.EpochFraction, o.BatchSize = 3, 0.5, 32
	o.HeldOut = 0.1
	return o
}

// newTestData is the view of all contexts with their labels.
func newTestData(t testing.TB, s synthetic, k int) *data {
	t.Helper()
	labels, err := Labels(t.Context(), s.layer, s.contexts, k, LabelOptions{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	return &data{
		contexts: s.contexts, n: s.n, dim: s.dim, universe: s.layer.Labels(), labels: labels, k: k,
		seed: 7, threads: 2, report: &reporter{},
	}
}

// ascending returns 0 .. n-1.
func ascending(n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i)
	}
	return ids
}

func naiveDot(x, y []float32) float64 {
	sum := 0.0
	for i := range x {
		sum += float64(x[i]) * float64(y[i])
	}
	return sum
}

func naiveSoftmax(z []float64) []float64 {
	largest := math.Inf(-1)
	for _, x := range z {
		largest = max(largest, x)
	}
	p, sum := make([]float64, len(z)), 0.0
	for i, x := range z {
		p[i] = math.Exp(x - largest)
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}
