package softmax

import (
	"fmt"
	"math"

	"github.com/learning-to-screen/l2s/kernels"
)

// Query is one context vector h, checked and quantised, for [Searcher.Find]. One
// Query serves searchers of any number of layers of its dimension. It is for one
// goroutine, and takes some six bytes for each element of h.
type Query struct {
	dim int
	vec *kernels.Int8Vector
	fit kernels.Fit
}

// NewQuery returns a Query for contexts of dimension dim, at least 1.
func NewQuery(dim int) *Query {
	return &Query{dim: dim, vec: kernels.NewInt8Vector(dim)}
}

// Set makes h, of the query's dimension, its context. h is copied. It returns
// an error, for which errors.Is holds with [ErrContext], and leaves the query
// without a context, if the length differs or an element is NaN or infinite.
func (q *Query) Set(h []float32) error {
	q.fit = kernels.NotFinite
	if len(h) != q.dim {
		return invalid(ErrContext, fmt.Sprintf("softmax: context: found %d elements, expected %d", len(h), q.dim))
	}
	if q.fit = q.vec.Set(h); q.fit != kernels.NotFinite {
		return nil
	}
	for i, x := range h {
		if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
			return invalid(ErrContext, fmt.Sprintf("softmax: context: found %v at element %d, expected finite numbers", x, i))
		}
	}
	return invalid(ErrContext, "softmax: context: found numbers that change meanwhile, expected finite ones")
}

// Vector returns the context, valid until the next Set. It must not be changed.
func (q *Query) Vector() []float32 { return q.vec.Vector() }
