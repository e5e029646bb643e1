package methods

import (
	"context"
	"fmt"
	"math"

	"github.com/learning-to-screen/l2s/internal/codes/floats"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/dense"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// SVDSoftmax is SVD-softmax: K. Shim, M. Lee, I. Choi, Y. Boo and W. Sung, "SVD-Softmax: Fast
// Softmax Approximation on Large Vocabulary Neural Networks", NIPS 2017.
//
// With W = U S V^T, the preview of all logits is made of the first columns of
// A = U S, the ones with the largest singular values:
//
//	x~_s = sum over j < width of A_sj (V^T h)_j + b_s
//
// The labels with the N largest previews get their logits, and the best of
// these are the answer. Previews are computed from int8 codes of A, where these
// are fewer bytes than its columns, and from the columns otherwise.
//
//   - Width (w in the paper, the preview window) is the number of columns. At the dimension of the
//     layer the preview is the logit, except for rounding.
//   - N is the number of labels that get their logits: at least N, for a bound
//     that N previews reach is cheaper to find than the N-th of them. At L the
//     answer is exact.
//
// The paper keeps A instead of W, so its query is d^2 products for V^T h, L width for the preview
// and N d for the logits. Here W is kept unchanged, and the first columns of A are added. Logits
// are products of W and h, and only the first width elements of V^T h are needed: width d products,
// which are part of the query and of its time. The answers are the same.
type SVDSoftmax struct {
	Width int
}

// Name returns "SVD-softmax".
func (m SVDSoftmax) Name() string { return "SVD-softmax" }

// Params returns the width.
func (m SVDSoftmax) Params() string { return fmt.Sprintf("w=%d", m.Width) }

// Build finds V and S^2 as the eigenvectors and eigenvalues of W^T W, and A =
// W V. A Width above the dimension counts as the dimension.
func (m SVDSoftmax) Build(ctx context.Context, in *Input) (Index, error) {
	if m.Width < 1 {
		return nil, fmt.Errorf("methods: width: found %d, expected at least 1", m.Width)
	}
	d, labels := in.Layer.Dim(), in.Layer.Labels()
	width := min(m.Width, d)
	v, err := RightSingularVectors(ctx, dense.Weights(in.Layer), d, width)
	if err != nil {
		return nil, err
	}
	x := &svdIndex{layer: in.Layer, width: width, v: v}
	preview := make([]float32, labels*width)
	w, row := dense.Weights(in.Layer), make([]float64, width)
	for s := range labels {
		if s%1024 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		kernels.Float32Rows(v, d).RefScan(row, nil, w[s*d:(s+1)*d])
		for j, a := range row {
			preview[s*width+j] = float32(a)
		}
	}
	x.preview = newCodes(preview, in.Layer.Bias(), width)
	return x, nil
}

// RightSingularVectors returns the first n right singular vectors of the matrix of rows of d
// elements, as n rows: the ones with the largest singular values, the largest first.
func RightSingularVectors(ctx context.Context, rows []float32, d, n int) ([]float32, error) {
	gram, err := sumOfSquares(ctx, rows, 1, make([]float64, d))
	if err != nil {
		return nil, err
	}
	_, vectors, err := eigen(gram)
	if err != nil {
		return nil, err
	}
	v := make([]float32, n*d)
	for j := range v {
		v[j] = float32(vectors.At(j%d, j/d))
	}
	return v, nil
}

type svdIndex struct {
	layer   *exact.Layer
	width   int
	v       []float32 // width x d, rows are singular vectors
	preview *codes    // L x width, the first columns of A, and b
}

func (x *svdIndex) Bytes() int64 {
	return 4*int64(len(x.v)+len(x.preview.weights)) + x.preview.bytes() + layerCodes(x.layer)
}

// svdCounts are the N worth measuring.
var svdCounts = []int{16, 32, 64, 128, 256, 512, 1024, 2048}

func (x *svdIndex) Settings() []Setting {
	return settings("N=%d", upTo(svdCounts, x.layer.Labels()), x.searcher)
}

func (x *svdIndex) searcher(n int) Searcher {
	labels := x.layer.Labels()
	return &svdSearcher{
		svdIndex: x, n: n,
		rotated:  make([]float32, x.width),
		previews: make([]float32, labels),
		ids:      make([]uint32, labels),
		by:       newScorer(x.preview, labels),
		exact:    newExactSearch(x.layer),
	}
}

type svdSearcher struct {
	*svdIndex
	n        int
	rotated  []float32 // the first elements of V^T h
	previews []float32
	ids      []uint32
	by       *scorer
	exact    exactSearch
	bounds   Largest
}

func (s *svdSearcher) TopK(dst []exact.Prediction, h []float32) int {
	floats.Scan(s.rotated, s.v, nil, h)
	s.by.set(s.rotated)
	s.by.scan(s.previews)
	n := min(max(s.n, len(dst)), len(s.previews))
	if n == 0 {
		return 0
	}
	ids := s.bounds.AtLeast(s.ids, s.previews, n)
	return s.exact.topK(dst, h, exact.Only(ids))
}

// Largest finds the largest of many scores, and some that follow them. The zero
// value is ready; one goroutine may use it.
type Largest struct {
	sample []float32
	ids    []uint32
	vals   []float32
}

// sampleStep is the distance of the scores of a sample, and sampleSlack the
// number of standard deviations by which it aims below the n-th largest score.
const (
	sampleStep  = 16
	sampleSlack = 2
)

// closeBound is the largest n for which a sample is not closer to the n-th largest
// score than kernels.KthBound.
const closeBound = 16

// AtLeast writes the indices of the n largest scores, and of some that follow
// them in order of size, to dst, ascending, and returns them. dst has the
// length of scores, and n is at least 1 and at most that.
func (l *Largest) AtLeast(dst []uint32, scores []float32, n int) []uint32 {
	if n <= closeBound {
		if bound, ok := kernels.KthBound(scores, n); ok {
			return dst[:kernels.SelectAtLeast(dst, scores, bound)]
		}
	}
	// One score in sampleStep tells about where the n-th largest is. The number of selected scores
	// shows whether that was right.
	expected := float64(n) / sampleStep
	k := int(math.Ceil(expected + sampleSlack*math.Sqrt(expected) + 1))
	l.sample = l.sample[:0]
	for i := sampleStep / 2; i < len(scores); i += sampleStep {
		l.sample = append(l.sample, scores[i])
	}
	if k < len(l.sample) {
		if m := kernels.SelectAtLeast(dst, scores, l.kth(l.sample, k)); m >= n {
			return dst[:m]
		}
	}
	return dst[:kernels.SelectAtLeast(dst, scores, l.kth(scores, n))]
}

// kth returns the k-th largest score.
func (l *Largest) kth(scores []float32, k int) float32 {
	if cap(l.ids) < k {
		l.ids, l.vals = make([]uint32, k), make([]float32, k)
	}
	floats.TopK(l.ids[:k], l.vals[:k], scores)
	return l.vals[k-1]
}
