package encode

import (
	"errors"
	"math"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
	"github.com/learning-to-screen/l2s/internal/ground/parallel"
)

// NewCodes makes the codes that searches of a layer read, in one pass over its rows, on all cores:
// blocks of rows that are quantised or have outliers, codes of others, and coarse ones too, which
// are nil for a layer too small to need a first pass. Without an error all rows are finite. With
// one, as if the envelope certifies nothing, there are no codes.
func NewCodes(rows kernels.Rows, bias []float32) (blocks *kernels.BlockRows, codes *kernels.Int8Rows, coarse *kernels.Int4Rows, err error) {
	labels, dim := rows.Len(), rows.Dim()
	if kernels.Quantised(rows.Element()) {
		kernels.Advise(rows, mem.Reload)
		blocks, err = NewBlockRows(rows, bias)
		return blocks, nil, nil, err
	}
	if crest(rows) > mostCrest {
		table, release := mem.Alloc(labels * BlockBytes(dim))
		blocks, err = NewBlockCopies(table, rows, bias)
		if blocks = mem.Own(blocks, err, release); err == nil || errors.Is(err, parallel.ErrGone) {
			return blocks, nil, nil, err
		}
	}
	if dim > kernels.MaxInt8Dim || labels > math.MaxInt/kernels.Int8Stride(dim) {
		return nil, nil, nil, errors.New("encode: the dimension is too large for codes")
	}
	table, release := mem.Alloc(labels * kernels.Int8Stride(dim))
	if labels < minCoarse {
		codes, err = NewInt8Rows(table, rows, bias)
		return nil, mem.Own(codes, err, release), nil, err
	}
	table4, release4 := mem.Alloc(labels * kernels.Int4Stride(dim))
	codes, coarse, err = NewInt8And4Rows(table, table4, rows, bias)
	return nil, mem.Own(codes, err, release), mem.Own(coarse, err, release4), err
}

// mostCrest is the crest factor of rows, the largest magnitude of a row over its root mean square,
// up to which one scale for a row is enough. Rows and states of large language models have
// outliers: factors of 5.2 to 7, and 11 to 15. Of small models trained without them rows have 2.8
// to 4.2, and states 1.5 to 3.1: codes of a row with one scale take fewer steps there, and codes of
// 4 bits exclude most rows.
const mostCrest = 4.7

// crest returns the mean crest factor of some rows, 0 if one is not finite.
func crest(rows kernels.Rows) float64 {
	row, sum, n := make([]float32, rows.Dim()), 0.0, 0
	for i := 0; i < rows.Len(); i += rows.Len()/crestRows + 1 {
		rows.Widen(row, i)
		largest, squares := 0.0, 0.0
		for _, x := range row {
			largest, squares = max(largest, math.Abs(float64(x))), squares+float64(float64(x)*float64(x))
		}
		if squares > 0 {
			sum += largest / math.Sqrt(squares/float64(len(row)))
		}
		n++
	}
	if !(sum < math.MaxFloat64) {
		return 0
	}
	return sum / float64(n)
}

// crestRows is about the number of rows that give the crest factor.
const crestRows = 512

// minCoarse is the number of labels from which a pass over 4-bit codes pays.
const minCoarse = 2000
