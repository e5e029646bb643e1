// Package seq2seq runs the translation models of Luong, Pham and Manning (Effective Approaches to
// Attention-based Neural Machine Translation, 2015): an LSTM encoder, and an LSTM decoder with
// general attention and no input feeding. It computes the context vectors h, which a softmax layer
// turns into next-word probabilities; the caller decides how to use these.
//
// The encoder reads the words x_1 ... x_n of a sentence and then </s>. Its outputs are y_1 ...
// y_(n+1), and the last state (h, c) of each layer starts the decoder. One step of the decoder
// reads the embedding of the word before, <s> at first; with q the output of its top layer,
//
//	a = softmax_s((A q) . y_s)
//	c = sum_s a_s y_s
//	h = tanh(B [c; q])
//
// With B = [C D] that is
//
//	a = softmax_s(q . (A' y_s))
//	h = tanh(sum_s a_s (C y_s) + D q)
//
// whose products A' y_s and C y_s depend on the sentence alone: they are computed
// once. The first form has two products of that size for each hypothesis of each step.
//
// The matrix products are in float32. The bits of a context do not depend on other work at the same
// time: other sentences, other hypotheses, other goroutines.
package seq2seq

import (
	"github.com/learning-to-screen/l2s/benchmarks/internal/lstm"
	"github.com/learning-to-screen/l2s/internal/exact"
	"github.com/learning-to-screen/l2s/internal/vocab"
)

// Model is a translation model with its vocabularies. It does not change and
// may be used by many goroutines.
type Model struct {
	encoder, decoder half
	// The attention: A', C and D, all d x d.
	attnKeys, attnValues, attnQuery []float32
	layer                           *exact.Layer
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

// Start returns the id of <s> in the target vocabulary: the word that a hypothesis reads first.
func (m *Model) Start() uint32 { return m.decoder.start }

// End returns the id of </s> in the target vocabulary: the label that ends a translation.
func (m *Model) End() uint32 { return m.decoder.end }

// Layer returns the softmax layer that follows the model: one label a word of
// the target vocabulary.
func (m *Model) Layer() *exact.Layer { return m.layer }
