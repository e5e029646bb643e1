package lstm

import (
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/learning-to-screen/l2s/internal/tensorfile"
)

// Load reads a model from a safetensors file, of float16, bfloat16, float32
// or float64. Its tensors are named as in PyTorch's word_language_model
// example:
//
//	encoder.weight                        V x e    the embedding
//	rnn.weight_ih_l0, _l1, ...            4d x e, and 4d x d above the first layer
//	rnn.weight_hh_l0, _l1, ...            4d x d
//	rnn.bias_ih_l0, rnn.bias_hh_l0, ...   4d
//	decoder.weight                        V x d    not in a tied model, where encoder.weight takes its place
//	decoder.bias                          V
//
// It returns an error that names the file and the tensor where one is
// missing, has another shape, or holds NaN or an infinity, and where the file
// holds any other tensor: a model with more parts, run without them, would
// give wrong answers in silence.
func Load(path string) (*Model, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return read(path, data)
}

// Read is [Load] for the bytes of a file. The model may alias data, which
// must not change from then on.
func Read(data []byte) (*Model, error) { return read("language model", data) }

// layerTensors are the tensors of a layer, without the number that follows.
var layerTensors = []string{"rnn.weight_ih_l", "rnn.weight_hh_l", "rnn.bias_ih_l", "rnn.bias_hh_l"}

func read(name string, data []byte) (*Model, error) {
	file, err := tensorfile.ReadSafetensors(data, name)
	if err != nil {
		return nil, err
	}
	layers, err := countLayers(file.Names())
	if err != nil {
		return nil, fmt.Errorf("lstm: %s:%w", name, err)
	}
	r := reader{name: name, file: file}
	m := &Model{}

	// Two shapes fix all others: the embedding's and that of the first
	// recurrent matrix.
	m.vocab, m.embedDim = r.matrix("encoder.weight")
	rows, d := r.matrix("rnn.weight_hh_l0")
	switch {
	case r.err != nil:
		return nil, r.err
	case m.vocab < 1 || m.embedDim < 1 || uint64(m.vocab) > math.MaxUint32:
		return nil, fmt.Errorf("lstm: %s:encoder.weight: shape: found [%d %d], expected 1 to %d words by an embedding", name, m.vocab, m.embedDim, uint32(math.MaxUint32))
	case d < 1 || rows/4 != d || rows%4 != 0:
		return nil, fmt.Errorf("lstm: %s:rnn.weight_hh_l0: shape: found [%d %d], expected that of an LSTM layer, [4d d]", name, rows, d)
	}
	m.dim = d

	m.encoder = r.tensor("encoder.weight", m.vocab, m.embedDim)
	in := m.embedDim
	for l := range layers {
		var tensors [4][]float32
		for i, shape := range [][]int{{4 * d, in}, {4 * d, d}, {4 * d}, {4 * d}} {
			tensors[i] = r.tensor(layerTensors[i]+strconv.Itoa(l), shape...)
		}
		if r.err != nil {
			return nil, r.err
		}
		bias := make([]float32, 4*d)
		for i := range bias {
			bias[i] = tensors[2][i] + tensors[3][i]
			if bias[i]-bias[i] != 0 {
				return nil, fmt.Errorf("lstm: %s:rnn.bias_ih_l%d and rnn.bias_hh_l%d: values: found the sum %v at element %d, expected finite numbers", name, l, l, bias[i], i)
			}
		}
		m.layers = append(m.layers, layer{input: tensors[0], hidden: tensors[1], bias: bias})
		in = d
	}

	m.decoder = m.encoder
	if slices.Contains(file.Names(), "decoder.weight") {
		m.decoder = r.tensor("decoder.weight", m.vocab, d)
	} else if m.embedDim != d {
		return nil, fmt.Errorf("lstm: %s:decoder.weight: found none, expected one, since encoder.weight, of %d columns, cannot serve a layer of %d", name, m.embedDim, d)
	}
	m.decoderBias = r.tensor("decoder.bias", m.vocab)
	if r.err != nil {
		return nil, r.err
	}
	return m, nil
}

// countLayers returns the number of layers of a file with these tensors. It
// refuses tensors that an LSTM language model does not have.
func countLayers(names []string) (int, error) {
	has := map[int]string{} // a tensor of each layer
	for _, name := range names {
		known := name == "encoder.weight" || name == "decoder.weight" || name == "decoder.bias"
		for _, prefix := range layerTensors {
			number, ok := strings.CutPrefix(name, prefix)
			if l, err := strconv.Atoi(number); ok && err == nil && l >= 0 && number == strconv.Itoa(l) {
				has[l], known = name, true
			}
		}
		if !known {
			return 0, fmt.Errorf("%s: found a tensor that is none of an LSTM language model, expected encoder.weight, rnn.{weight,bias}_{ih,hh}_l0 and so on, decoder.weight and decoder.bias", name)
		}
	}
	for l := range len(has) {
		if has[l] == "" { // so there is a layer above the gap
			above := has[slices.Max(slices.Collect(maps.Keys(has)))]
			return 0, fmt.Errorf("%s: found, but no layer %d, expected layers from 0 on without a gap", above, l)
		}
	}
	return len(has), nil
}

// reader reads the tensors of a file and keeps the first error.
type reader struct {
	name string // of the file
	file *tensorfile.File
	err  error
}

// open returns a tensor of the given shape, where -1 is any size, or nil
// after an error.
func (r *reader) open(name string, shape ...int) *tensorfile.Tensor {
	if r.err != nil {
		return nil
	}
	if !slices.Contains(r.file.Names(), name) {
		r.err = fmt.Errorf("lstm: %s: found no tensor %s, expected one in an LSTM language model", r.name, name)
		return nil
	}
	t, err := r.file.Tensor(name)
	if err == nil {
		err = t.ExpectShape(shape...)
	}
	if err != nil {
		r.err = err
		return nil
	}
	return t
}

// matrix returns the shape of a tensor of rank 2.
func (r *reader) matrix(name string) (rows, cols int) {
	if t := r.open(name, -1, -1); t != nil {
		rows, cols = t.Shape[0], t.Shape[1]
	}
	return rows, cols
}

// tensor returns the elements of a tensor of the given shape.
func (r *reader) tensor(name string, shape ...int) (data []float32) {
	if t := r.open(name, shape...); t != nil {
		data, r.err = t.Float32s()
	}
	return data
}
