package l2s

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/files/heads"
	"github.com/learning-to-screen/l2s/internal/search/engine"
)

// Matrix is a matrix in memory of the caller, row-major: the weights of a layer, or contexts. Its
// elements are float32, float16, bfloat16 or quantised; each has a value in float32. It is a view:
// no element is copied. The zero value has no rows.
type Matrix engine.Matrix

// Float32 returns the matrix with rows of dim elements in data. If the length of data is not a
// multiple of dim, or dim not above 0, the matrix has no rows, and what it is given to returns an
// error. So do the other constructors.
func Float32(data []float32, dim int) Matrix {
	return Matrix(engine.MatrixOf(data, kernels.Float32, dim, func() kernels.Rows { return kernels.Float32Rows(data, dim) }))
}

// Float16 is [Float32] for the bits of IEEE 754 binary16 numbers.
func Float16(data []uint16, dim int) Matrix {
	return Matrix(engine.MatrixOf(data, kernels.Float16, dim, func() kernels.Rows { return kernels.Float16Rows(data, dim) }))
}

// BFloat16 is [Float32] for the bits of bfloat16 numbers.
func BFloat16(data []uint16, dim int) Matrix {
	return Matrix(engine.MatrixOf(data, kernels.BFloat16, dim, func() kernels.Rows { return kernels.BFloat16Rows(data, dim) }))
}

// Quantised is [Float32] for elements of a quantised type, given as the bytes of their blocks, in any
// alignment. dim is a multiple of the elements of a block, 32 or 256. A weight has the value of
// ggml's dequantisation in float32, to the bit.
func Quantised(data []byte, q Quantisation, dim int) Matrix {
	e := kernels.Element(q)
	return Matrix(engine.MatrixOf(data, e, dim, func() kernels.Rows { return kernels.QuantisedRows(data, e, dim) }))
}

func (m Matrix) rows() kernels.Rows {
	rows, _ := engine.Matrix(m).Rows()
	return rows
}

// Rows returns the number of rows.
func (m Matrix) Rows() int { return m.rows().Len() }

// Dim returns the number of elements of a row.
func (m Matrix) Dim() int { return m.rows().Dim() }

// Row writes row i as float32 to dst, which has Dim elements.
func (m Matrix) Row(dst []float32, i int) { m.rows().Widen(dst, i) }

// Quantisation is a quantised type of ggml, the library of llama.cpp.
type Quantisation uint8

// The quantised types, by their names in GGUF files.
const (
	Q4_0 = Quantisation(kernels.Q4_0)
	Q4_1 = Quantisation(kernels.Q4_1)
	Q5_0 = Quantisation(kernels.Q5_0)
	Q5_1 = Quantisation(kernels.Q5_1)
	Q8_0 = Quantisation(kernels.Q8_0)
	Q4_K = Quantisation(kernels.Q4_K)
	Q5_K = Quantisation(kernels.Q5_K)
	Q6_K = Quantisation(kernels.Q6_K)
)

// String returns the type's name in lower case, as in "q4_k".
func (q Quantisation) String() string { return kernels.Element(q).String() }

// Layer is a softmax layer: weights W (labels x dim, row s is w_s) and bias b. It is immutable,
// except for its threads, and safe for use by many goroutines.
//
// [Open] and [New] make one: a zero value has no use, and its methods may panic.
type Layer engine.Layer

func (l *Layer) layer() *engine.Layer { return (*engine.Layer)(l) }

// New returns the layer with the weights W and the bias, one element a row of W, or nil for zeros.
// The elements are kept, not copied, and must not be changed. The search reads quantised rows where
// they are, with 16 bytes for each row besides; of others it makes codes, one to one and a half
// bytes for each weight.
//
// It returns an error if the lengths do not match, if there is no row, or if a weight or a bias is
// NaN or infinite. It reads W once, on all cores.
func New(w Matrix, bias []float32) (*Layer, error) {
	l, err := engine.NewLayer(engine.Matrix(w), bias)
	return (*Layer)(l), err
}

