package tail

import (
	"context"
	"math"

	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
	"github.com/learning-to-screen/l2s/train/internal/rng"
)

// directionRounds is the number of rounds of subspace iteration: the leading directions
// need not be exact.
const directionRounds = 10

// directions returns n leading eigenvectors of the covariance of the rows of W, as float32,
// times the square roots of their eigenvalues, about: by subspace iteration from a
// random start. It has the same bits for any number of threads and on every CPU. done is told of
// directionRounds n steps.
func directions(ctx context.Context, l *softmax.Layer, n int, seed uint64, threads int, done func(int)) ([]float32, error) {
	dim, labels := l.Dim(), l.Labels()
	random := rng.New(seed, rng.Directions, 0)
	vectors, next := make([]float32, n*dim), make([][]float64, n)
	for k := range next {
		next[k] = make([]float64, dim)
		for j := range next[k] {
			next[k][j] = random.Uniform() - 0.5
		}
	}
	threads = parallel.Threads(threads, n)
	type scratch struct {
		products []float64
		row      []float32
	}
	workers := make([]scratch, threads)
	values := make([]float64, n)
	for round := range directionRounds + 1 {
		for k, v := range next { // Gram-Schmidt, twice for the sake of roundings
			for range 2 {
				for _, other := range next[:k] {
					product := dot(v, other)
					for j, x := range other {
						v[j] -= float64(product * x)
					}
				}
			}
			length := math.Sqrt(dot(v, v))
			if values[k] = length / float64(labels); length > 0 {
				for j := range v {
					v[j] /= length
				}
			}
			for j, x := range v {
				vectors[k*dim+j] = float32(x)
			}
		}
		if round == directionRounds {
			break
		}
		err := parallel.Each(ctx, threads, n, 1, done, func(worker, k, _ int) error {
			w := &workers[worker]
			if w.row == nil {
				*w = scratch{make([]float64, labels), make([]float32, dim)}
			}
			l.Weights().RefScan(w.products, nil, vectors[k*dim:][:dim])
			mean := 0.0
			for _, x := range w.products {
				mean += x / float64(labels)
			}
			clear(next[k])
			for i, x := range w.products {
				l.Weights().Widen(w.row, i)
				kernels.Axpy(next[k], float32(x-mean), w.row)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	for k, value := range values {
		root := math.Sqrt(value)
		for j := range vectors[k*dim:][:dim] {
			vectors[k*dim+j] = float32(float64(vectors[k*dim+j]) * root)
		}
	}
	return vectors, nil
}
