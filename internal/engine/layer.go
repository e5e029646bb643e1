package engine

import (
	"errors"
	"fmt"

	"github.com/learning-to-screen/l2s/internal/exact"
	"github.com/learning-to-screen/l2s/internal/heads"
	"github.com/learning-to-screen/l2s/internal/kernels"
)

// Matrix is l2s.Matrix.
type Matrix = kernels.Rows

// Layer is l2s.Layer: a layer, and the head that has its rows.
type Layer struct {
	exact *exact.Layer
	head  *heads.Head // nil for rows in the caller's memory
}

// NewLayer is l2s.New.
func NewLayer(weights kernels.Rows, bias []float32) (*Layer, error) {
	l, err := exact.NewLayer(weights, bias)
	if err != nil {
		return nil, err
	}
	return &Layer{exact: l}, nil
}

// Over returns a layer of rows in the caller's memory.
func Over(l *exact.Layer) *Layer {
	if l == nil {
		return nil
	}
	return &Layer{exact: l}
}

// Open is l2s.Open.
func Open(source string, o heads.Options) (*Layer, error) {
	h, err := heads.Open(source, o)
	if err != nil {
		return nil, err
	}
	l := &Layer{head: h}
	err = h.Read(func() (err error) {
		l.exact, err = exact.NewLayer(h.Rows(), h.Bias())
		return err
	})
	if err != nil {
		if bad := h.Check(); bad != nil { // tells the place, and a way out
			err = bad
		} else {
			err = fmt.Errorf("%s: %w", source, err)
		}
		h.Close()
		return nil, err
	}
	return l, nil
}

var errNoLayer = errors.New("l2s: layer: found none, expected one of Open or New")

// check returns an error for a layer that no constructor made.
func (l *Layer) check() error {
	if l == nil || l.exact == nil || l.exact.Labels() == 0 {
		return errNoLayer
	}
	return nil
}

// Exact returns the layer itself. Its rows are read within [Layer.Read].
func (l *Layer) Exact() *exact.Layer { return l.exact }

// Head returns the head that has the rows, nil for rows in the caller's memory.
func (l *Layer) Head() *heads.Head { return l.head }

// String is l2s.Layer.String.
func (l *Layer) String() string {
	if l.head != nil {
		return l.head.String()
	}
	return fmt.Sprintf("%d x %d %s, of the program", l.Labels(), l.Dim(), l.exact.Weights().Element())
}

// Labels returns L.
func (l *Layer) Labels() int { return l.exact.Labels() }

// Dim returns d.
func (l *Layer) Dim() int { return l.exact.Dim() }

// Read runs f, which reads the rows of the layer: see [heads.Head.Read].
func (l *Layer) Read(f func() error) error {
	if err := l.check(); err != nil {
		return err
	}
	if l.head == nil {
		return f()
	}
	return l.head.Read(f)
}

// Close is l2s.Layer.Close.
func (l *Layer) Close() error {
	if l == nil || l.head == nil {
		return nil
	}
	return l.head.Close()
}
