// Package layerfile opens the softmax layer that a command is given as files, see
// package head for their forms, and contexts for it.
package layerfile

import (
	"fmt"

	"github.com/learning-to-screen/l2s/head"
	"github.com/learning-to-screen/l2s/internal/tensorfile"
	"github.com/learning-to-screen/l2s/softmax"
)

// Open reads the layer whose weights, labels x dim, and bias, one number a label or
// head.NoBias, are in files. An error names the file, what was found and what was
// expected.
func Open(weights, bias string) (*softmax.Layer, error) {
	h, err := head.Open(weights, head.Options{Bias: bias, Copy: true})
	if err != nil {
		return nil, err
	}
	defer h.Close() // whose rows are copies
	l, err := softmax.NewLayer(h.Rows(), h.Bias())
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
