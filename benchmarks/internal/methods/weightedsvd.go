package methods

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/learning-to-screen/l2s/internal/codes/encode"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
	"github.com/learning-to-screen/l2s/internal/search/dense"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"
)

// WeightedSVD is SVD-softmax (see [SVDSoftmax]) in the coordinates in which logits differ most over
// contexts, and not in the coordinates in which rows differ most: the factors are of P. Chen,
// H.-F. Yu, I. Dhillon and C.-J. Hsieh, "DRONE: Data-aware Low-rank Compression for Large NLP
// Models", NeurIPS 2021, which compresses layers by them.
//
// With S S^T = E[h h^T] over contexts, m the mean row of W, and W' the rows less m, the singular
// value decomposition is W' S = U D P^T. Then with z = P^T S^-1 h, whose elements have second
// moments of 1,
//
//	w_s.h + b_s = m.h + (W' S P)_s.z + b_s
//
// The preview of all logits is made of the first columns of A = W' S P, the ones with the largest
// singular values; m.h is left out, which all labels share. Around it is an interval of the length
// factor ||z|| r_s on each side, r_s the norm of the other columns of row s, and the labels that
// the intervals do not exclude from the best k get their logits. As long as a factor is below 1 an
// interval may not hold the logit: the factor suffices for most contexts but is no bound.
//
// Previews are computed from int8 codes in panels, as the candidates of a screen are, and z from
// int8 codes of h. The labels that are left go through the codes of the layer first, and the rest
// is scored by the reference arithmetic.
//
//   - Width is the number of columns.
//   - Factors are the settings, ascending. With a very large one all labels get their logits.
type WeightedSVD struct {
	Width   int
	Factors []float64
}

// Name returns "Weighted SVD".
func (WeightedSVD) Name() string { return "Weighted SVD" }

// Params returns the width.
func (m WeightedSVD) Params() string { return fmt.Sprintf("w=%d", m.Width) }

// momentContexts is the number of contexts that second moments are taken from, spread over all.
const momentContexts = 8192

// leastMoment is the share of the largest second moment of a direction that the others have at
// least: contexts may have fewer directions than dimensions.
const leastMoment = 1e-9

// Build finds S and P from in.Contexts. A Width above the dimension counts as the dimension.
func (m WeightedSVD) Build(ctx context.Context, in *Input) (Index, error) {
	if m.Width < 1 {
		return nil, fmt.Errorf("methods: width: found %d, expected at least 1", m.Width)
	}
	if len(in.Contexts) == 0 {
		return nil, errors.New("methods: contexts: found none, expected some for their second moments")
	}
	if len(m.Factors) == 0 {
		return nil, errors.New("methods: factors: found none, expected at least one")
	}
	for i, f := range m.Factors {
		if !(f >= 0) || i > 0 && f <= m.Factors[i-1] {
			return nil, fmt.Errorf("methods: factors: found %v, expected ascending numbers of at least 0", m.Factors)
		}
	}
	v, err := newView(ctx, in.Layer, in.Contexts, min(m.Width, in.Layer.Dim()))
	if err != nil {
		return nil, err
	}
	to, err := allPanels(v.to, nil, in.Layer.Dim(), nil)
	if err != nil {
		return nil, err
	}
	x := &weightedIndex{layer: in.Layer}
	for _, f := range m.Factors {
		rest := make([]float64, len(v.rest))
		for s, r := range v.rest {
			rest[s] = f * r
		}
		rows, err := allPanels(v.rows, in.Layer.Bias(), v.width, rest)
		if err != nil {
			return nil, err
		}
		x.settings = append(x.settings, weightedSetting{in.Layer, f, v.width, to, rows})
	}
	return x, nil
}

// view is a layer in the first of the coordinates.
type view struct {
	width int
	to    []float32 // width x d: P^T S^-1, so that z = to h
	rows  []float32 // L x width: A
	rest  []float64 // L: the norms of the other columns
}

