// Package layerfile opens the softmax layer that a command is given as files, see
// package head for their forms.
package layerfile

import (
	"fmt"

	"github.com/learning-to-screen/l2s/head"
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
	defer h.Close()
	rows, ok := h.Rows().AsFloat32()
	if !ok {
		rows = make([]float32, h.Labels()*h.Dim())
		for i := range h.Labels() {
			h.Rows().Widen(rows[i*h.Dim():(i+1)*h.Dim()], i)
		}
	}
	l, err := softmax.NewLayer(rows, h.Bias(), h.Dim())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", weights, err)
	}
	return l, nil
}
