// Package layers brings real layers and contexts to the benchmarks.
package layers

import (
	"context"
	"iter"
	"os"
	"path/filepath"

	"github.com/learning-to-screen/l2s/benchmarks/internal/lstm"
	"github.com/learning-to-screen/l2s/benchmarks/internal/text"
	"github.com/learning-to-screen/l2s/internal/kernels"
	"github.com/learning-to-screen/l2s/internal/vocab"
	"github.com/learning-to-screen/l2s/softmax"
)

// LoadLM loads the language model in dir, model.safetensors and vocab.txt.
func LoadLM(dir string) (*lstm.Model, *vocab.Vocab, error) {
	m, err := lstm.Load(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		return nil, nil, err
	}
	v, err := vocab.Load(filepath.Join(dir, "vocab.txt"))
	if err != nil {
		return nil, nil, err
	}
	return m, v, v.CheckLen(m.Vocab())
}

// Decoder returns the softmax layer of a language model.
func Decoder(m *lstm.Model) (*softmax.Layer, error) {
	w, b := m.Decoder()
	return softmax.NewLayer(kernels.Float32Rows(w, m.Dim()), b)
}

// Contexts returns the contexts of the first n tokens of a text, or of all tokens if n is 0, as one
// stream from the zero state. progress, unless nil, gets the number of finished contexts.
func Contexts(ctx context.Context, m *lstm.Model, v *vocab.Vocab, path string, n int, progress func(done int)) ([]float32, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	tokens := text.Tokens(v, f, path)
	if n > 0 {
		tokens = head(tokens, n)
	}
	rows := make([]float32, 0, n*m.Dim())
	err = m.Contexts(ctx, tokens, func(h []float32) error {
		rows = append(rows, h...)
		if progress != nil {
			progress(len(rows) / m.Dim())
		}
		return nil
	})
	return rows, err
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
