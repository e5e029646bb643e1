// Package layers brings real layers and contexts to the benchmarks.
package layers

import (
	"context"
	"iter"
	"os"
	"path/filepath"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/benchmarks/internal/lstm"
	"github.com/learning-to-screen/l2s/benchmarks/internal/text"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/files/vocab"
	"github.com/learning-to-screen/l2s/internal/ground/parallel"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/sample"
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
func Decoder(m *lstm.Model) (*exact.Layer, error) {
	w, b := m.Decoder()
	return exact.NewLayer(kernels.Float32Rows(w, m.Dim()), b)
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

// Piece is the number of words that [Written] writes in one piece: where learning and measuring are
// to have no piece in common, both have a multiple of it.
const Piece = 512

// Written returns the contexts of n words that a model writes, in pieces. Each begins with <eos> and
// continues with words drawn from the softmax at temperature 1, by random numbers of its own. So a
// shorter text is the beginning of a longer one. progress gets the number of finished words.
func Written(ctx context.Context, m *lstm.Model, v *vocab.Vocab, n int, seed uint64, progress func(done int)) ([]float32, error) {
	layer, err := Decoder(m)
	if err != nil {
		return nil, err
	}
	eos, err := v.Special(vocab.EOSWord)
	if err != nil {
		return nil, err
	}
	rows, d, pieces := make([]float32, n*m.Dim()), m.Dim(), (n+Piece-1)/Piece
	tell := parallel.Counter(pieces, func(done int) { progress(min(done*Piece, n)) })
	return rows, parallel.Each(ctx, parallel.Threads(0, pieces), pieces, 1, tell, func(_, from, to int) error {
		for i := from; i < to; i++ {
			o := sample.DefaultOptions()
			o.Seed = seed<<32 + uint64(i)
			draws, err := sample.New((*l2s.Layer)(engine.Over(layer)), nil, o)
			if err != nil {
				return err
			}
			state, token := m.NewState(), sample.Token{ID: eos}
			for at := i * Piece; at < min((i+1)*Piece, n); at++ {
				h := state.Step(token.ID)
				copy(rows[at*d:], h)
				if token, err = draws.Draw(h, sample.Edits{}); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
