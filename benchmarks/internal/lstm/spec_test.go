package lstm

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s/internal/tests/gguftest"
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

// newSpec draws a model whose weights are multiples of 1/64 in [-1, 1].
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

// file is the model's file.
func (s *spec) file() []byte {
	var arrays []gguftest.Array
	for _, name := range slices.Sorted(maps.Keys(s.tensors)) {
		arrays = append(arrays, gguftest.Array{Name: name, Shape: s.tensors[name].shape, Data: s.tensors[name].data})
	}
	return gguftest.Safetensors(arrays...)
}

func (s *spec) read(t testing.TB) *Model {
	t.Helper()
	m, err := read("language model", s.file())
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
