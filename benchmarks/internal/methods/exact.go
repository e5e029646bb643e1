package methods

import (
	"context"
	"errors"

	"github.com/learning-to-screen/l2s/benchmarks/internal/points"
	"github.com/learning-to-screen/l2s/internal/codes/floats"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
	"github.com/learning-to-screen/l2s/internal/search/dense"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// Dense is the plain form of the layer (Eq. 1 of the paper): a scan of W and b in float32, then the
// k largest scores. It is the speedup of 1. It has no parameters.
type Dense struct{}

// Name returns "Dense float32".
func (Dense) Name() string { return points.Dense }

// Params returns "".
func (Dense) Params() string { return "" }

// Build returns at once: there is no index.
func (Dense) Build(_ context.Context, in *Input) (Index, error) {
	return scanIndex{0, func() Searcher {
		return searcherFunc(dense.New(in.Layer).TopK)
	}}, nil
}

// Sgemv writes the inner products of h with the rows of a matrix, row-major with len(dst) rows of
// len(h) elements, to dst, on one thread. It is nil unless OpenBLAS is built in, by -tags openblas
// (Debian: libopenblas-dev and pkg-config).
var Sgemv func(dst, rows, h []float32)

// OpenBLAS is Dense with the scan of OpenBLAS: cblas_sgemv on one thread, the
// bias added, then the same selection of the k largest. It has no parameters.
type OpenBLAS struct{}

// Name returns "OpenBLAS sgemv".
func (OpenBLAS) Name() string { return "OpenBLAS sgemv" }

// Params returns "".
func (OpenBLAS) Params() string { return "" }

// Build returns an error where OpenBLAS is not built in: see [Sgemv].
func (OpenBLAS) Build(_ context.Context, in *Input) (Index, error) {
	if Sgemv == nil {
		return nil, errors.New("methods: OpenBLAS is not built in: build with -tags openblas")
	}
	l := in.Layer
	weights := dense.Weights(l)
	return scanIndex{0, func() Searcher {
		scores := make([]float32, l.Labels())
		var ids []uint32
		var best []float32
		return searcherFunc(func(dst []exact.Prediction, h []float32) int {
			Sgemv(scores, weights, h)
			for i, b := range l.Bias() {
				scores[i] += b
			}
			k := min(len(dst), len(scores))
			ids, best = mem.Grow(ids, k), mem.Grow(best, k)
			floats.TopK(ids, best, scores)
			for i := range k {
				dst[i] = exact.Prediction{ID: ids[i], Logit: float64(best[i])}
			}
			return k
		})
	}}, nil
}

// Certified is the exact search of package l2s: a scan of int8 codes with a proven error bound
// leaves few labels, which are scored by the reference arithmetic. It has no parameters.
type Certified struct{}

// Name returns "Exact, certified int8".
func (Certified) Name() string { return "Exact, certified int8" }

// Params returns "".
func (Certified) Params() string { return "" }

// Build returns at once: the codes are part of the layer.
func (Certified) Build(_ context.Context, in *Input) (Index, error) {
	l := in.Layer
	codes := layerCodes(l) + int64(l.Labels())*int64(kernels.Int4Stride(l.Dim()))
	return scanIndex{codes, func() Searcher {
		s := newExactSearch(l)
		return searcherFunc(func(dst []exact.Prediction, h []float32) int { return s.topK(dst, h, exact.Labels{}) })
	}}, nil
}

// scanIndex is the index of a method without query-time parameters, and its only setting.
type scanIndex struct {
	bytes    int64
	searcher func() Searcher
}

func (x scanIndex) Bytes() int64        { return x.bytes }
func (x scanIndex) Settings() []Setting { return []Setting{setting{"", x.searcher}} }

// searcherFunc is a function that is a Searcher.
type searcherFunc func(dst []exact.Prediction, h []float32) int

func (f searcherFunc) TopK(dst []exact.Prediction, h []float32) int { return f(dst, h) }
