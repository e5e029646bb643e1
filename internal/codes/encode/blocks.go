package encode

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"sync"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/float16"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
	"github.com/learning-to-screen/l2s/internal/ground/parallel"
)

// NewBlockRows prepares quantised rows and their bias (nil for none), on all cores. The rows are
// kept. Errors are as from [NewInt8Rows].
func NewBlockRows(rows kernels.Rows, bias []float32) (*kernels.BlockRows, error) {
	if !kernels.Quantised(rows.Element()) {
		panic("encode: element is not quantised")
	}
	return blockRows(rows, rows.Dim(), bias, func(i int) (norm, rest float64, err error) {
		return math.Sqrt(kernels.Squares(rows, i)), 0, nil
	})
}

const (
	blockRow   = 32 // weights of a block of Q8_0
	blockBytes = 34
	maxWeight  = 0x1p20
)

// BlockBytes returns the memory of [NewBlockCopies] for one row of dimension dim.
func BlockBytes(dim int) int { return (dim + blockRow - 1) / blockRow * blockBytes }

// NewBlockCopies is NewBlockRows for copies of rows of another type as blocks of Q8_0, in data, which
// it keeps, with BlockBytes(Dim) bytes per row. A scale per 32 weights is more precise for rows
// with outliers than one scale for all. It also returns an error for weights above 2^20, whose
// scale is no float16.
func NewBlockCopies(data []byte, rows kernels.Rows, bias []float32) (*kernels.BlockRows, error) {
	dim, size := rows.Dim(), BlockBytes(rows.Dim())
	if len(data) != rows.Len()*size {
		panic("encode: length of data is not the number of rows times the size of their blocks")
	}
	padded := size / blockBytes * blockRow
	scratch := sync.Pool{New: func() any { return new([]float32) }}
	return blockRows(kernels.QuantisedRows(data, kernels.Q8_0, padded), dim, bias, func(i int) (norm, rest float64, err error) {
		p := scratch.Get().(*[]float32)
		defer scratch.Put(p)
		row := mem.Grow(*p, padded)
		*p = row
		clear(row[dim:])
		rows.Widen(row[:dim], i)
		blocks := data[i*size:][:size]
		for at := 0; at < len(row); at += blockRow {
			n, e, ok := encodeBlock(blocks[at/blockRow*blockBytes:][:blockBytes], (*[blockRow]float32)(row[at:]))
			if !ok {
				return 0, 0, fmt.Errorf("encode: row %d: found a weight that is not a number or above %g, expected none", i, maxWeight)
			}
			norm += n
			rest += e
		}
		return math.Sqrt(norm), math.Sqrt(rest), nil
	})
}

// encodeBlock makes a block of Q8_0 of weights, and returns the squares of its length and of its
// error.
func encodeBlock(block []byte, w *[blockRow]float32) (norm, rest float64, ok bool) {
	largest := float32(0)
	for _, x := range w {
		if a := float32(math.Abs(float64(x))); !(a <= largest) {
			largest = a
		}
	}
	if !(largest <= maxWeight) {
		return 0, 0, false
	}
	bits, _ := float16.Narrow(largest / kernels.MaxCode)
	binary.LittleEndian.PutUint16(block, bits)
	d := float16.Widen(bits)
	inv := 0.0
	if d > 0 {
		inv = 1 / float64(d)
	}
	for j, x := range w {
		q := max(min(math.RoundToEven(float64(float64(x)*inv)), kernels.MaxCode), -kernels.MaxCode)
		block[2+j] = byte(int8(q))
		y := float64(float64(d) * q)
		norm += float64(y * y)
		rest += float64((float64(x) - y) * (float64(x) - y))
	}
	return norm, rest, true
}

// blockRows returns blocks for contexts of dimension dim, with the result of f for each row: its
// norm, and its distance from the blocks.
func blockRows(blocks kernels.Rows, dim int, bias []float32, f func(i int) (norm, rest float64, err error)) (*kernels.BlockRows, error) {
	slack, err := slackOf(blocks.Len(), dim, bias)
	if err != nil {
		return nil, err
	}
	meta := make([]kernels.BlockMeta, blocks.Len())
	for i, b := range bias {
		meta[i].Bias = b
	}
	err = parallel.Each(context.Background(), 0, blocks.Len(), encodeChunk, nil, func(_, lo, hi int) error {
		for i := lo; i < hi; i++ {
			norm, rest, err := f(i)
			if err == nil && !(norm <= kernels.MaxCertified) {
				err = fmt.Errorf("encode: row %d: found a weight that is not a number or above %g, expected none", i, kernels.MaxCertified)
			}
			if err != nil {
				return err
			}
			meta[i].Norm, meta[i].Err = kernels.RoundUp(norm*(1+0x1p-20)), kernels.RoundUp(rest*(1+0x1p-20))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return kernels.NewBlockRows(blocks, dim, meta, slack), nil
}