// OpenOptions are the options of [Open]. The zero value is ready.
type OpenOptions struct {
	// Bias is the source of the bias, one number per row, or "none" for no bias, even if one is
	// next to the weights. If it is empty, the bias of the same model is looked for; there may be
	// none. A .npy file has no other tensor: name the file of its bias.
	Bias string
	// IDs are the labels whose rows make the layer, in this order, each at most once: a draft head.
	// Label i of the layer is IDs[i] of the model. All, if it is nil. The rows are copied.
	IDs []uint32
	// Copy copies the rows into the program's memory, so that nothing that happens to the file later
	// matters.
	Copy bool
	// Normed: contexts are states from after the model's last normalisation, and not from the head
	// itself. Some models scale states in between: see [Info.StateScale].
	Normed bool
}

// Open opens the head of a language model, or a matrix, as a layer. A source is one of
//
//	FOLDER                   a model as Hugging Face lays it out: config.json and safetensors
//	FOLDER:tensor.name       another tensor of it
//	FILE.gguf                a model of llama.cpp, or one file of it: output.weight, or token_embd.weight
//	FILE.gguf:tensor.name    another tensor of it
//	FILE.safetensors:name    one tensor
//	FILE.npy, FILE.npz:name  an array of numpy
//
// FILE may have any name: its first bytes tell the format. An error names the file, the value found
// and the value expected. Open reads the rows once, on all cores.
//
// # Rows in place
//
// Rows of float32, float16, bfloat16 and ggml's quantised types Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K,
// Q5_K and Q6_K stay unchanged in the file, which is mapped into memory: the system reads them when
// they are needed, and takes the memory back when it is short. If that is not possible, the rows are
// copied: unchanged for rows at an odd address and systems without a mapping; as float32 for the
// Fortran order and float64. [Layer.String] tells which. [OpenOptions.Copy] asks for a copy.
//
// Mapped files must stay as they are while they are open. If another program shortens one, or the
// disk fails, a search returns an error. If it changes the file in place, answers come from old and
// new bytes, and may be NaN. It is safe to replace a file by renaming.
//
// # Which tensor is the head
//
// In a folder it is lm_head.weight, or the name that the architecture gives it, if it is stored,
// even if config.json ties it. It is the input embedding only if no file of the folder has a tensor
// that is named like a head, with any prefix and quantisation, and config.json does not deny the
// tie; without a word in config.json, no other matrix may have the shape of the embedding either.
// In a GGUF model it is output.weight, else token_embd.weight, if no file of the model has the
// first and llama.cpp loads the architecture so. Open looks for the bias in the same place.
// [Info.Why] has the reason. The names come from gguf-py/gguf/tensor_mapping.py of
// https://github.com/ggml-org/llama.cpp, which lists them for each architecture, and from
// transformers' _tied_weights_keys.
//
// # Padding
//
// Models pad W with rows that no token has, for the speed of other hardware. Rows from the size of
// the tokenizer on are left out, so that they are never answered.
//
// In a folder the size is one more than the largest id in tokenizer.json. Without that file it is
// the number of pieces of a sentencepiece tokenizer.model, unless the model has its own code that
// adds to them (auto_map), or else the size of a vocab.json with merges.txt or source.spm. It is
// above every id that tokenizer_config.json, added_tokens.json and config.json name, and a
// vocab.json gets further ids for special tokens with a name and no id. In a GGUF file it is the
// length of tokenizer.ggml.tokens without the [PADn] at its end, with which llama.cpp's converter
// fills the list up. Without any of these, rows of zeros at the end are left out, unless there is a
// bias, and all other rows are labels.
func Open(source string, o OpenOptions) (*Layer, error) {
	l, err := engine.Open(source, heads.Options{Bias: o.Bias, IDs: o.IDs, Copy: o.Copy}, o.Normed)
	return (*Layer)(l), err
}

