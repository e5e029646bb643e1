package lstm

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
)

// Reader reads the parts of a model from a file of tensors and keeps the first error: after an
// error it returns empty parts.
type Reader struct {
	file          *tensorfile.File
	has           map[string]bool
	name, pkg, of string
	err           error
}

// NewReader returns a reader of a file. Errors name the file by name, begin with pkg, the name of
// the package that reads it, and call the model of: "an LSTM language model".
func NewReader(file *tensorfile.File, name, pkg, of string) *Reader {
	r := &Reader{file: file, has: map[string]bool{}, name: name, pkg: pkg, of: of}
	for _, tensor := range file.Names() {
		r.has[tensor] = true
	}
	return r
}

// Err returns the first error.
func (r *Reader) Err() error { return r.err }

// Has reports whether there is a tensor of this name.
func (r *Reader) Has(tensor string) bool { return r.has[tensor] }

// Fail makes an error about a tensor the first error, unless there is one.
func (r *Reader) Fail(tensor, format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%s: %s:%s: %s", r.pkg, r.name, tensor, fmt.Sprintf(format, args...))
	}
}

// layerTensors are the tensors of a layer, without the prefix before and the number that follows.
var layerTensors = []string{"weight_ih_l", "weight_hh_l", "bias_ih_l", "bias_hh_l"}

// layerOf returns the number of the layer of prefix that a tensor belongs to, if it belongs to one.
func layerOf(prefix, tensor string) (l int, ok bool) {
	rest, ok := strings.CutPrefix(tensor, prefix)
	if !ok {
		return 0, false
	}
	for _, part := range layerTensors {
		number, ok := strings.CutPrefix(rest, part)
		if l, err := strconv.Atoi(number); ok && err == nil && l >= 0 && number == strconv.Itoa(l) {
			return l, true
		}
	}
	return 0, false
}

// Only returns an error, which is also the reader's, if the file holds other tensors than the
// tensors of the layers of each prefix, and others. A model with more parts, run without them,
// would give wrong answers in silence.
func (r *Reader) Only(prefixes []string, others ...string) error {
	for _, tensor := range r.file.Names() {
		known := slices.Contains(others, tensor)
		var layers []string
		for _, prefix := range prefixes {
			_, ok := layerOf(prefix, tensor)
			known = known || ok
			layers = append(layers, prefix+"{weight,bias}_{ih,hh}_l0 and so on")
		}
		if !known {
			r.Fail(tensor, "found a tensor that does not belong to %s, expected %s", r.of, strings.Join(append(layers, others...), ", "))
			break
		}
	}
	return r.err
}

// open returns a tensor of the given shape, where -1 is any size, or nil after an error.
func (r *Reader) open(name string, shape ...int) *tensorfile.Tensor {
	if r.err != nil {
		return nil
	}
	if !r.Has(name) {
		r.err = fmt.Errorf("%s: %s: found no tensor %s, expected one in %s", r.pkg, r.name, name, r.of)
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

// Tensor returns the elements of a tensor of the given shape.
func (r *Reader) Tensor(name string, shape ...int) (data []float32) {
	if t := r.open(name, shape...); t != nil {
		data, r.err = t.Float32s()
	}
	return data
}

// Embedding returns the tensor of this name, one row a token.
func (r *Reader) Embedding(name string) *Embedding {
	e := &Embedding{}
	t := r.open(name, -1, -1)
	if t == nil {
		return e
	}
	e.vocab, e.dim = t.Shape[0], t.Shape[1]
	if e.vocab < 1 || e.dim < 1 || uint64(e.vocab) > math.MaxUint32 {
		r.Fail(name, "shape: found [%d %d], expected 1 to %d words by an embedding", e.vocab, e.dim, uint32(math.MaxUint32))
		return e
	}
	e.weights, r.err = t.Float32s()
	return e
}

// Stack returns the layers whose tensors begin with prefix, and which read the vectors of e: prefix
// and weight_ih_l0 (4d x e), weight_hh_l0 (4d x d), bias_ih_l0 and bias_hh_l0 (4d), and so for _l1
// and on, with weight_ih of 4d x d.
func (r *Reader) Stack(prefix string, e *Embedding) *Stack {
	s := &Stack{in: e.dim}
	layers := r.countLayers(prefix)
	t := r.open(prefix+"weight_hh_l0", -1, -1)
	if t == nil {
		return s
	}
	if s.dim = t.Shape[1]; s.dim < 1 || t.Shape[0]/4 != s.dim || t.Shape[0]%4 != 0 {
		r.Fail(prefix+"weight_hh_l0", "shape: found [%d %d], expected the shape of an LSTM layer, [4d d]", t.Shape[0], s.dim)
		return s
	}
	in, d := s.in, s.dim
	for l := range layers {
		var tensors [4][]float32
		for i, shape := range [][]int{{4 * d, in}, {4 * d, d}, {4 * d}, {4 * d}} {
			tensors[i] = r.Tensor(prefix+layerTensors[i]+strconv.Itoa(l), shape...)
		}
		if r.err != nil {
			return s
		}
		bias := make([]float32, 4*d)
		for i := range bias {
			bias[i] = tensors[2][i] + tensors[3][i]
			if bias[i]-bias[i] != 0 {
				r.Fail(fmt.Sprintf("%[1]sbias_ih_l%[2]d and %[1]sbias_hh_l%[2]d", prefix, l), "values: found the sum %v at element %d, expected finite numbers", bias[i], i)
				return s
			}
		}
		s.layers = append(s.layers, layer{input: tensors[0], hidden: tensors[1], bias: bias})
		in = d
	}
	return s
}

// countLayers returns the number of layers of prefix.
func (r *Reader) countLayers(prefix string) int {
	has := map[int]string{} // a tensor of each layer
	for _, tensor := range r.file.Names() {
		if l, ok := layerOf(prefix, tensor); ok {
			has[l] = tensor
		}
	}
	for l := range len(has) {
		if has[l] == "" { // so there is a layer above the gap
			above := has[slices.Max(slices.Collect(maps.Keys(has)))]
			r.Fail(above, "found, but no layer %d, expected layers from 0 on without a gap", l)
			break
		}
	}
	return len(has)
}
