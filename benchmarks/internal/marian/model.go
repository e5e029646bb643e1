// Package marian runs the small translation models of Marian that Firefox ships: a transformer as
// encoder, and a decoder whose layers have a simpler simple recurrent unit (SSRU; Kim et al., From
// Research to Production and Back, 2019) in the place of attention to the words before. Weights are
// int8 codes with a scale per matrix, and stay so. It computes the context vectors h, of which a
// softmax layer makes the probabilities of the next piece; the caller decides how to use these.
//
// With x the input of a layer, LN a normalisation with scale and bias, and A attention with heads,
//
//	encoder: y = LN(x + A(x, x)), then LN(y + W2 relu(W1 y))
//	decoder: f = sigmoid(Wf x), c = f c + (1 - f) W x, y = LN(x + relu(c)), z = LN(y + A(y, source)),
//	         then LN(z + W2 relu(W1 z))
//
// The first input is the row of a piece times the root of d, plus sines and cosines of its place.
// The decoder begins with zeros in the place of the row.
//
// The bits of a context do not depend on other work at the same time: other sentences, other
// hypotheses, other goroutines.
package marian

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"strconv"
	"unsafe"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/codes/encode"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
)

// Most is the largest number of pieces of a sentence, </s> included, and of a translation.
const Most = 1024

// Model is a translation model. It does not change, and any number of goroutines may use it.
type Model struct {
	dim, heads int
	codes      []byte  // of the rows of pieces
	step       float32 // of a code
	bias       []float32
	head       *linear
	places     []float32 // Most x d
	encoder    []encoderLayer
	decoder    []decoderLayer
}

type encoderLayer struct {
	q, k, v, o, w1, w2 *linear
	attended, done     norm
}

type decoderLayer struct {
	w, wf, q, k, v, o, w1, w2 *linear
	recalled, attended, done  norm
}

// linear is a matrix of codes with a bias.
type linear struct {
	panels  *kernels.Int8Panels
	bias    []float32
	in, out int
}

// norm is a normalisation of rows.
type norm struct{ scale, bias []float32 }

// Load reads the model in a file. Errors name the file, the tensor, and what was found and expected.
func Load(path string) (*Model, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// Parse reads a model. It keeps no part of data.
func Parse(data []byte) (*Model, error) {
	f, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("marian: %w", err)
	}
	r := &reader{file: f, used: map[string]bool{}}
	m, err := r.model()
	if err != nil {
		return nil, fmt.Errorf("marian: %w", err)
	}
	return m, nil
}

func (r *reader) model() (*Model, error) {
	o := r.options()
	number := func(name string, least, most int) int {
		n, err := strconv.Atoi(o[name])
		if r.err == nil && (err != nil || n < least || n > most) {
			r.err = fmt.Errorf("special:model.yml: %s: found %q, expected %d to %d", name, o[name], least, most)
		}
		return n
	}
	dim, ffn := number("dim-emb", 2, 1<<14), number("transformer-dim-ffn", 1, kernels.MaxInt8Dim)
	m := &Model{dim: dim, heads: number("transformer-heads", 1, dim)}
	encoders, decoders := number("enc-depth", 1, 64), number("dec-depth", 1, 64)
	if r.err == nil && (dim%m.heads != 0 || dim%2 != 0) {
		r.err = fmt.Errorf("special:model.yml: dim-emb: found %d, expected an even multiple of the %d heads", dim, m.heads)
	}
	codes, labels, _, step := r.codes("Wemb", -1, dim)
	m.codes, m.step = append([]byte(nil), codes...), step
	m.bias = r.floats("decoder_ff_logit_out_b", labels)
	if r.err == nil {
		m.head = &linear{bias: m.bias, in: dim, out: labels}
		m.head.panels, r.err = panels(m.codes, dim, step)
	}
	for l := 1; l <= encoders && r.err == nil; l++ {
		p := fmt.Sprintf("encoder_l%d_", l)
		var e encoderLayer
		e.q, e.k, e.v, e.o, e.attended = r.attention(p+"self_", dim)
		e.w1, e.w2, e.done = r.forward(p, dim, ffn)
		m.encoder = append(m.encoder, e)
	}
	for l := 1; l <= decoders && r.err == nil; l++ {
		p := fmt.Sprintf("decoder_l%d_", l)
		var d decoderLayer
		d.w = r.linear(p+"rnn_W", "", dim, dim)
		d.wf = r.linear(p+"rnn_Wf", p+"rnn_bf", dim, dim)
		d.recalled = r.norm(p+"rnn_ffn_ln", dim)
		d.q, d.k, d.v, d.o, d.attended = r.attention(p+"context_", dim)
		d.w1, d.w2, d.done = r.forward(p, dim, ffn)
		m.decoder = append(m.decoder, d)
	}
	r.only()
	if r.err != nil {
		return nil, r.err
	}
	m.places = make([]float32, Most*dim)
	for t := range Most {
		half := dim / 2
		for j := range half {
			turn := kernels.Exp(-kernels.Log(10000) * float64(j) / float64(max(half-1, 1)))
			sin, cos := math.Sincos(float64(float32(t) * float32(turn)))
			m.places[t*dim+j], m.places[t*dim+half+j] = float32(sin), float32(cos)
		}
	}
	return m, nil
}

