// Package lstm runs stacked LSTM layers and the language models made of them:
// it reads the tensors that PyTorch's word_language_model example writes,
// computes the context vectors h of a text, which a softmax layer turns into
// next-word probabilities. [Stack] is the layers alone, for models of another kind.
//
// One step of a layer, from its input x and its state (h, c) of dimension d:
//
//	i, f, g, o = W_ih x + b_ih + W_hh h + b_hh    (4d, in this order)
//	c = sigmoid(f) c + sigmoid(i) tanh(g)
//	h = sigmoid(o) tanh(c)
//
// The first layer reads the embedding of a token, each other layer the h of the one below; the h of
// the top layer is the context vector. kernels.Scan computes the matrix products, in float32.
package lstm

const errToken = "lstm: token out of range"

// Model is an LSTM language model. It does not change and may be used by many goroutines.
type Model struct {
	encoder     *Embedding
	stack       *Stack
	decoder     []float32 // V x d
	decoderBias []float32 // V
}

// Vocab returns the number of words, V: the tokens that the model reads, and
// the labels of its softmax layer.
func (m *Model) Vocab() int { return m.encoder.Vocab() }

// Dim returns the dimension of the context vectors, d.
func (m *Model) Dim() int { return m.stack.dim }

// Layers returns the number of LSTM layers.
func (m *Model) Layers() int { return len(m.stack.layers) }

// Decoder returns the softmax layer that follows the model: its weights W
// (V x d, row-major) and bias b (V). For a tied model W is the embedding. The
// slices are the model's own and must not be changed.
func (m *Model) Decoder() (weights, bias []float32) { return m.decoder, m.decoderBias }

// Embedding has the vectors of the tokens.
type Embedding struct {
	vocab, dim int
	weights    []float32 // V x e
}

// Vocab returns the number of tokens, V.
func (e *Embedding) Vocab() int { return e.vocab }

// Dim returns the dimension of the vectors, e.
func (e *Embedding) Dim() int { return e.dim }

// Rows copies the vectors of the tokens to dst (len(tokens) x e). It panics
// if a token is not below Vocab, before anything is written.
func (e *Embedding) Rows(dst []float32, tokens []uint32) {
	for _, token := range tokens {
		if uint64(token) >= uint64(e.vocab) {
			panic(errToken)
		}
	}
	for i, token := range tokens {
		copy(dst[i*e.dim:(i+1)*e.dim], e.weights[int(token)*e.dim:(int(token)+1)*e.dim])
	}
}