// Info describes a layer, and the file that it was opened from. Of a layer of [New] only Type, Scale
// and StateScale are set.
type Info struct {
	Type    string   // of the elements: "float32", "q6_k"
	File    string   // that has the rows
	Tensor  string   // that W is; a .npy file has no name for it
	Bias    string   // the tensor of b, or its source in OpenOptions; "" for none
	Padding int      // the number of rows at the end of W that belong to no token and are left out
	Mapped  bool     // the rows are in a mapped file
	Tied    bool     // W is the input embedding of the model
	Why     string   // it is, or is not, taken for it
	State   string   // where to take a context
	Notes   []string // decisions where the files leave a choice, or contradict each other

	// Scale and Cap are the scale and the soft cap of the logits, 1 and 0 by default: see
	// [Layer.Scaled]. [Open] takes them from the model's files.
	Scale, Cap float64
	// StateScale is the factor of a state between the last normalisation and the head, and 1 if
	// there is none: T5 with a tied embedding, MiniCPM and Inkling have one. Contexts that were taken
	// at the head include it; multiply a last hidden state from after the normalisation by it. It is
	// no part of Scale unless [OpenOptions.Normed] is set. For a GGUF file it is 1.
	StateScale float64
	// IDs are the labels of the model that the rows of a draft head belong to, nil if row i belongs
	// to label i.
	IDs []uint32
	// Suppressed are the tokens that the model's files forbid, ascending: tokenizer.ggml.suppress_tokens
	// of llama.cpp, suppress_tokens of generation_config.json. They are among the answers unless a
	// request bans them.
	Suppressed []uint32
}

// Info describes the layer. Its slices must not be changed.
func (l *Layer) Info() Info {
	x := l.layer().Exact()
	i := Info{Type: x.Weights().Element().String(), Scale: x.Scale(), Cap: x.SoftCap(), StateScale: 1}
	if h := l.layer().Head(); h != nil {
		o := h.Origin()
		i.File, i.Tensor, i.Bias, i.Padding, i.Mapped, i.Tied = o.File, o.Tensor, o.Bias, o.Padding, o.Mapped, o.Tied
		i.Why, i.State, i.Notes = o.Why, o.State, o.Notes
		i.StateScale, i.IDs, i.Suppressed = h.StateScale(), h.IDs(), h.Suppressed()
	}
	return i
}

// String describes the layer in one line:
//
//	lm_head.weight, 32000 x 2048 bfloat16, mapped; no bias; 64 rows of padding left out; scale 0.0625
func (l *Layer) String() string { return l.layer().String() }

// Labels returns L, the number of labels.
func (l *Layer) Labels() int { return l.layer().Labels() }

// Dim returns d, the dimension of a context.
func (l *Layer) Dim() int { return l.layer().Dim() }

// Scaled returns the layer of a model that multiplies w_s.h + b_s by a scale, and maps the result x
// to c tanh(x/c) if the soft cap c is not 0: Granite, MiniCPM and Cohere's models have a scale, Gemma
// 2 has a cap. [Open] does so by itself. These final logits are all that its searchers know, and so
// are indexes, samplers and learners over it: the order, distances, biases (which are added to final
// logits), temperatures, sums and probabilities are of final logits, computed in float64 from
// w_s.h + b_s. Equal final logits, as a cap may make of unequal ones, are in the order of labels.
//
// The layer shares W, b, their codes and their file with l, whose own scale and cap it does not have:
// it has the threads of l until SetThreads of one of the two. Scaled(1, 0) has the logits
// w_s.h + b_s. A scale costs nothing. A cap costs a hyperbolic tangent for each label of a sum or of a
// draw that no top-k or min-p bounds.
//
// It returns an error if scale or softCap, unless that is 0, is not within 2^-126 and 2^126.
func (l *Layer) Scaled(scale, softCap float64) (*Layer, error) {
	of, err := l.layer().Scaled(scale, softCap)
	return (*Layer)(of), err
}

