package lstm

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// tensor is one tensor of a test model, in float32 for any dtype.
type tensor struct {
	shape []int
	data  []float32
}

func newTensor(value func(i int) float32, shape ...int) tensor {
	n := 1
	for _, s := range shape {
		n *= s
	}
	t := tensor{shape: shape, data: make([]float32, n)}
	for i := range t.data {
		t.data[i] = value(i)
	}
	return t
}

// spec is a test model as its file holds it.
type spec struct {
	vocab, embed, dim, layers int
	tensors                   map[string]tensor
}

// newSpec draws a model whose weights are multiples of 1/64 in [-1, 1]: they
// are the same numbers in float32, float16 and bfloat16.
func newSpec(seed uint64, vocab, embed, dim, layers int, tied bool) *spec {
	rng := rand.New(rand.NewPCG(seed, 0))
	value := func(int) float32 { return float32(rng.IntN(129)-64) / 64 }
	s := &spec{vocab: vocab, embed: embed, dim: dim, layers: layers, tensors: map[string]tensor{}}
	s.tensors["encoder.weight"] = newTensor(value, vocab, embed)
	for l := range layers {
		in := dim
		if l == 0 {
			in = embed
		}
		s.tensors[fmt.Sprintf("rnn.weight_ih_l%d", l)] = newTensor(value, 4*dim, in)
		s.tensors[fmt.Sprintf("rnn.weight_hh_l%d", l)] = newTensor(value, 4*dim, dim)
		s.tensors[fmt.Sprintf("rnn.bias_ih_l%d", l)] = newTensor(value, 4*dim)
		s.tensors[fmt.Sprintf("rnn.bias_hh_l%d", l)] = newTensor(value, 4*dim)
	}
	if !tied {
		s.tensors["decoder.weight"] = newTensor(value, vocab, dim)
	}
	s.tensors["decoder.bias"] = newTensor(value, vocab)
	return s
}

// file writes the model as safetensors of one dtype: the length of the header in 8 bytes,
// the header in JSON, the data.
func (s *spec) file(dtype string) []byte {
	type entry struct {
		Dtype   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	header, data := map[string]entry{}, []byte{}
	for _, name := range slices.Sorted(maps.Keys(s.tensors)) {
		t, from := s.tensors[name], len(data)
		for _, x := range t.data {
			switch bits := math.Float32bits(x); dtype {
			case "F32":
				data = binary.LittleEndian.AppendUint32(data, bits)
			case "BF16":
				data = binary.LittleEndian.AppendUint16(data, uint16(bits>>16))
			case "F16":
				data = binary.LittleEndian.AppendUint16(data, float16(x))
			case "I32":
				data = binary.LittleEndian.AppendUint32(data, uint32(int32(x)))
			default:
				panic(dtype)
			}
		}
		header[name] = entry{dtype, t.shape, [2]int{from, len(data)}}
	}
	text, err := json.Marshal(header)
	if err != nil {
		panic(err)
	}
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
	return append(append(out, text...), data...)
}

// float16 is the binary16 form of a number that has one, zero or normal,
// infinite or NaN.
func float16(x float32) uint16 {
	bits := math.Float32bits(x)
	sign, exp, frac := uint16(bits>>16&0x8000), int(bits>>23&0xff), bits&0x7fffff
	switch {
	case exp == 0xff:
		return sign | 0x7c00 | uint16(frac>>13)
	case bits<<1 == 0:
		return sign
	case exp < 127-14 || exp > 127+15 || frac&0x1fff != 0:
		panic(fmt.Sprintf("%v has no normal float16 form", x))
	}
	return sign | uint16(exp-127+15)<<10 | uint16(frac>>13)
}

func (s *spec) read(t testing.TB, dtype string) *Model {
	t.Helper()
	m, err := read("language model", s.file(dtype))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// reference is the model by the equations in float64: one context a token.
func (s *spec) reference(tokens []uint32) [][]float64 {
	d := s.dim
	h, c := make([][]float64, s.layers), make([][]float64, s.layers)
	for l := range h {
		h[l], c[l] = make([]float64, d), make([]float64, d)
	}
	var out [][]float64
	for _, token := range tokens {
		x := make([]float64, s.embed)
		for j := range x {
			x[j] = float64(s.tensors["encoder.weight"].data[int(token)*s.embed+j])
		}
		for l := range s.layers {
			get := func(name string) []float32 { return s.tensors[fmt.Sprintf("rnn.%s_l%d", name, l)].data }
			input, hidden, biasIn, biasHidden := get("weight_ih"), get("weight_hh"), get("bias_ih"), get("bias_hh")
			gate := func(row int) float64 {
				sum := float64(biasIn[row]) + float64(biasHidden[row])
				for j, v := range x {
					sum += float64(input[row*len(x)+j]) * v
				}
				for j, v := range h[l] {
					sum += float64(hidden[row*d+j]) * v
				}
				return sum
			}
			next := make([]float64, d)
			for j := range d {
				i, f, g, o := sigmoid(gate(j)), sigmoid(gate(d+j)), math.Tanh(gate(2*d+j)), sigmoid(gate(3*d+j))
				c[l][j] = f*c[l][j] + i*g
				next[j] = o * math.Tanh(c[l][j])
			}
			h[l] = next
			x = next
		}
		out = append(out, x)
	}
	return out
}

// logits returns the logits of the softmax layer after a context, in float64.
func (s *spec) logits(h []float64) []float64 {
	w, ok := s.tensors["decoder.weight"]
	if !ok {
		w = s.tensors["encoder.weight"]
	}
	out := make([]float64, s.vocab)
	for i := range out {
		out[i] = float64(s.tensors["decoder.bias"].data[i])
		for j, v := range h {
			out[i] += float64(w.data[i*s.dim+j]) * v
		}
	}
	return out
}

func maxError(got []float32, want []float64) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	worst := 0.0
	for i := range got {
		worst = max(worst, math.Abs(float64(got[i])-want[i]))
	}
	return worst
}
