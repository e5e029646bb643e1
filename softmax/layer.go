package softmax

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"sync"

	"github.com/learning-to-screen/l2s/internal/bigmem"
	"github.com/learning-to-screen/l2s/kernels"
)

// Layer is a softmax layer: weights W (labels x dim, row s is w_s) and bias
// b. It is immutable and safe for use by many goroutines.
type Layer struct {
	weights, bias []float32
	labels, dim   int
	codes         *kernels.Int8Rows // nil where the envelope certifies nothing
	coarse        *kernels.Int4Rows // nil for a layer too small to need a first pass

	fingerprint func() [32]byte
}

// NewLayer returns the layer with the given weights, row-major with rows of
// dim elements, and bias, one element a row, or nil for zeros. The slices are
// kept, not copied, and must not be changed.
//
// It returns an error where the lengths do not fit each other, where there is
// no row, or where a weight or a bias is NaN or infinite.
func NewLayer(weights, bias []float32, dim int) (*Layer, error) {
	if dim < 1 {
		return nil, fmt.Errorf("softmax: dim: found %d, expected at least 1", dim)
	}
	if len(weights) == 0 || len(weights)%dim != 0 {
		return nil, fmt.Errorf("softmax: weights: found %d elements, expected a positive multiple of dim %d", len(weights), dim)
	}
	labels := len(weights) / dim
	if uint64(labels) > math.MaxUint32 {
		return nil, fmt.Errorf("softmax: weights: found %d rows, expected at most %d", labels, uint32(math.MaxUint32))
	}
	if bias == nil {
		bias = make([]float32, labels)
	}
	if len(bias) != labels {
		return nil, fmt.Errorf("softmax: bias: found %d elements, expected one for each of %d rows of weights", len(bias), labels)
	}
	if i := firstNotFinite(weights); i >= 0 {
		return nil, fmt.Errorf("softmax: weights: found %v at row %d, column %d, expected finite numbers", weights[i], i/dim, i%dim)
	}
	if i := firstNotFinite(bias); i >= 0 {
		return nil, fmt.Errorf("softmax: bias: found %v at element %d, expected finite numbers", bias[i], i)
	}
	l := &Layer{weights: weights, bias: bias, labels: labels, dim: dim}
	l.fingerprint = sync.OnceValue(l.hash)
	// Rows that cannot be certified are no error: the reference arithmetic
	// answers for them.
	if dim > kernels.MaxInt8Dim || labels > math.MaxInt/kernels.Int8Stride(dim) {
		return l, nil
	}
	table, release := bigmem.Alloc(labels * kernels.Int8Stride(dim))
	codes, err := kernels.NewInt8Rows(table, kernels.Float32Rows(weights, dim), bias)
	if l.codes = own(codes, err, release); l.codes == nil || labels < minCoarse {
		return l, nil
	}
	table, release = bigmem.Alloc(labels * kernels.Int4Stride(dim))
	coarse, err := kernels.NewInt4Rows(table, kernels.Float32Rows(weights, dim), bias)
	l.coarse = own(coarse, err, release)
	return l, nil
}

// minCoarse is the number of labels from which a first pass over 4-bit codes
// pays.
const minCoarse = 2000

// own returns rows, whose table is released when they are unreachable; or,
// where there is an error, releases the table and returns nil.
func own[T any](rows *T, err error, release func()) *T {
	if err != nil {
		if release != nil {
			release()
		}
		return nil
	}
	if release != nil {
		runtime.AddCleanup(rows, func(release func()) { release() }, release)
	}
	return rows
}

func firstNotFinite(x []float32) int {
	const expMask = 0x7f800000
	for i, v := range x {
		if math.Float32bits(v)&expMask == expMask {
			return i
		}
	}
	return -1
}

// Labels returns L, the number of labels.
func (l *Layer) Labels() int { return l.labels }

// Dim returns d, the dimension of a context.
func (l *Layer) Dim() int { return l.dim }

// Weights returns W, labels x dim, row-major. It must not be changed.
func (l *Layer) Weights() []float32 { return l.weights }

// Bias returns b, one element a label. It must not be changed.
func (l *Layer) Bias() []float32 { return l.bias }

// Fingerprint returns the SHA-256 of the layer: its shape, W and b, as
// little-endian 64-bit integers and 32-bit floats. A screen carries the
// fingerprint of the layer that it was trained for. It is computed on the
// first call.
func (l *Layer) Fingerprint() [32]byte { return l.fingerprint() }

func (l *Layer) hash() [32]byte {
	h := sha256.New()
	buf := make([]byte, 0, 1<<16)
	buf = binary.LittleEndian.AppendUint64(buf, uint64(l.labels))
	buf = binary.LittleEndian.AppendUint64(buf, uint64(l.dim))
	for _, part := range [][]float32{l.weights, l.bias} {
		for _, v := range part {
			if len(buf) == cap(buf) {
				h.Write(buf)
				buf = buf[:0]
			}
			buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(v))
		}
	}
	h.Write(buf)
	return [32]byte(h.Sum(nil))
}
