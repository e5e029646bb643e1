package train

import (
	"errors"
	"fmt"

	"gonum.org/v1/gonum/mat"

	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// lowRankBlock is the number of rows of W that are widened at a time.
const lowRankBlock = 1024

// LowRank returns the best approximation of W of the given rank, from 1 to the
// smaller of labels and dim, in the sense of the sum of squared differences, as
// a tail A B: B are the rank leading right singular vectors of W, and A = W B^T.
// The vectors are the eigenvectors of W^T W, by gonum, so that the last bits of
// the factors may differ between architectures. What is computed with factors
// once made does not.
//
// It takes time and memory of the order of labels x dim x dim and dim x dim, and
// is meant to be done once, when a screen is trained. Factors that float32 does
// not hold are an error.
func LowRank(layer *softmax.Layer, rank int) (*screen.Tail, error) {
	t, err := lowRank(layer, rank)
	if err != nil {
		return nil, fmt.Errorf("train: %w", err)
	}
	return t, nil
}

// findTail returns the tail of a screen, nil if the options want none.
func findTail(layer *softmax.Layer, rank int) (*screen.Tail, error) {
	if rank == 0 {
		return nil, nil
	}
	return lowRank(layer, rank)
}

func lowRank(l *softmax.Layer, rank int) (*screen.Tail, error) {
	labels, dim := l.Labels(), l.Dim()
	if most := min(labels, dim); rank < 1 || rank > most {
		return nil, fmt.Errorf("rank: found %d, expected 1 to %d, the smaller of %d labels and dim %d", rank, most, labels, dim)
	}
	blocks := func(visit func(first int, block *mat.Dense)) {
		row, wide := make([]float32, dim), make([]float64, min(labels, lowRankBlock)*dim)
		for first := 0; first < labels; first += lowRankBlock {
			n := min(lowRankBlock, labels-first)
			for i := range n {
				l.Weights().Widen(row, first+i)
				for j, w := range row {
					wide[i*dim+j] = float64(w)
				}
			}
			visit(first, mat.NewDense(n, dim, wide[:n*dim]))
		}
	}
	gram := mat.NewSymDense(dim, nil)
	blocks(func(_ int, block *mat.Dense) { gram.SymRankK(gram, 1, block.T()) })
	var eigen mat.EigenSym
	if !eigen.Factorize(gram, true) {
		return nil, errors.New("the eigenvectors of W^T W were not found")
	}
	var all mat.Dense
	eigen.VectorsTo(&all)
	leading := all.Slice(0, dim, dim-rank, dim) // eigenvalues ascend

	columns, rows := make([]float32, rank*labels), make([]float32, rank*dim)
	// The column of the largest eigenvalue is the last one, and comes first.
	for k := range rank {
		for j := range dim {
			rows[k*dim+j] = float32(leading.At(j, rank-1-k))
		}
	}
	var product mat.Dense
	blocks(func(first int, block *mat.Dense) {
		product.Reset()
		product.Mul(block, leading)
		n, _ := product.Dims()
		for k := range rank {
			for i := range n {
				columns[k*labels+first+i] = float32(product.At(i, rank-1-k))
			}
		}
	})
	return screen.NewTail(columns, rows, labels, dim)
}
