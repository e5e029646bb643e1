package methods

import (
	"runtime"

	"github.com/learning-to-screen/l2s/internal/codes/encode"
	"github.com/learning-to-screen/l2s/internal/codes/floats"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// codes are rows that are scored fast: by the int8 codes that exact.Layer also uses for its exact
// answers. A score is the upper end of the interval of a logit. Without one it is the logit in
// float32.
type codes struct {
	weights, bias []float32
	dim           int
	rows          *kernels.Int8Rows // nil without codes
}

// newCodes returns the codes of weights, row-major with rows of dim elements, and their bias. It
// keeps both. Rows that codes would not make shorter have no codes.
func newCodes(weights, bias []float32, dim int) *codes {
	c := &codes{weights: weights, bias: bias, dim: dim}
	if kernels.Int8Stride(dim) >= 4*dim {
		return c
	}
	table, release := mem.Alloc(len(bias) * kernels.Int8Stride(dim))
	rows, err := encode.NewInt8Rows(table, kernels.Float32Rows(weights, dim), bias)
	if err != nil {
		if release != nil {
			release()
		}
		return c
	}
	if release != nil {
		runtime.AddCleanup(rows, func(release func()) { release() }, release)
	}
	c.rows = rows
	return c
}

// bytes is the memory of the codes.
func (c *codes) bytes() int64 {
	if c.rows == nil {
		return 0
	}
	return int64(len(c.bias)) * int64(kernels.Int8Stride(c.dim))
}

// layerCodes is the memory of the int8 codes of a layer, which most methods read:
// package l2s puts their candidates in order by them.
func layerCodes(l *exact.Layer) int64 {
	return int64(l.Labels()) * int64(kernels.Int8Stride(l.Dim()))
}

// scorer scores codes for one context after the other.
type scorer struct {
	*codes
	vector *kernels.Int8Vector
	fit    kernels.Fit
	h      []float32
	lower  []float32 // of no use
}

// newScorer returns a scorer for up to n rows at a time.
func newScorer(c *codes, n int) *scorer {
	return &scorer{codes: c, vector: kernels.NewInt8Vector(c.dim), lower: make([]float32, n)}
}

// set makes h the context.
func (s *scorer) set(h []float32) {
	s.fit, s.h = s.vector.Set(h), h
}

// gather scores the rows ids.
func (s *scorer) gather(dst []float32, ids []uint32) {
	if s.rows == nil || s.fit != kernels.Certified {
		floats.GatherDot(dst, s.weights, s.bias, ids, s.h)
		return
	}
	s.rows.GatherBounds(s.lower[:len(dst)], dst, ids, s.vector)
}

// scan scores all rows.
func (s *scorer) scan(dst []float32) {
	if s.rows == nil || s.fit != kernels.Certified {
		floats.Scan(dst, s.weights, s.bias, s.h)
		return
	}
	s.rows.Bounds(s.lower[:len(dst)], dst, s.vector)
}
