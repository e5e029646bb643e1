package lstm

import (
	"fmt"
	"os"

	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
)

// Load reads a model from a safetensors file, of float16, bfloat16, float32 or float64. Its tensors
// are named as in PyTorch's word_language_model example:
//
//	encoder.weight                        V x e    the embedding
//	rnn.weight_ih_l0, _l1, ...            4d x e, and 4d x d above the first layer
//	rnn.weight_hh_l0, _l1, ...            4d x d
//	rnn.bias_ih_l0, rnn.bias_hh_l0, ...   4d
//	decoder.weight                        V x d    not in a tied model, where encoder.weight takes its place
//	decoder.bias                          V
//
// It returns an error that names the file and the tensor if one is missing, has another shape, or
// holds NaN or an infinity, and if the file holds any other tensor: a model with more parts, run
// without them, would give wrong answers in silence.
func Load(path string) (*Model, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return read(path, data)
}

// read is [Load] for the bytes of a file of that name. The model may alias data, which must not
// change from then on.
func read(name string, data []byte) (*Model, error) {
	file, err := tensorfile.ReadSafetensors(data, name)
	if err != nil {
		return nil, err
	}
	r := NewReader(file, name, "lstm", "an LSTM language model")
	const prefix = "rnn."
	if err := r.Only([]string{prefix}, "encoder.weight", "decoder.weight", "decoder.bias"); err != nil {
		return nil, err
	}
	m := &Model{encoder: r.Embedding("encoder.weight")}
	m.stack = r.Stack(prefix, m.encoder)
	if err := r.Err(); err != nil {
		return nil, err
	}
	m.decoder = m.encoder.weights
	if r.Has("decoder.weight") {
		m.decoder = r.Tensor("decoder.weight", m.Vocab(), m.Dim())
	} else if m.encoder.dim != m.Dim() {
		return nil, fmt.Errorf("lstm: %s:decoder.weight: found none, expected one, since encoder.weight, of %d columns, cannot serve a layer of %d", name, m.encoder.dim, m.Dim())
	}
	m.decoderBias = r.Tensor("decoder.bias", m.Vocab())
	if err := r.Err(); err != nil {
		return nil, err
	}
	return m, nil
}
