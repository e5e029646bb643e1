// Package demolm holds a small language model that is built in: a 2-layer LSTM
// of 200 units over a vocabulary of 20,000, trained on public-domain novels,
// with weights in float16. README.md beside the model tells more. The model
// writes a text, whose contexts are used instead of the contexts of a real one.
package demolm

import (
	"context"
	_ "embed"

	"github.com/learning-to-screen/l2s/internal/lstm"
	"github.com/learning-to-screen/l2s/internal/vocab"
)

var (
	//go:embed model.safetensors
	model []byte
	//go:embed vocab.txt
	words []byte
)

// Stream is the number of tokens that the model writes in one piece: where
// learning and measuring are to have no piece in common, both have a multiple
// of it.
const Stream = 512

// Load returns the model and its vocabulary.
func Load() (*lstm.Model, *vocab.Vocab, error) {
	m, err := lstm.Read(model)
	if err != nil {
		return nil, nil, err
	}
	v, err := vocab.Read(words)
	if err != nil {
		return nil, nil, err
	}
	return m, v, v.CheckLen(m.Vocab())
}

// Contexts returns the contexts of n tokens that the model m with the
// vocabulary v writes, n x Dim: see lstm.Model.Generate. progress, unless nil,
// is told how many there are.
func Contexts(ctx context.Context, m *lstm.Model, v *vocab.Vocab, n int, seed uint64, progress func(done int)) ([]float32, error) {
	eos, err := v.EOS()
	if err != nil {
		return nil, err
	}
	rows := make([]float32, 0, n*m.Dim())
	err = m.Generate(ctx, n, lstm.GenerateOptions{Start: eos, Seed: seed}, func(_ []uint32, contexts []float32) error {
		rows = append(rows, contexts...)
		if progress != nil {
			progress(len(rows) / m.Dim())
		}
		return nil
	})
	return rows, err
}
