// Package traintest makes data for the tests of training.
package traintest

import (
	"math/rand/v2"
	"testing"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/train/internal/corpus"
)

// Data is a layer and contexts with the structure that screening needs: contexts are around a few
// directions, and the largest logits of a context depend mostly on its direction.
type Data struct {
	Layer    *exact.Layer
	Contexts []float32
	N, Dim   int
}

// normals are n normal numbers.
func normals(random *rand.Rand, n int, scale float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(scale * random.NormFloat64())
	}
	return x
}

func newLayer(t testing.TB, weights, bias []float32, dim int) *exact.Layer {
	t.Helper()
	layer, err := exact.NewLayer(kernels.Float32Rows(weights, dim), bias)
	if err != nil {
		t.Fatal(err)
	}
	return layer
}

// Around makes data whose contexts are spread so far around their directions.
func Around(t testing.TB, seed uint64, n, dim, labels, directions int, spread float64) Data {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	layer := newLayer(t, normals(random, labels*dim, 1), normals(random, labels, 0.5), dim)
	centres, contexts := normals(random, directions*dim, 1), normals(random, n*dim, spread)
	for i := range n {
		c := random.IntN(directions)
		length := float32(0.5 + random.Float64())
		for j := range dim {
			contexts[i*dim+j] = length * (contexts[i*dim+j] + centres[c*dim+j])
		}
	}
	return Data{layer, contexts, n, dim}
}

// Clusters makes contexts around centres far from each other, context i at centre i modulo their
// number, with the cluster of each. The layer and the centres are the same for every seed.
func Clusters(t testing.TB, n int, seed uint64) (d Data, cluster []uint32) {
	t.Helper()
	const dim, number, labels = 16, 6, 400
	fixed := rand.New(rand.NewPCG(1, 1))
	layer := newLayer(t, normals(fixed, labels*dim, 1), nil, dim)
	centres := normals(fixed, number*dim, 2)
	d = Data{layer, normals(rand.New(rand.NewPCG(seed, 9)), n*dim, 0.7), n, dim}
	for i := range d.Contexts {
		d.Contexts[i] += centres[i/dim%number*dim+i%dim]
	}
	for i := range n {
		cluster = append(cluster, uint32(i%number))
	}
	return d, cluster
}

// Corpus is the view of all contexts with their k best labels.
func (d Data) Corpus(t testing.TB, k int) *corpus.Corpus {
	t.Helper()
	c, err := corpus.New(d.Layer, d.Contexts, 2)
	if err != nil {
		t.Fatal(err)
	}
	c.K, c.Seed = k, 7
	s := exact.NewSearcher(d.Layer)
	top := make([]exact.Prediction, k)
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
