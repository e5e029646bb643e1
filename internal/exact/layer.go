package exact

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"

	"github.com/learning-to-screen/l2s/internal/bigmem"
	"github.com/learning-to-screen/l2s/internal/encode"
	"github.com/learning-to-screen/l2s/internal/fingerprint"
	"github.com/learning-to-screen/l2s/internal/kernels"
	"github.com/learning-to-screen/l2s/internal/parallel"
)

// Layer is softmax.Layer.
type Layer struct {
	rows kernels.Rows
	bias []float32
	// One of these, or none if the envelope certifies nothing: rows that are quantised, or have
	// outliers, have blocks.
	blocks *kernels.BlockRows
	codes  *kernels.Int8Rows
	coarse *kernels.Int4Rows // nil for a layer too small to need a first pass
	team   *team             // shares scans among threads; nil for one

	fingerprint func() [32]byte
}

// NewLayer is softmax.NewLayer.
func NewLayer(weights kernels.Rows, bias []float32) (*Layer, error) {
	labels := weights.Len()
	if labels < 1 {
		return nil, errors.New("softmax: weights: found no rows, expected at least 1")
	}
	if uint64(labels) > math.MaxUint32 {
		return nil, fmt.Errorf("softmax: weights: found %d rows, expected at most %d", labels, uint32(math.MaxUint32))
	}
	if bias == nil {
		bias = make([]float32, labels)
	}
	if len(bias) != labels {
		return nil, fmt.Errorf("softmax: bias: found %d elements, expected one for each of %d rows of weights", len(bias), labels)
	}
	if i, j, found := kernels.FirstNotFinite(kernels.Float32Rows(bias, 1)); found {
		return nil, fmt.Errorf("softmax: bias: found %v at element %d, expected finite numbers", bias[i+j], i)
	}
	l := &Layer{rows: weights, bias: bias}
	l.fingerprint = sync.OnceValue(func() [32]byte { return fingerprint.Of(weights.Dim(), weights.Widen, bias) })
	if err := l.encode(); err == nil {
		kernels.Advise(weights, bigmem.Advise)
		return l, nil
	} else if errors.Is(err, parallel.ErrGone) {
		return nil, fmt.Errorf("softmax: weights: %w", err)
	}
	// Rows that cannot be certified are no error: the reference arithmetic answers for them. Rows
	// that are not finite are among them.
	if i, j, found := kernels.FirstNotFinite(weights); found {
		row := make([]float32, weights.Dim())
		weights.Widen(row, i)
		return nil, fmt.Errorf("softmax: weights: found %v at row %d, column %d, expected finite numbers", row[j], i, j)
	}
	return l, nil
}

// encode makes the codes in one pass. Without an error all rows are finite.
func (l *Layer) encode() error {
	labels, dim := l.Labels(), l.Dim()
	if kernels.Quantised(l.rows.Element()) {
		kernels.Advise(l.rows, bigmem.Reload)
		blocks, err := encode.NewBlockRows(l.rows, l.bias)
		if err == nil {
			l.blocks = blocks
		}
		return err
	}
	if l.crest() > mostCrest {
		table, release := bigmem.Alloc(labels * encode.BlockBytes(dim))
		blocks, err := encode.NewBlockCopies(table, l.rows, l.bias)
		if l.blocks = own(blocks, err, release); err == nil || errors.Is(err, parallel.ErrGone) {
			return err
		}
	}
	if dim > kernels.MaxInt8Dim || labels > math.MaxInt/kernels.Int8Stride(dim) {
		return errors.New("softmax: the dimension is too large for codes")
	}
	table, release := bigmem.Alloc(labels * kernels.Int8Stride(dim))
	if labels < minCoarse {
		codes, err := encode.NewInt8Rows(table, l.rows, l.bias)
		l.codes = own(codes, err, release)
		return err
	}
	table4, release4 := bigmem.Alloc(labels * kernels.Int4Stride(dim))
	codes, coarse, err := encode.NewInt8And4Rows(table, table4, l.rows, l.bias)
	l.codes, l.coarse = own(codes, err, release), own(coarse, err, release4)
	return err
}

// mostCrest is the crest factor of rows, the largest magnitude of a row over its root mean square,
// up to which one scale for a row is enough. Rows and states of large language models have
// outliers: factors of 5.2 to 7, and 11 to 15. Of small models trained without them rows have 2.8
// to 4.2, and states 1.5 to 3.1: codes of a row with one scale take fewer steps there, and codes of
// 4 bits exclude most rows.
const mostCrest = 4.7

// crest returns the mean crest factor of some rows, 0 if one is not finite.
func (l *Layer) crest() float64 {
	row, sum, n := make([]float32, l.Dim()), 0.0, 0
	for i := 0; i < l.Labels(); i += l.Labels()/crestRows + 1 {
		l.rows.Widen(row, i)
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

// own returns rows, whose table is released when they are unreachable; or, if there is an
// error, releases it and returns nil.
func own[T any](rows *T, err error, release func()) *T {
	if err != nil {
		release()
		return nil
	}
	runtime.AddCleanup(rows, func(release func()) { release() }, release)
	return rows
}

// Labels returns L, the number of labels.
func (l *Layer) Labels() int { return l.rows.Len() }

// Dim returns d, the dimension of a context.
func (l *Layer) Dim() int { return l.rows.Dim() }

// Weights returns W, labels x dim.
func (l *Layer) Weights() kernels.Rows { return l.rows }

// Bias returns b, one element a label. It must not be changed.
func (l *Layer) Bias() []float32 { return l.bias }

// Fingerprint is softmax.Layer.Fingerprint.
func (l *Layer) Fingerprint() [32]byte { return l.fingerprint() }
