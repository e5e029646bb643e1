// Package lstm runs stacked LSTM language models: it reads the tensors that
// PyTorch's word_language_model example writes, computes the context vectors
// h of a text, which a softmax layer turns into next-word probabilities, and
// lets a model write text of its own.
//
// One step of a layer, from its input x and its state (h, c) of dimension d:
//
//	i, f, g, o = W_ih x + b_ih + W_hh h + b_hh    (4d, in this order)
//	c = sigmoid(f) c + sigmoid(i) tanh(g)
//	h = sigmoid(o) tanh(c)
//
// The first layer reads the embedding of a token, each other layer the h of
// the one below; the h of the top layer is the context vector. The matrix
// products are those of package kernels, in float32, so that contexts differ
// by rounding between its levels; all else is the same everywhere.
package lstm

// layer is one LSTM layer: gates = input x + hidden h + bias, 4d of them in
// the order i, f, g, o.
type layer struct {
	input  []float32 // 4d x e for the first layer, 4d x d above: weight_ih
	hidden []float32 // 4d x d: weight_hh
	bias   []float32 // 4d: bias_ih + bias_hh
}

// Model is an LSTM language model. It does not change and may be used by many
// goroutines.
type Model struct {
	vocab, embedDim, dim int
	encoder              []float32 // V x e
	layers               []layer
	decoder              []float32 // V x d
	decoderBias          []float32 // V
}

// Vocab returns the number of words, V: the tokens that the model reads, and
// the labels of its softmax layer.
func (m *Model) Vocab() int { return m.vocab }

// Dim returns the dimension of the context vectors, d.
func (m *Model) Dim() int { return m.dim }

// Layers returns the number of LSTM layers.
func (m *Model) Layers() int { return len(m.layers) }

// Decoder returns the softmax layer that follows the model: its weights W
// (V x d, row-major) and bias b (V). For a tied model W is the embedding. The
// slices are the model's own and must not be changed.
func (m *Model) Decoder() (weights, bias []float32) { return m.decoder, m.decoderBias }

// embed copies the embeddings of the tokens to dst (len(tokens) x e). All
// tokens are checked before anything is written.
func (m *Model) embed(dst []float32, tokens []uint32) {
	for _, token := range tokens {
		if uint64(token) >= uint64(m.vocab) {
			panic(errToken)
		}
	}
	e := m.embedDim
	for i, token := range tokens {
		copy(dst[i*e:(i+1)*e], m.encoder[int(token)*e:(int(token)+1)*e])
	}
}
