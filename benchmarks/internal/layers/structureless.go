package layers

import (
	"math/rand/v2"

	"github.com/learning-to-screen/l2s/internal/kernels"
	"github.com/learning-to-screen/l2s/internal/synthetic"
	"github.com/learning-to-screen/l2s/softmax"
)

// Structureless returns a layer and n contexts of independent normal numbers: the worst case of the
// int8 envelope, since no label is far above the others.
func Structureless(labels, dim, n int, seed uint64) (*synthetic.Data, error) {
	r := rand.New(rand.NewPCG(seed, 0))
	normal := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	l, err := softmax.NewLayer(kernels.Float32Rows(normal(labels*dim), dim), normal(labels))
	return &synthetic.Data{Layer: l, Contexts: normal(n * dim)}, err
}
