// Package layers brings real layers and contexts to the benchmarks.
package layers

import (
	"context"
	"errors"
	"iter"
	"os"
	"path/filepath"

	"github.com/learning-to-screen/l2s/internal/lstm"
	"github.com/learning-to-screen/l2s/internal/synthetic"
	"github.com/learning-to-screen/l2s/internal/vocab"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
	"github.com/learning-to-screen/l2s/train"
)

// LanguageModel returns the softmax layer of the language model in dir
// (model.safetensors, vocab.txt) and its contexts of the first n tokens of a
// text there, as one stream from the zero state.
func LanguageModel(dir, text string, n int) (*synthetic.Data, error) {
	m, err := lstm.Load(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		return nil, err
	}
	v, err := vocab.Load(filepath.Join(dir, "vocab.txt"))
	if err != nil {
		return nil, err
	}
	if err := v.CheckLen(m.Vocab()); err != nil {
		return nil, err
	}
	f, err := os.Open(filepath.Join(dir, text))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	w, b := m.Decoder()
	layer, err := softmax.NewLayer(w, b, m.Dim())
	if err != nil {
		return nil, err
	}
	d := &synthetic.Data{Layer: layer, Contexts: make([]float32, 0, n*m.Dim())}
	err = m.Contexts(context.Background(), head(v.Tokens(f, f.Name()), n), func(h []float32) error {
		d.Contexts = append(d.Contexts, h...)
		return nil
	})
	return d, err
}

// head returns the first n tokens.
func head(tokens iter.Seq2[uint32, error], n int) iter.Seq2[uint32, error] {
	return func(yield func(uint32, error) bool) {
		left := n
		for t, err := range tokens {
			if left == 0 || !yield(t, err) || err != nil {
				return
			}
			left--
		}
	}
}

// KMeans returns the screen that spherical k-means and the knapsack give for
// contexts of a layer.
func KMeans(d *synthetic.Data, clusters int, budget float64) (*screen.Model, error) {
	if d.Len() == 0 {
		return nil, errors.New("layers: no contexts to train on")
	}
	opt := train.DefaultOptions()
	opt.Clusters, opt.Budget, opt.KMeansOnly = clusters, budget, true
	m, _, err := train.Run(context.Background(), d.Layer, d.Contexts, opt)
	return m, err
}
