// Package layerfile opens the softmax layer that a command is given as files
// of tensors, see package tensorfile for their forms.
package layerfile

import (
	"fmt"

	"github.com/learning-to-screen/l2s/internal/tensorfile"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
)

// NoBias is the source of the bias of a layer that has none.
const NoBias = "none"

// Open reads the layer whose weights, labels x dim, and bias, one number a
// label or NoBias, are tensors in files. The bias may be a vector or a matrix of one
// row or one column. An error names the file, what was found and what was expected.
func Open(weights, bias string) (*softmax.Layer, error) {
	w, err := OpenMatrix(weights)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	var b []float32
	if bias != NoBias {
		t, err := tensorfile.OpenTensor(bias)
		if err != nil {
			return nil, err
		}
		defer t.Close()
		n := w.Rows()
		if t.ExpectShape(1, n) != nil && t.ExpectShape(n, 1) != nil {
			if err := t.ExpectShape(n); err != nil {
				if len(t.Shape) == 1 && t.Rows() == w.Cols() {
					return nil, fmt.Errorf("%w, one number for each number of %s: save its transpose", w.ExpectShape(w.Cols(), n), bias)
				}
				return nil, fmt.Errorf("%w, one number for each row of %s", err, weights)
			}
		}
		if b, err = t.Float32s(); err != nil {
			return nil, err
		}
	}
	rows, err := w.Float32s() // which does not depend on the file
	if err != nil {
		return nil, err
	}
	l, err := softmax.NewLayer(kernels.Float32Rows(rows, w.Cols()), b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", weights, err)
	}
	return l, nil
}

// OpenContexts opens contexts for a layer that Open read from weights: a matrix of at
// least one row with as many columns, or one such row alone, as a vector.
func OpenContexts(src string, l *softmax.Layer, weights string) (*tensorfile.Tensor, error) {
	t, err := tensorfile.OpenTensor(src)
	if err != nil {
		return nil, err
	}
	return asContexts(t, src, l, weights)
}

// ReadContexts is OpenContexts for a .npy file in memory, which errors call by name.
func ReadContexts(data []byte, name string, l *softmax.Layer, weights string) (*tensorfile.Tensor, error) {
	t, err := tensorfile.ReadNPY(data, name)
	if err != nil {
		return nil, err
	}
	return asContexts(t, name, l, weights)
}

// asContexts checks the shape of contexts, and closes what has another.
func asContexts(t *tensorfile.Tensor, src string, l *softmax.Layer, weights string) (*tensorfile.Tensor, error) {
	if t.ExpectShape(l.Dim()) == nil {
		t.AsRow()
	}
	if err := t.ExpectShape(-1, l.Dim()); err != nil {
		t.Close()
		err = fmt.Errorf("%w, the columns of %s", err, weights)
		switch {
		case len(t.Shape) != 2:
		case t.Cols() == l.Labels():
			return nil, fmt.Errorf("%w, or weights of %d columns: %s has so many rows, save its transpose if the columns are the labels", err, t.Cols(), weights)
		case t.Rows() == l.Dim():
			return nil, fmt.Errorf("%w: save its transpose", err)
		}
		return nil, err
	}
	if t.Rows() < 1 {
		t.Close()
		return nil, fmt.Errorf("%s: shape: found %v, expected at least one row", src, t.Shape)
	}
	return t, nil
}

// OpenMatrix opens a tensor of rank 2 with at least a row and a column.
func OpenMatrix(src string) (*tensorfile.Tensor, error) {
	t, err := tensorfile.OpenTensor(src)
	if err != nil {
		return nil, err
	}
	if err := t.ExpectShape(-1, -1); err != nil {
		t.Close()
		return nil, err
	}
	if t.Rows() < 1 || t.Cols() < 1 {
		t.Close()
		return nil, fmt.Errorf("%s: shape: found %v, expected at least one row and one column", src, t.Shape)
	}
	return t, nil
}
