// Package demolm runs the small language model of l2s demo: a 2-layer LSTM of 200 units over a
// vocabulary of 20,000, trained on public-domain novels. Its weights are in benchmarks/lm/model,
// out of the module, so that no importer downloads them. The model writes a text, whose contexts
// are used instead of the contexts of a real one.
package demolm

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/learning-to-screen/l2s/internal/kernels"
	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/internal/tensorfile"
	"github.com/learning-to-screen/l2s/internal/vocab"
	"github.com/learning-to-screen/l2s/sample"
	"github.com/learning-to-screen/l2s/softmax"
)

const (
	dim    = 200 // of the embeddings and the states, and so of the contexts
	layers = 2
)

// Model is the language model. It does not change and may be used by many goroutines.
type Model struct {
	Layer *softmax.Layer // whose rows are the embeddings too
	Words *vocab.Vocab   // a word for each label

	embeddings []float32 // 20,000 x dim
	// For each layer, 4 dim rows of 2 dim, for its input followed by its state, for the gates i, f,
	// g and o, and their biases.
	weights [layers]kernels.Rows
	biases  [layers][]float32
}

// Load reads the model from a folder, of model.safetensors and vocab.txt.
func Load(folder string) (*Model, error) {
	file, err := tensorfile.OpenFile(filepath.Join(folder, "model.safetensors"), nil)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	tensor := func(name string, shape ...int) (x []float32) {
		var t *tensorfile.Tensor
		if err == nil {
			t, err = file.Tensor(name)
		}
		if err == nil {
			err = t.ExpectShape(shape...)
		}
		if err == nil {
			x, err = t.Float32s()
		}
		return x
	}
	m := &Model{embeddings: tensor("encoder.weight", -1, dim)}
	for l := range m.weights {
		part := func(name string, shape ...int) []float32 {
			return tensor(fmt.Sprintf("rnn.%s_l%d", name, l), shape...)
		}
		input, state := part("weight_ih", 4*dim, dim), part("weight_hh", 4*dim, dim)
		ofInput, ofState := part("bias_ih", 4*dim), part("bias_hh", 4*dim)
		if err != nil {
			return nil, err
		}
		var rows []float32
		for i := range 4 * dim {
			rows = append(append(rows, input[i*dim:(i+1)*dim]...), state[i*dim:(i+1)*dim]...)
			m.biases[l] = append(m.biases[l], ofInput[i]+ofState[i])
		}
		m.weights[l] = kernels.Float32Rows(rows, 2*dim)
	}
	bias := tensor("decoder.bias", -1)
	if err != nil {
		return nil, err
	}
	if m.Layer, err = softmax.NewLayer(kernels.Float32Rows(m.embeddings, dim), bias); err != nil {
		return nil, err
	}
	if m.Words, err = vocab.Load(filepath.Join(folder, "vocab.txt")); err != nil {
		return nil, err
	}
	return m, m.Words.CheckLen(m.Layer.Labels())
}

// State is where the model is in a text. A goroutine needs its own.
type State struct {
	m     *Model
	rows  [layers][]float32 // a layer's input, and then its last output
	cells [layers][]float64
	gates []float64
}

// NewState returns the beginning of a text.
func (m *Model) NewState() *State {
	s := &State{m: m, gates: make([]float64, 4*dim)}
	for l := range s.rows {
		s.rows[l], s.cells[l] = make([]float32, 2*dim), make([]float64, dim)
	}
	return s
}

// Step reads a word, below the number of labels, and returns the context after it. The
// slice is valid until the next call. The bits are equal on every CPU.
func (s *State) Step(word uint32) []float32 {
	h := s.m.embeddings[int(word)*dim : (int(word)+1)*dim]
	for l, row := range s.rows {
		copy(row, h)
		s.m.weights[l].RefScan(s.gates, s.m.biases[l], row)
		h = row[dim:]
		for j, c := range s.cells[l] {
			i, f, g, o := s.gates[j], s.gates[dim+j], s.gates[2*dim+j], s.gates[3*dim+j]
			// A product that is converted is not fused with the sum.
			c = float64(sigmoid(f)*c) + float64(sigmoid(i)*tanh(g))
			s.cells[l][j], h[j] = c, float32(sigmoid(o)*tanh(c))
		}
	}
	return h
}

func sigmoid(x float64) float64 { return 1 / (1 + kernels.Exp(-x)) }

func tanh(x float64) float64 { return 2/(1+kernels.Exp(-2*x)) - 1 }

// Stream is the number of words that the model writes in one piece: where learning and measuring
// are to have no piece in common, both have a multiple of it.
const Stream = 512

// Contexts returns the contexts of n words that the model writes, n x 200, in pieces of Stream
// words. Each begins with <eos> and continues with words drawn from the softmax at temperature 1,
// by its own random numbers. So a word depends only on the seed and its place: a shorter text is
// the beginning of a longer one. progress, unless nil, gets the number of finished words.
func (m *Model) Contexts(ctx context.Context, n int, seed uint64, progress func(done int)) ([]float32, error) {
	eos, err := m.Words.Special(vocab.EOSWord)
	if err != nil {
		return nil, err
	}
	rows, streams := make([]float32, n*dim), (n+Stream-1)/Stream
	tell := parallel.Counter(streams, func(done int) {
		if progress != nil {
			progress(min(done*Stream, n))
		}
	})
	return rows, parallel.Each(ctx, parallel.Threads(0, streams), streams, 1, tell, func(_, from, to int) error {
		for i := from; i < to; i++ {
			o := sample.DefaultOptions()
			o.Seed = seed<<32 + uint64(i)
			draws, err := sample.New(m.Layer, o)
			if err != nil {
				return err
			}
			state, token := m.NewState(), sample.Token{ID: eos}
			for at := i * Stream; at < min((i+1)*Stream, n); at++ {
				h := state.Step(token.ID)
				copy(rows[at*dim:], h)
				if token, err = draws.Draw(h, sample.Edits{}); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
