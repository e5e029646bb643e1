package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/files/heads"
	"github.com/learning-to-screen/l2s/internal/ground/parallel"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// Matrix is l2s.Matrix: rows, or the reason why there are none.
type Matrix struct {
	rows kernels.Rows
	err  error
}

// MatrixOf returns the matrix with rows of dim elements in data, of a type of blocks of elements.
func MatrixOf[T any](data []T, e kernels.Element, dim int, rows func() kernels.Rows) Matrix {
	if e.String() == "unknown" {
		return Matrix{err: fmt.Errorf("l2s: matrix: found the unknown type %d", e)}
	}
	elements, bytes := kernels.BlockOf(e)
	size := bytes / int(unsafe.Sizeof(*new(T))) // of a block
	switch {
	case dim < 1 || dim%elements != 0:
		return Matrix{err: fmt.Errorf("l2s: matrix: found the dimension %d, expected a multiple of %d", dim, elements)}
	case len(data)%(dim/elements*size) != 0:
		return Matrix{err: fmt.Errorf("l2s: matrix: found %d numbers, expected a multiple of %d, for rows of %d elements", len(data), dim/elements*size, dim)}
	}
	return Matrix{rows: rows()}
}

// MatrixOfRows returns the matrix with these rows.
func MatrixOfRows(rows kernels.Rows) Matrix { return Matrix{rows: rows} }

// Rows returns the rows.
func (m Matrix) Rows() (kernels.Rows, error) { return m.rows, m.err }

// Layer is l2s.Layer: a layer, and the head that has its rows.
type Layer struct {
	exact *exact.Layer
	head  *heads.Head // nil for rows in the caller's memory
}

// NewLayer is l2s.New.
func NewLayer(m Matrix, bias []float32) (*Layer, error) {
	if m.err != nil {
		return nil, m.err
	}
	l, err := exact.NewLayer(m.rows, bias)
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

// Open is l2s.Open. normed: contexts are states from after the last normalisation.
func Open(source string, o heads.Options, normed bool) (*Layer, error) {
	h, err := heads.Open(source, o)
	if err != nil {
		return nil, err
	}
	l := &Layer{head: h}
	state := 1.0
	if normed {
		state = h.StateScale()
	}
	err = h.Read(func() (err error) {
		l.exact, err = layerOf(h, state)
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

// layerOf returns the layer of a head, with the scale and the soft cap of its model. Contexts are
// contexts at the head times 1/state.
func layerOf(h *heads.Head, state float64) (*exact.Layer, error) {
	bias := h.Bias()
	if state != 1 && bias != nil {
		// The model's logit of a state h is w.(state h) + b = state (w.h + b/state).
		bias = slices.Clone(bias)
		for i, b := range bias {
			bias[i] = float32(float64(b) / state)
		}
	}
	l, err := exact.NewLayer(h.Rows(), bias)
	if err != nil {
		return nil, err
	}
	return l.Scaled(h.LogitScale()*state, h.SoftCap())
}

// Scaled is l2s.Layer.Scaled.
func (l *Layer) Scaled(scale, softCap float64) (*Layer, error) {
	if err := l.Check(); err != nil {
		return nil, err
	}
	x, err := l.exact.Scaled(scale, softCap)
	if err != nil {
		return nil, err
	}
	return &Layer{x, l.head}, nil
}

var errNoLayer = errors.New("l2s: layer: found none, expected one of Open or New")

// Check returns an error for a layer that no constructor made.
func (l *Layer) Check() error {
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
	if err := l.Check(); err != nil {
		return err
	}
	return l.head.Read(f)
}

// Work is Read for an f that has its own guards, because it reads other mapped memory too: if it
// returns [parallel.ErrGone], and the layer cannot be read, the error tells so.
func (l *Layer) Work(f func() error) error {
	err := l.Read(f)
	if errors.Is(err, parallel.ErrGone) && l.head != nil {
		return cmp.Or(l.head.Check(), err)
	}
	return err
}

// Close is l2s.Layer.Close.
func (l *Layer) Close() error {
	if l == nil || l.head == nil {
		return nil
	}
	return l.head.Close()
}
