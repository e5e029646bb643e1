package seq2seq

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/learning-to-screen/l2s/internal/gguftest"
	"github.com/learning-to-screen/l2s/internal/vocab"
)

// The ids of the special words in the vocabularies of the test models: the same as in
// the real model.
const (
	unknown = 1
	start   = 2
	end     = 3
)

// shape is the sizes of a test model.
type shape struct{ source, target, embedSource, embedTarget, dim, layers int }

// spec is a test model by its tensors, in float32.
type spec struct {
	shape
	tensors map[string]gguftest.Array
}

// newSpec draws a model with weights of at most scale.
func newSpec(seed uint64, sh shape, scale float32) *spec {
	rng := rand.New(rand.NewPCG(seed, 0))
	s := &spec{shape: sh, tensors: map[string]gguftest.Array{}}
	add := func(name string, shape ...int) {
		n := 1
		for _, size := range shape {
			n *= size
		}
		data := make([]float32, n)
		for i := range data {
			data[i] = scale * (2*rng.Float32() - 1)
		}
		s.tensors[name] = gguftest.Array{Name: name, Shape: shape, Data: data}
	}
	d := sh.dim
	for _, half := range []struct {
		name         string
		words, embed int
	}{{"encoder", sh.source, sh.embedSource}, {"decoder", sh.target, sh.embedTarget}} {
		add(half.name+".embeddings.weight", half.words, half.embed)
		in := half.embed
		for l := range sh.layers {
			add(fmt.Sprintf("%s.rnn.weight_ih_l%d", half.name, l), 4*d, in)
			add(fmt.Sprintf("%s.rnn.weight_hh_l%d", half.name, l), 4*d, d)
			add(fmt.Sprintf("%s.rnn.bias_ih_l%d", half.name, l), 4*d)
			add(fmt.Sprintf("%s.rnn.bias_hh_l%d", half.name, l), 4*d)
			in = d
		}
	}
	add("decoder.attn.linear_in.weight", d, d)
	add("decoder.attn.linear_out.weight", d, 2*d)
	add("generator.weight", sh.target, d)
	add("generator.bias", sh.target)
	return s
}

// words is a vocabulary file of n words.
func words(n int) string {
	list := []string{"<pad>", "<unk>", "<s>", "</s>"}
	for i := len(list); i < n; i++ {
		list = append(list, fmt.Sprintf("w%d", i))
	}
	return strings.Join(list[:n], "\n") + "\n"
}

// tester is a testing.TB or a rapid.T.
type tester interface {
	Helper()
	Fatal(args ...any)
}

// file is the model as a safetensors file.
func (s *spec) file() []byte {
	var arrays []gguftest.Array
	for _, name := range slices.Sorted(maps.Keys(s.tensors)) {
		arrays = append(arrays, s.tensors[name])
	}
	return gguftest.Safetensors(arrays...)
}

// write writes the model and its vocabularies to a folder.
func (s *spec) write(t tester, dir string) {
	t.Helper()
	for name, content := range map[string][]byte{
		"model.safetensors": s.file(),
		"vocab.de":          []byte(words(s.source)),
		"vocab.en":          []byte(words(s.target)),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// load returns the model that [Load] reads from the files of s.
func (s *spec) load(t tester) *Model {
	t.Helper()
	m, err := read("model", s.file())
	if err != nil {
		t.Fatal(err)
	}
	for half, n := range map[*half]int{&m.encoder: s.source, &m.decoder: s.target} {
		list, err := vocab.Read([]byte(words(n)))
		if err != nil {
			t.Fatal(err)
		}
		if err := half.speak(list, "vocabulary"); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// times is the product of a matrix and a vector.
func (s *spec) times(matrix string, x []float64) []float64 {
	m := s.tensors[matrix]
	y := make([]float64, m.Shape[0])
	for i := range y {
		for j, w := range m.Data[i*len(x) : (i+1)*len(x)] {
			y[i] += float64(w) * x[j]
		}
	}
	return y
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// step reads one word with the layers of half, from the state h, c of each
// layer, and returns the output of the top one.
func (s *spec) step(half string, word uint32, h, c [][]float64) []float64 {
	embeddings := s.tensors[half+".embeddings.weight"]
	e := embeddings.Shape[1]
	var x []float64
	for _, v := range embeddings.Data[int(word)*e : (int(word)+1)*e] {
		x = append(x, float64(v))
	}
	for l := range s.layers {
		part := func(name string) string { return fmt.Sprintf("%s.rnn.%s_l%d", half, name, l) }
		in, hidden := s.times(part("weight_ih"), x), s.times(part("weight_hh"), h[l])
		gate := func(row int) float64 {
			return in[row] + hidden[row] + float64(s.tensors[part("bias_ih")].Data[row]) + float64(s.tensors[part("bias_hh")].Data[row])
		}
		h[l] = make([]float64, s.dim)
		for j := range s.dim {
			i, f, g, o := sigmoid(gate(j)), sigmoid(gate(s.dim+j)), math.Tanh(gate(2*s.dim+j)), sigmoid(gate(3*s.dim+j))
			c[l][j] = f*c[l][j] + i*g
			h[l][j] = o * math.Tanh(c[l][j])
		}
		x = h[l]
	}
	return x
}

// reference is the model by its equations in float64: the contexts after <s>
// and each word of the target.
func (s *spec) reference(p Pair) (contexts [][]float64) {
	h, c := make([][]float64, s.layers), make([][]float64, s.layers)
	for l := range h {
		h[l], c[l] = make([]float64, s.dim), make([]float64, s.dim)
	}
	var outputs [][]float64
	for _, word := range append(slices.Clone(p.Source), end) {
		outputs = append(outputs, s.step("encoder", word, h, c))
	}
	for _, word := range append([]uint32{start}, p.Target...) {
		q := s.step("decoder", word, h, c)
		key := s.times("decoder.attn.linear_in.weight", q)
		weights, sum, most := make([]float64, len(outputs)), 0.0, math.Inf(-1)
		for i, y := range outputs {
			for j := range y {
				weights[i] += key[j] * y[j]
			}
			most = max(most, weights[i])
		}
		for i := range weights {
			weights[i] = math.Exp(weights[i] - most)
			sum += weights[i]
		}
		joined := make([]float64, s.dim, 2*s.dim)
		for i, y := range outputs {
			for j := range y {
				joined[j] += weights[i] / sum * y[j]
			}
		}
		context := s.times("decoder.attn.linear_out.weight", append(joined, q...))
		for j, x := range context {
			context[j] = math.Tanh(x)
		}
		contexts = append(contexts, context)
	}
	return contexts
}

// maxError is the largest difference of contexts.
func maxError(got []float32, want [][]float64) float64 {
	flat := slices.Concat(want...)
	if len(got) != len(flat) {
		return math.Inf(1)
	}
	worst := 0.0
	for i, x := range got {
		diff := math.Abs(float64(x) - flat[i])
		if !(diff <= worst) {
			worst = diff
		}
	}
	return worst
}