func newView(ctx context.Context, l *exact.Layer, contexts []float32, width int) (*view, error) {
	d, labels, w := l.Dim(), l.Labels(), dense.Weights(l)
	step := max(1, len(contexts)/d/momentContexts)
	moments, err := sumOfSquares(ctx, contexts, step, make([]float64, d))
	if err != nil {
		return nil, err
	}
	mean := make([]float64, d)
	for s := range labels {
		for j, x := range w[s*d : (s+1)*d] {
			mean[j] += float64(x) / float64(labels)
		}
	}
	gram, err := sumOfSquares(ctx, w, 1, mean)
	if err != nil {
		return nil, err
	}
	// S is q, the eigenvectors, times the roots of the eigenvalues.
	values, q, err := eigen(moments)
	if err != nil {
		return nil, err
	}
	roots, inverse := make([]float64, d), make([]float64, d)
	for i, x := range values {
		count := float64((len(contexts)/d + step - 1) / step)
		roots[i] = math.Sqrt(max(x, leastMoment*values[0], math.SmallestNonzeroFloat32) / count)
		inverse[i] = 1 / roots[i]
	}
	var s, product, between, columns, to mat.Dense
	s.Mul(q, mat.NewDiagDense(d, roots))
	product.Mul(gram, &s)
	between.Mul(s.T(), &product)
	symmetric := mat.NewSymDense(d, nil)
	for i := range d {
		for j := i; j < d; j++ {
			symmetric.SetSym(i, j, between.At(i, j))
		}
	}
	_, p, err := eigen(symmetric)
	if err != nil {
		return nil, err
	}
	columns.Mul(&s, p)
	product.Mul(mat.NewDiagDense(d, inverse), q.T())
	to.Mul(p.T(), &product)

	v := &view{width: width, to: make([]float32, width*d), rows: make([]float32, labels*width), rest: make([]float64, labels)}
	for i := range v.to {
		v.to[i] = float32(to.At(i/d, i%d))
	}
	return v, v.turn(ctx, w, mean, columns.RawMatrix())
}

// turn sets the rows and the norms that they leave out, from the rows of w less their mean times
// columns, d x d.
func (v *view) turn(ctx context.Context, w []float32, mean []float64, columns blas64.General) error {
	d := len(mean)
	from, to := make([]float64, rowBlock*d), make([]float64, rowBlock*d)
	for at := 0; at < len(v.rest); at += rowBlock {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(rowBlock, len(v.rest)-at)
		for i, x := range w[at*d : (at+n)*d] {
			from[i] = float64(x) - mean[i%d]
		}
		blas64.Gemm(blas.NoTrans, blas.NoTrans, 1, blas64.General{Rows: n, Cols: d, Stride: d, Data: from[:n*d]}, columns,
			0, blas64.General{Rows: n, Cols: d, Stride: d, Data: to[:n*d]})
		for i := range n {
			row := to[i*d : (i+1)*d]
			for j, x := range row[:v.width] {
				v.rows[(at+i)*v.width+j] = float32(x)
			}
			square := 0.0
			for _, x := range row[v.width:] {
				square += x * x
			}
			v.rest[at+i] = math.Sqrt(square)
		}
	}
	return nil
}

// rowBlock is the number of rows that are widened to float64 at a time.
const rowBlock = 256

// sumOfSquares returns the sum of (x-mean)(x-mean)^T over every step-th row x.
func sumOfSquares(ctx context.Context, rows []float32, step int, mean []float64) (*mat.SymDense, error) {
	d := len(mean)
	sum := mat.NewSymDense(d, nil)
	wide := make([]float64, 0, rowBlock*d)
	for at := 0; at < len(rows); at += step * d {
		for j, x := range rows[at : at+d] {
			wide = append(wide, float64(x)-mean[j])
		}
		if len(wide) == cap(wide) || at+step*d >= len(rows) {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			blas64.Syrk(blas.Trans, 1, blas64.General{Rows: len(wide) / d, Cols: d, Stride: d, Data: wide}, 1, sum.RawSymmetric())
			wide = wide[:0]
		}
	}
	return sum, nil
}

// eigen returns the eigenvalues of m, the largest first, and the eigenvectors as columns.
func eigen(m *mat.SymDense) ([]float64, *mat.Dense, error) {
	var e mat.EigenSym
	if !e.Factorize(m, true) {
		return nil, nil, errors.New("methods: the eigenvectors did not converge")
	}
	var vectors mat.Dense
	e.VectorsTo(&vectors)
	// Eigenvalues ascend.
	values := e.Values(nil)
	slices.Reverse(values)
	for i := range values {
		slices.Reverse(vectors.RawRowView(i))
	}
	return values, &vectors, nil
}

