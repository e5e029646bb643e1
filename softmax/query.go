package softmax

import (
	"fmt"

	"github.com/learning-to-screen/l2s/kernels"
)

// Query is one context vector h, prepared for the search, and the scratch of
// the search. One Query serves any number of layers of its dimension, one
// after the other; each goroutine needs its own. Its memory grows to that of
// the largest search and stays.
type Query struct {
	dim int
	vec *kernels.Int8Vector
	fit kernels.Fit

	scores, lower, upper []float32
	tileLower, tileUpper []float32
	ids, first           []uint32
	skip                 int // searches to go without a pass over 4-bit codes
	threshold            float32
	logits               []float64
	wide                 []float64 // the terms of a log-sum-exp
}

// NewQuery returns a Query for contexts of dimension dim, at least 1.
func NewQuery(dim int) *Query {
	return &Query{dim: dim, vec: kernels.NewInt8Vector(dim)}
}

// Set makes h, of the query's dimension, the context of the searches that
// follow. h is copied. It returns an error, and leaves the query without a
// context, where the length differs or an element is NaN or infinite.
func (q *Query) Set(h []float32) error {
	q.fit = kernels.NotFinite
	if len(h) != q.dim {
		return fmt.Errorf("softmax: context: found %d elements, expected %d", len(h), q.dim)
	}
	q.fit = q.vec.Set(h)
	if q.fit == kernels.NotFinite {
		i := firstNotFinite(h)
		return fmt.Errorf("softmax: context: found %v at element %d, expected finite numbers", h[i], i)
	}
	return nil
}

// check panics where the query has no context or its dimension is not that
// of the layer.
func (q *Query) check(l *Layer) {
	if q.fit == kernels.NotFinite {
		panic("softmax: query has no context: Set was not called or failed")
	}
	if q.dim != l.dim {
		panic("softmax: dimension of the query differs from that of the layer")
	}
}

// grow returns a slice of n elements, s where its capacity allows.
func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