func (r *reader) attention(p string, dim int) (q, k, v, o *linear, n norm) {
	return r.linear(p+"Wq", p+"bq", dim, dim), r.linear(p+"Wk", p+"bk", dim, dim), r.linear(p+"Wv", p+"bv", dim, dim),
		r.linear(p+"Wo", p+"bo", dim, dim), r.norm(p+"Wo_ln", dim)
}

func (r *reader) forward(p string, dim, ffn int) (w1, w2 *linear, n norm) {
	return r.linear(p+"ffn_W1", p+"ffn_b1", dim, ffn), r.linear(p+"ffn_W2", p+"ffn_b2", ffn, dim), r.norm(p+"ffn_ffn_ln", dim)
}

func (r *reader) norm(p string, dim int) norm {
	return norm{r.floats(p+"_scale", dim), r.floats(p+"_bias", dim)}
}

// linear reads a matrix of in x out, which the file has as out rows of in codes.
func (r *reader) linear(name, bias string, in, out int) *linear {
	codes, _, _, step := r.codes(name, in, out)
	l := &linear{in: in, out: out}
	if bias != "" {
		l.bias = r.floats(bias, out)
	}
	if r.err == nil {
		l.panels, r.err = panels(codes, in, step)
	}
	return l
}

// panels makes panels of rows of codes. The rows are the codes, without an error: the ends of an
// interval are the same number, the product.
func panels(codes []byte, in int, step float32) (*kernels.Int8Panels, error) {
	n, stride := len(codes)/in, kernels.Int8Stride(in)
	records := aligned(n * stride)
	ids := make([]uint32, n)
	for i := range n {
		ids[i] = uint32(i)
		record := records[i*stride:][:stride]
		for j := range record[:stride-kernels.MetaBytes] {
			record[j] = kernels.CodeBias
		}
		for j, c := range codes[i*in:][:in] {
			record[j] = c + kernels.CodeBias
		}
		binary.LittleEndian.PutUint32(record[stride-kernels.MetaBytes:], math.Float32bits(step))
	}
	rows := kernels.Int8RowsIn(records, in, 0)
	return encode.NewPanels(rows, aligned(kernels.PanelsOf(n)*kernels.PanelBytes(in, false)), ids, []int{0, n})
}

// aligned returns n bytes that begin with a cache line.
func aligned(n int) []byte {
	const line = 64
	b := make([]byte, n+line)
	at := int(-uintptr(unsafe.Pointer(&b[0])) % line)
	return b[at : at+n : at+n]
}

// Dim returns the dimension of the contexts, d.
func (m *Model) Dim() int { return m.dim }

// Labels returns the number of pieces.
func (m *Model) Labels() int { return len(m.bias) }

// Rows returns the weights of the softmax layer, a row a piece, and its bias.
func (m *Model) Rows() (w, bias []float32) {
	w = make([]float32, len(m.codes))
	for i, c := range m.codes {
		w[i] = float32(int8(c)) * m.step
	}
	return w, m.bias
}

// Layer returns the softmax layer, a label a piece.
func (m *Model) Layer() (*l2s.Layer, error) {
	w, bias := m.Rows()
	return l2s.New(l2s.Float32(w, m.dim), bias)
}

// NewHead returns the softmax layer by the codes of the model: it writes the logits of n contexts, a
// row of Labels numbers for each. A goroutine needs its own.
func (m *Model) NewHead(p Precision) func(logits, contexts []float32, n int) {
	w := newWork(p)
	return func(logits, contexts []float32, n int) { w.apply(logits, m.head, contexts, n) }
}

// embed writes the row of a piece, times the root of d.
func (m *Model) embed(dst []float32, piece uint32) {
	scale := m.step * float32(math.Sqrt(float64(m.dim)))
	for j, c := range m.codes[int(piece)*m.dim:][:m.dim] {
		dst[j] = float32(int8(c)) * scale
	}
}

// place adds what tells the place t.
func (m *Model) place(x []float32, t int) {
	for j, p := range m.places[t*m.dim:][:m.dim] {
		x[j] += p
	}
}
