// Package layerfile opens the softmax layer that a command is given as files, see
// package head for their forms, and contexts for it.
package layerfile

import (
	"fmt"

	"github.com/learning-to-screen/l2s/head"
	"github.com/learning-to-screen/l2s/softmax"
)

// Open opens the head source as a layer, which uses the weights of the head without
// a copy: the head is to be closed when the layer is done with. An error names the
// file, what was found and what was expected.
func Open(source string, opt head.Options) (*softmax.Layer, *head.Head, error) {
	h, err := head.Open(source, opt)
	if err != nil {
		return nil, nil, err
	}
	var l *softmax.Layer
	err = h.Read(func() (err error) {
		l, err = softmax.NewLayer(h.Rows(), h.Bias())
		return err
	})
	if err != nil {
		h.Close()
		return nil, nil, fmt.Errorf("%s: %w", source, err)
	}
	return l, h, nil
}