// allPanels returns the codes of all rows in panels. rest, unless nil, is the norm of each row in
// the coordinates that are left out, which adds to the error of its codes.
func allPanels(rows, bias []float32, dim int, rest []float64) (*kernels.Int8Panels, error) {
	n, stride := len(rows)/dim, kernels.Int8Stride(dim)
	records := make([]byte, n*stride)
	codes, err := encode.NewInt8Rows(records, kernels.Float32Rows(rows, dim), bias)
	if err != nil {
		return nil, err
	}
	for i, r := range rest { // the third of the four floats after the codes
		at := records[(i+1)*stride-8:]
		length := float64(math.Float32frombits(binary.LittleEndian.Uint32(at)))
		binary.LittleEndian.PutUint32(at, math.Float32bits(float32(math.Hypot(length, r))))
	}
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i)
	}
	table, free := mem.Alloc((n + kernels.PanelRows - 1) / kernels.PanelRows * kernels.PanelBytes(dim, false))
	p, err := encode.NewPanels(codes, table, ids, []int{0, n})
	if err != nil {
		return nil, err
	}
	if free != nil {
		runtime.AddCleanup(p, func(free func()) { free() }, free)
	}
	return p, nil
}

type weightedIndex struct {
	layer    *exact.Layer
	settings []Setting
}

// Bytes returns the memory of one setting: all have the same.
func (x *weightedIndex) Bytes() int64 { return x.settings[0].(weightedSetting).bytes() }

func (x *weightedIndex) Settings() []Setting { return x.settings }

type weightedSetting struct {
	layer    *exact.Layer
	factor   float64
	width    int
	to, rows *kernels.Int8Panels // codes of the rows of P^T S^-1, and of A
}

func (s weightedSetting) Params() string { return fmt.Sprintf("f=%g", s.factor) }

func (s weightedSetting) bytes() int64 {
	return int64(s.to.Len()*kernels.PanelBytes(s.layer.Dim(), false)+s.rows.Len()*kernels.PanelBytes(s.width, false)) + layerCodes(s.layer)
}

func (s weightedSetting) Searcher() Searcher {
	elements, labels := s.to.Len()*kernels.PanelRows, s.rows.Len()*kernels.PanelRows
	x := &weightedSearcher{
		weightedSetting: s, h: kernels.NewInt8Vector(s.layer.Dim()), z: kernels.NewInt8Vector(s.width),
		lowerZ: make([]float32, elements), upperZ: make([]float32, elements),
		lower: make([]float32, labels), upper: make([]float32, labels), ids: make([]uint32, labels),
		query: [1]*exact.Query{exact.NewQuery(s.layer.Dim())}, exact: newExactSearch(s.layer),
	}
	x.query[0].Reserve(min(s.layer.Labels(), mostShort))
	return x
}

// mostShort is the number of labels up to which a query takes the short path to their logits.
const mostShort = 4096

type weightedSearcher struct {
	weightedSetting
	h, z           *kernels.Int8Vector
	lowerZ, upperZ []float32
	lower, upper   []float32
	ids            []uint32
	query          [1]*exact.Query
	exact          exactSearch
}

func (s *weightedSearcher) TopK(dst []exact.Prediction, h []float32) int {
	if len(dst) == 0 {
		return 0
	}
	ids, ok := s.left(len(dst), h)
	if !ok {
		return s.exact.topK(dst, h, exact.Labels{})
	}
	if err := s.query[0].Set(h); err != nil {
		panic(err) // left has looked at it
	}
	k := min(len(dst), s.layer.Labels())
	var answers [1]exact.Answer
	if err := s.exact.Searcher.Find(dst[:k], answers[:], s.query[:], &exact.Request{Among: exact.Only(ids)}); err != nil {
		panic(err)
	}
	return answers[0].Count
}

// left returns the labels that the intervals leave. It reports false where h or z has no codes.
func (s *weightedSearcher) left(k int, h []float32) (ids []uint32, ok bool) {
	if s.h.Set(h) != kernels.Certified {
		return nil, false
	}
	s.to.Bounds(s.lowerZ, s.upperZ, 0, s.to.Len(), s.h)
	for j, x := range s.upperZ[:s.width] {
		s.lowerZ[j] = (s.lowerZ[j] + x) / 2
	}
	if s.z.Set(s.lowerZ[:s.width]) != kernels.Certified {
		return nil, false
	}
	labels := s.layer.Labels()
	return s.ids[:s.rows.Survivors(s.lower, s.upper, s.ids, 0, labels, min(k, labels), s.z)], true
}
