package perplexity

import (
	"context"
	"fmt"

	"github.com/learning-to-screen/l2s/benchmarks/internal/methods"
	"github.com/learning-to-screen/l2s/internal/codes/floats"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/dense"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// LowRank is a low-rank approximation W~ = A B of the weights of a layer, with A labels x rank and
// B rank x dim: the best one of its rank, in the sense of the sum of squared differences. The
// labels outside a candidate set have the logits w~_s.h + b_s (the paper's appendix, "Perplexity
// Results"). It is immutable and safe for use by many goroutines.
type LowRank struct {
	columns      []float32 // A by columns: rank x labels
	rows         []float32 // B: rank x dim
	labels, rank int
}

// NewLowRank returns the approximation of that rank, from 1 to the smaller of labels and dim: B are
// the leading right singular vectors of W, and A = W B^T.
func NewLowRank(ctx context.Context, l *exact.Layer, rank int) (*LowRank, error) {
	labels, dim := l.Labels(), l.Dim()
	if most := min(labels, dim); rank < 1 || rank > most {
		return nil, fmt.Errorf("perplexity: rank: found %d, expected 1 to %d, the smaller of %d labels and dim %d", rank, most, labels, dim)
	}
	w := dense.Weights(l)
	b, err := methods.RightSingularVectors(ctx, w, dim, rank)
	if err != nil {
		return nil, err
	}
	t := &LowRank{columns: make([]float32, rank*labels), rows: b, labels: labels, rank: rank}
	row := make([]float64, rank)
	for s := range labels {
		kernels.Float32Rows(b, dim).RefScan(row, nil, w[s*dim:(s+1)*dim])
		for k, a := range row {
			t.columns[k*labels+s] = float32(a)
		}
	}
	return t, nil
}

// lowRankBlock is the number of labels whose logits stay in the first-level cache while
// the columns of A are added up.
const lowRankBlock = 1024

// logits writes w~_s.h + b_s for every label to dst. Up to a rank of 64 it allocates nothing.
func (t *LowRank) logits(dst []float64, bias, h []float32) {
	var fixed [64]float64
	products := fixed[:min(t.rank, len(fixed))]
	if t.rank > len(fixed) {
		products = make([]float64, t.rank)
	}
	kernels.Float32Rows(t.rows, len(h)).RefScan(products, nil, h)
	for first := 0; first < len(dst); first += lowRankBlock {
		end := min(first+lowRankBlock, len(dst))
		part := dst[first:end]
		for i, b := range bias[first:end] {
			part[i] = float64(b)
		}
		for k, v := range products {
			floats.Axpy(part, float32(v), t.columns[k*t.labels+first:k*t.labels+end])
		}
	}
}