// Fingerprint returns a hash of the layer: its shape, W and b, for any type of W. An index carries
// the fingerprint of the layer that it was made for. It is computed on the first call, which
// reads all of W on all cores.
//
// It is the SHA-256 of: the number of labels and the dimension, as little-endian 64-bit
// integers; the SHA-256 of each 256 rows of W, the last of the rest; the SHA-256
// of b. Weights and bias are hashed as little-endian 32-bit floats. A scale and a soft cap do not
// change it. It panics with an error if the layer is closed, or its file was cut off.
func (l *Layer) Fingerprint() [32]byte {
	var sum [32]byte
	if err := l.layer().Read(func() error { sum = l.layer().Exact().Fingerprint(); return nil }); err != nil {
		panic(err)
	}
	return sum
}

// SetThreads lets exact searches over large layers run on up to n threads, at most 256, the
// caller's among them. Before, a layer has one thread. Answers are the same. The layer owns the
// other threads, which are parked between searches and serve one search at a time: a goroutine that
// finds them busy searches alone. They end with the next SetThreads, and when the layer is
// unreachable. It must not be called while the layer is searched.
func (l *Layer) SetThreads(n int) { l.layer().Exact().SetThreads(n) }

// Close releases the file that the layer was opened from, after the searches that are under way.
// Searches after it return an error. A layer of [New] has no file: Close does nothing.
func (l *Layer) Close() error { return l.layer().Close() }

// Tokens returns the text of each token of a model, by its id, as in the tokenizer: pieces, in
// which Ġ or ▁ usually means a space. The source is the folder of a model, a tokenizer.json or
// vocab.json, a tokenizer.model of sentencepiece, a GGUF file, all of which it reads, or a UTF-8 text
// of at most 256 MiB with a label a line, whose ids are the numbers of the lines, from 0 on. A file may
// have any name: its first bytes tell the format. An error names the file, the value found and the
// value expected.
func Tokens(source string) (map[uint32]string, error) {
	if heads.IsTokenizer(source) {
		return heads.Tokens(source)
	}
	const most = 256 << 20
	file, err := os.Open(source)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, most+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) == 0 || len(text) > most || !utf8.Valid(text):
		return nil, fmt.Errorf("%s: found %d bytes that are no tokenizer, expected one, or UTF-8 text of 1 to %d bytes with a label a line", source, len(text), most)
	}
	tokens := map[uint32]string{}
	for line := range strings.SplitSeq(strings.TrimSuffix(string(text), "\n"), "\n") {
		tokens[uint32(len(tokens))] = strings.TrimSuffix(line, "\r")
	}
	return tokens, nil
}

// Contexts are context vectors in an open file.
type Contexts struct {
	rows    []float32
	release func() error
}

// OpenContexts opens context vectors of dim elements: FILE.npy, FILE.npz:name or
// FILE.safetensors:name, of float16, bfloat16, float32 or float64, a matrix with one context a row;
// a vector is one context. Rows of float32 in C order stay in the file, so that contexts may be
// larger than memory; others are copied as float32. OpenContexts reads all once, and an error names
// the first NaN or infinity.
func OpenContexts(source string, dim int) (*Contexts, error) {
	rows, release, err := heads.OpenContexts(source, dim)
	if err != nil {
		return nil, err
	}
	return &Contexts{rows, release}, nil
}

// Rows returns all contexts, row by row: context i is Rows()[i*dim : (i+1)*dim]. They must not be
// changed, and are valid until Close. If they are in a file that another program cuts off, a read
// ends the program, except in preview.Make, train.Run and screen.Evaluate, which return an error.
func (c *Contexts) Rows() []float32 { return c.rows }

// Close closes the file.
func (c *Contexts) Close() error { return c.release() }
