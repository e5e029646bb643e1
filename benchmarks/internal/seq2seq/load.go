package seq2seq

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/learning-to-screen/l2s/benchmarks/internal/lstm"
	"github.com/learning-to-screen/l2s/internal/exact"
	"github.com/learning-to-screen/l2s/internal/kernels"
	"github.com/learning-to-screen/l2s/internal/tensorfile"
	"github.com/learning-to-screen/l2s/internal/vocab"
)

// The words with a special meaning.
const (
	startWord = "<s>"
	endWord   = "</s>"
)

// Files returns the files of a model in a folder, all that Load reads: its tensors,
// the vocabulary of the language from, and the vocabulary of the language to.
func Files(dir, from, to string) []string {
	in := func(name string) string { return filepath.Join(dir, name) }
	return []string{in("model.safetensors"), in("vocab." + from), in("vocab." + to)}
}

// Load reads a model from a folder: its tensors from model.safetensors, of float16, bfloat16,
// float32 or float64, and its vocabularies from vocab.from and vocab.to, where from and to name the
// languages ("de", "en"). For embeddings of e_s and e_t elements, S and T words and the dimension d
// the tensors are
//
//	encoder.embeddings.weight                    S x e_s
//	encoder.rnn.weight_ih_l0, _l1, ...           4d x e_s, and 4d x d above the first layer
//	encoder.rnn.weight_hh_l0, ...                4d x d
//	encoder.rnn.bias_ih_l0, bias_hh_l0, ...      4d
//	decoder.embeddings.weight                    T x e_t
//	decoder.rnn.*                                as in the encoder
//	decoder.attn.linear_in.weight                d x d: A
//	decoder.attn.linear_out.weight               d x 2d: B, the columns of c first
//	generator.weight, generator.bias             T x d and T: the softmax layer
//
// Both vocabularies hold <unk>, <s> and </s>, at any place.
//
// It returns an error that names the file and the tensor if one is missing, has another shape, or
// holds NaN or an infinity; if there is a tensor of another kind of model, such as one that reads
// in both directions; and if a vocabulary does not have a word per embedding.
func Load(dir, from, to string) (*Model, error) {
	files := Files(dir, from, to)
	path := files[0]
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m, err := read(path, data)
	if err != nil {
		return nil, err
	}
	for _, part := range []struct {
		half   *half
		tensor string
		file   string
	}{
		{&m.encoder, encoderEmbeddings, files[1]},
		{&m.decoder, decoderEmbeddings, files[2]},
	} {
		words, err := vocab.Load(part.file)
		if err != nil {
			return nil, err
		}
		if n := part.half.embeddings.Vocab(); words.Len() != n {
			return nil, fmt.Errorf("%s: found %d words, expected %d, the rows of %s:%s", part.file, words.Len(), n, path, part.tensor)
		}
		if err := part.half.speak(words, part.file); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// speak gives a half its vocabulary.
func (h *half) speak(words *vocab.Vocab, file string) error {
	if _, err := words.Special(vocab.UnknownWord); err != nil {
		return err
	}
	for _, special := range []struct {
		word string
		id   *uint32
	}{{startWord, &h.start}, {endWord, &h.end}} {
		id, ok := words.ID(special.word)
		if !ok {
			return fmt.Errorf("%s: found no word %s, expected %s, %s and %s among its %d words", file, special.word, vocab.UnknownWord, startWord, endWord, words.Len())
		}
		*special.id = id
	}
	h.words = words
	return nil
}

const (
	encoderEmbeddings = "encoder.embeddings.weight"
	encoderLayers     = "encoder.rnn."
	decoderEmbeddings = "decoder.embeddings.weight"
	decoderLayers     = "decoder.rnn."
	attentionIn       = "decoder.attn.linear_in.weight"
	attentionOut      = "decoder.attn.linear_out.weight"
	generatorWeight   = "generator.weight"
	generatorBias     = "generator.bias"
)

// read reads a model without vocabularies.
func read(name string, data []byte) (*Model, error) {
	file, err := tensorfile.ReadSafetensors(data, name)
	if err != nil {
		return nil, err
	}
	r := lstm.NewReader(file, name, "seq2seq", "a translation model with general attention")
	if err := r.Only([]string{encoderLayers, decoderLayers},
		encoderEmbeddings, decoderEmbeddings, attentionIn, attentionOut, generatorWeight, generatorBias); err != nil {
		return nil, err
	}
	m := &Model{}
	m.encoder.embeddings = r.Embedding(encoderEmbeddings)
	m.encoder.stack = r.Stack(encoderLayers, m.encoder.embeddings)
	m.decoder.embeddings = r.Embedding(decoderEmbeddings)
	m.decoder.stack = r.Stack(decoderLayers, m.decoder.embeddings)
	if err := r.Err(); err != nil {
		return nil, err
	}
	d := m.Dim()
	enc, dec := m.encoder.stack, m.decoder.stack
	if enc.Dim() != d {
		r.Fail(encoderLayers+"weight_hh_l0", "shape: found [%d %d], expected [%d %d], the shape of the decoder, which continues its state", 4*enc.Dim(), enc.Dim(), 4*d, d)
	}
	if enc.Layers() != dec.Layers() {
		r.Fail(encoderLayers+"weight_hh_l0", "found %d layers, expected %d, the number of the decoder, which continues their state", enc.Layers(), dec.Layers())
	}
	a, b := r.Tensor(attentionIn, d, d), r.Tensor(attentionOut, d, 2*d)
	labels := m.decoder.embeddings.Vocab()
	weights := r.Tensor(generatorWeight, labels, d)
	bias := r.Tensor(generatorBias, labels)
	if err := r.Err(); err != nil {
		return nil, err
	}
	for j := range d {
		m.attnKeys = append(m.attnKeys, columns(a, d, j, j+1)...)
	}
	m.attnValues, m.attnQuery = columns(b, 2*d, 0, d), columns(b, 2*d, d, 2*d)
	if m.layer, err = exact.NewLayer(kernels.Float32Rows(weights, d), bias); err != nil {
		return nil, fmt.Errorf("%s:%s: %w", name, generatorWeight, err)
	}
	return m, nil
}

// columns returns the columns from to to of a matrix of rows of n elements.
func columns(rows []float32, n, from, to int) (part []float32) {
	for ; len(rows) > 0; rows = rows[n:] {
		part = append(part, rows[from:to]...)
	}
	return part
}
