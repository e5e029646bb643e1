// Package traintest makes what the tests of training need.
package traintest

import (
	"math/rand/v2"
	"testing"

	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
	"github.com/learning-to-screen/l2s/train/internal/corpus"
)

// Data is a layer and contexts with the structure that screening lives
// from: contexts lie around a few directions, and the largest logits of a
// context depend mostly on its direction.
type Data struct {
	Layer    *softmax.Layer
	Contexts []float32
	N, Dim   int
}

// Around makes data whose contexts are spread so far around their directions.
func Around(t testing.TB, seed uint64, n, dim, labels, directions int, spread float64) Data {
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
	return Data{layer, contexts, n, dim}
}

// Clusters makes contexts around centres that are far from each other, context i at
// centre i modulo their number, with the centres and the cluster of each. The layer and the
// centres are the same for every seed.
func Clusters(t testing.TB, n int, seed uint64) (d Data, centres []float32, cluster []uint32) {
	t.Helper()
	const dim, number, labels = 16, 6, 400
	random, fixed := rand.New(rand.NewPCG(seed, 9)), rand.New(rand.NewPCG(1, 1))
	weights := make([]float32, labels*dim)
	for i := range weights {
		weights[i] = float32(fixed.NormFloat64())
	}
	centres = make([]float32, number*dim)
	for i := range centres {
		centres[i] = float32(2 * fixed.NormFloat64())
	}
	layer, err := softmax.NewLayer(kernels.Float32Rows(weights, dim), nil)
	if err != nil {
		t.Fatal(err)
	}
	d = Data{layer, make([]float32, n*dim), n, dim}
	for i := range d.Contexts {
		d.Contexts[i] = float32(0.7*random.NormFloat64()) + centres[i/dim%number*dim+i%dim]
	}
	for i := range n {
		cluster = append(cluster, uint32(i%number))
	}
	return d, centres, cluster
}

// Corpus is the view of all contexts with their k best labels.
func (d Data) Corpus(t testing.TB, k int) *corpus.Corpus {
	t.Helper()
	c, err := corpus.New(d.Layer, d.Contexts, 2)
	if err != nil {
		t.Fatal(err)
	}
	c.K, c.Seed = k, 7
	s := softmax.NewSearcher(d.Layer)
	top := make([]softmax.Prediction, k)
	for i := range c.N {
		if _, err := s.TopK(top, c.Row(uint32(i), nil)); err != nil {
			t.Fatal(err)
		}
		for _, p := range top {
			c.Best = append(c.Best, p.ID)
		}
	}
	return c
}

// Dot is the product of two vectors by a plain loop.
func Dot(x, y []float32) float64 {
	sum := 0.0
	for i := range x {
		sum += float64(x[i]) * float64(y[i])
	}
	return sum
}
