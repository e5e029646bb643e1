package exact

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/learning-to-screen/l2s/internal/codes/encode"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
	"github.com/learning-to-screen/l2s/internal/ground/parallel"
)

// Layer is l2s.Layer.
type Layer struct {
	rows kernels.Rows
	bias []float32
	// See [encode.NewCodes].
	blocks *kernels.BlockRows
	codes  *kernels.Int8Rows
	coarse *kernels.Int4Rows
	team   *team  // shares scans among threads; nil for one
	final  *final // nil for the logits w.h + b

	fingerprint func() [32]byte
}

// NewLayer is l2s.New.
func NewLayer(weights kernels.Rows, bias []float32) (*Layer, error) {
	labels := weights.Len()
	if labels < 1 {
		return nil, errors.New("l2s: weights: found no rows, expected at least 1")
	}
	if uint64(labels) > math.MaxUint32 {
		return nil, fmt.Errorf("l2s: weights: found %d rows, expected at most %d", labels, uint32(math.MaxUint32))
	}
	if bias == nil {
		bias = make([]float32, labels)
	}
	if len(bias) != labels {
		return nil, fmt.Errorf("l2s: bias: found %d elements, expected one for each of %d rows of weights", len(bias), labels)
	}
	if i, j, found := kernels.FirstNotFinite(kernels.Float32Rows(bias, 1)); found {
		return nil, fmt.Errorf("l2s: bias: found %v at element %d, expected finite numbers", bias[i+j], i)
	}
	l := &Layer{rows: weights, bias: bias}
	l.fingerprint = sync.OnceValue(func() [32]byte { return fingerprintOf(weights.Dim(), weights.Widen, bias) })
	var err error
	if l.blocks, l.codes, l.coarse, err = encode.NewCodes(weights, bias); err == nil {
		kernels.Advise(weights, mem.Advise)
		return l, nil
	} else if errors.Is(err, parallel.ErrGone) {
		return nil, fmt.Errorf("l2s: weights: %w", err)
	}
	// Rows that cannot be certified are no error: the reference arithmetic answers for them. Rows
	// that are not finite are among them.
	if i, j, found := kernels.FirstNotFinite(weights); found {
		row := make([]float32, weights.Dim())
		weights.Widen(row, i)
		return nil, fmt.Errorf("l2s: weights: found %v at row %d, column %d, expected finite numbers", row[j], i, j)
	}
	return l, nil
}

// Labels returns L, the number of labels.
func (l *Layer) Labels() int { return l.rows.Len() }

// Dim returns d, the dimension of a context.
func (l *Layer) Dim() int { return l.rows.Dim() }

// Weights returns W, labels x dim.
func (l *Layer) Weights() kernels.Rows { return l.rows }

// Bias returns b, one element a label. It must not be changed.
func (l *Layer) Bias() []float32 { return l.bias }

// Fingerprint is l2s.Layer.Fingerprint.
func (l *Layer) Fingerprint() [32]byte { return l.fingerprint() }

// Fits returns an error, [ErrLayer], unless a model was made for a layer of this shape, with this
// layer's fingerprint or another one that stands for it. A bias that was forgotten, or that the layer
// should not have, is named.
func (l *Layer) Fits(kind string, labels, dim int, made, other [32]byte) error {
	if labels != l.Labels() || dim != l.Dim() {
		return Invalid(ErrLayer, "l2s: index: found a %s for %d labels x %d, expected the layer's %d x %d", kind, labels, dim, l.Labels(), l.Dim())
	}
	if made == other || made == l.Fingerprint() {
		return nil
	}
	own, hint := l.Fingerprint(), ""
	if slices.ContainsFunc(l.bias, func(b float32) bool { return b != 0 }) {
		if fingerprintOf(l.Dim(), l.rows.Widen, make([]float32, l.Labels())) == made {
			hint = " with these weights and without a bias: leave the bias out"
		}
	} else {
		hint = ", or for these weights with a bias, which this one lacks: was it forgotten?"
	}
	return Invalid(ErrLayer, "l2s: %s: fingerprint: found %x, expected the layer's, %x: the model was made for another layer%s", kind, made, own, hint)
}
