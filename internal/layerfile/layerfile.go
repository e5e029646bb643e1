// Package layerfile opens the softmax layer that a command is given as files, see
// package head for their forms, and contexts for it.
package layerfile

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/learning-to-screen/l2s/head"
	"github.com/learning-to-screen/l2s/internal/tensorfile"
	"github.com/learning-to-screen/l2s/softmax"
)

// Codes are prepared codes of a layer.
type Codes struct {
	Path   string // of a file that [softmax.Layer.SaveCodes] wrote; empty for none
	Verify bool   // compares them with all of the weights
}

// Open opens the head source as a layer, which uses the weights of the head without
// a copy: the head is to be closed when the layer is done with. An error names the
// file, what was found and what was expected. Prepared codes that are of another
// layer are [softmax.ErrStale].
func Open(source string, opt head.Options, codes Codes) (*softmax.Layer, *head.Head, error) {
	h, err := head.Open(source, opt)
	if err != nil {
		return nil, nil, err
	}
	var l *softmax.Layer
	err = h.Read(func() (err error) {
		if codes.Path == "" {
			l, err = softmax.NewLayer(h.Rows(), h.Bias())
			return err
		}
		var origin softmax.Origin
		if !codes.Verify {
			if origin, err = Origin(source, opt); err != nil {
				return err
			}
		}
		l, err = softmax.NewLayerWithCodes(h.Rows(), h.Bias(), codes.Path, origin)
		return err
	})
	if err != nil {
		h.Close()
		if codes.Path == "" { // else the error names the file of codes
			err = fmt.Errorf("%s: %w", source, err)
		}
		return nil, nil, err
	}
	return l, h, nil
}

// Origin returns the origin of the weights of a head: the file, or all files of the
// folder that Open may read weights or the choice of a tensor from. The origin of a draft
// is not known, since its list of labels has a part in it.
func Origin(source string, opt head.Options) (softmax.Origin, error) {
	if opt.IDs != nil {
		return softmax.Origin{}, nil
	}
	path, _, _ := tensorfile.SplitSource(source)
	info, err := os.Stat(path)
	if err != nil {
		return softmax.Origin{}, err
	}
	paths := []string{path}
	if info.IsDir() {
		paths = nil
		entries, err := os.ReadDir(path)
		if err != nil {
			return softmax.Origin{}, err
		}
		for _, e := range entries {
			if ext := filepath.Ext(e.Name()); ext == ".safetensors" || ext == ".json" {
				paths = append(paths, filepath.Join(path, e.Name()))
			}
		}
	}
	return softmax.OriginOf(paths...)
}
