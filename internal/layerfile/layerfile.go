// Package layerfile opens the softmax layer that a command is given as files
// of tensors, see package tensorfile for their forms.
package layerfile

import (
	"fmt"

	"github.com/learning-to-screen/l2s/internal/tensorfile"
	"github.com/learning-to-screen/l2s/softmax"
)

// NoBias is the source of the bias of a layer that has none.
const NoBias = "none"

// Open reads the layer whose weights, labels x dim, and bias, one number a
// label or NoBias, are tensors in files. An error names the file, what was
// found and what was expected.
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
		if err := t.ExpectShape(w.Rows()); err != nil {
			return nil, fmt.Errorf("%w, one number for each row of %s", err, weights)
		}
		if b, err = t.Float32s(); err != nil {
			return nil, err
		}
	}
	rows, err := w.Float32s() // which does not depend on the file
	if err != nil {
		return nil, err
	}
	l, err := softmax.NewLayer(rows, b, w.Cols())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", weights, err)
	}
	return l, nil
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
