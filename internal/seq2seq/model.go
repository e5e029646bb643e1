// Package seq2seq runs the translation models of Luong, Pham and Manning
// (Effective Approaches to Attention-based Neural Machine Translation, 2015):
// an LSTM encoder, and an LSTM decoder with general attention and no input
// feeding. It computes the context vectors h, which a softmax layer turns into
// next-word probabilities; what to do with those is the caller's.
//
// The encoder reads the words x_1 ... x_n of a sentence and then </s>. Its
// outputs are y_1 ... y_(n+1), and the last state (h, c) of each layer starts
// the decoder. One step of the decoder reads the embedding of the word before,
// <s> at first; with q the output of its top layer,
//
//	a = softmax_s((A q) . y_s)
//	c = sum_s a_s y_s
//	h = tanh(B [c; q])
//
// The matrix products are done by package kernels, in float32, so that
// contexts differ by rounding between its levels; all else is the same
// everywhere. A context is the same bits whatever else is computed beside it:
// other sentences, other hypotheses, other goroutines.
package seq2seq

import (
	"github.com/learning-to-screen/l2s/internal/lstm"
	"github.com/learning-to-screen/l2s/internal/vocab"
	"github.com/learning-to-screen/l2s/softmax"
)

// Model is a translation model with its vocabularies. It does not change and
// may be used by many goroutines.
type Model struct {
	encoder, decoder half
	attnIn           []float32 // A: d x d
	attnOut          []float32 // B: d x 2d, the columns of c first
	layer            *softmax.Layer
}

// half is the encoder or the decoder.
type half struct {
	words      *vocab.Vocab
	embeddings *lstm.Embedding
	stack      *lstm.Stack
	start, end uint32 // <s>, </s>
}

// Dim returns the dimension of the context vectors, d.
func (m *Model) Dim() int { return m.decoder.stack.Dim() }

// Source returns the vocabulary of the sentences to translate.
func (m *Model) Source() *vocab.Vocab { return m.encoder.words }

// Target returns the vocabulary of the translations.
func (m *Model) Target() *vocab.Vocab { return m.decoder.words }

// Start returns the id of <s> in the target vocabulary: the word that a
// hypothesis reads first.
func (m *Model) Start() uint32 { return m.decoder.start }

// End returns the id of </s> in the target vocabulary: the label that ends a
// translation.
func (m *Model) End() uint32 { return m.decoder.end }

// Layer returns the softmax layer that follows the model: one label a word of
// the target vocabulary.
func (m *Model) Layer() *softmax.Layer { return m.layer }
