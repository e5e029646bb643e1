package head

import (
	"github.com/learning-to-screen/l2s/internal/heads"
	"github.com/learning-to-screen/l2s/internal/kernels"
)

// OpenContexts opens context vectors of dim elements: FILE.npy, FILE.npz:name or
// FILE.safetensors:name, of float16, bfloat16, float32 or float64. They are a matrix with one
// context a row; a vector is one context. It returns all of them, row by row: context i is
// rows[i*dim : (i+1)*dim]. They must not be changed, and are valid until the call of release, which
// closes the file.
//
// Rows of float32 in C order stay in the file, so that contexts may be larger than memory: the
// package's documentation describes mapped files. Others are copied as float32. OpenContexts reads
// all once, and an error names the first NaN or infinity.
func OpenContexts(source string, dim int) (rows []float32, release func() error, err error) {
	return heads.OpenContexts(source, dim)
}

// Tokens returns the text of each token of a model, by its id, as in the tokenizer: pieces, in
// which Ġ or ▁ usually means a space. The source is the folder of a model, a tokenizer.json or
// vocab.json, a tokenizer.model of sentencepiece, or a GGUF file, all of which it reads. A file may
// have any name: its first bytes tell the format. An error names the file, the value found and the
// value expected.
func Tokens(source string) (map[uint32]string, error) { return heads.Tokens(source) }

// IsTokenizer reports whether Tokens reads a source: a folder, or a file whose first bytes are
// JSON, a model of sentencepiece or a GGUF file. Any other file may be a list
// with a word a line.
func IsTokenizer(source string) bool { return heads.IsTokenizer(source) }

// Options configures Open. The zero value is ready.
type Options struct {
	// Bias is the source of the bias, one number per row, or "none" for no bias, even if one is
	// next to the weights. If it is empty, the bias is looked for next to the weights; there may be
	// none.
	Bias string
	// IDs are the labels whose rows make the head, in this order, each at most once:
	// a draft head. All, if it is nil. The rows are copied.
	IDs []uint32
	// Copy copies the rows into the program's memory and checks that they are
	// finite, so that nothing that happens to the file later matters.
	Copy bool
}

// Origin tells where a head was found, and why it was taken.
type Origin struct {
	File    string   // that has the rows
	Tensor  string   // that W is; a .npy file has no name for it
	Bias    string   // the tensor of b, or its source in Options; "" for none
	Padding int      // the number of rows at the end of W that belong to no token and are left out
	Mapped  bool     // the rows are in a mapped file: see the package's documentation
	Tied    bool     // the head is the input embedding of the model
	Why     string   // it is, or is not, taken for it
	State   string   // where to take a context
	Notes   []string // decisions where the files leave a choice, or contradict each other
}

// Head is the head of a model. Its methods may be called by many goroutines at once.
//
// [Open] makes one: a zero value has no use, and its methods may panic.
type Head heads.Head

func (h *Head) head() *heads.Head { return (*heads.Head)(h) }

// Open opens the head source, see the package's documentation. An error names the file, the value
// found and the value expected. Open does not read mapped rows: softmax.NewLayer,
// of h.Rows() and h.Bias(), checks that they are finite.
func Open(source string, opt Options) (*Head, error) {
	h, err := heads.Open(source, heads.Options(opt))
	return (*Head)(h), err
}

// Origin returns where the head was found.
func (h *Head) Origin() Origin { return Origin(h.head().Origin()) }

// Suppressed returns the tokens that the model's files forbid, ascending: the tokens to which
// llama.cpp (tokenizer.ggml.suppress_tokens) and transformers' generate (suppress_tokens of
// generation_config.json) give a logit of minus infinity. They are no padding, and are among the
// answers unless a request bans them, as by bitset.FromIDs(h.Labels(), h.Suppressed()) if it is no
// draft. They must not be changed.
func (h *Head) Suppressed() []uint32 { return h.head().Suppressed() }

// Labels returns the number of rows that can be answered, without padding.
func (h *Head) Labels() int { return h.head().Labels() }

// Dim returns the number of elements of a row and of a context vector.
func (h *Head) Dim() int { return h.head().Dim() }

// Rows returns W, Labels x Dim. They are valid until Close, and are best read within
// [Head.Read] if Origin.Mapped is true.
func (h *Head) Rows() kernels.Rows { return h.head().Rows() }

// Bias returns b, one number per row, or nil for none. It must not be changed, and is valid after
// Close.
func (h *Head) Bias() []float32 { return h.head().Bias() }

// IDs returns the label of the full vocabulary of each row of a draft head, or nil if row i belongs
// to label i. It must not be changed.
func (h *Head) IDs() []uint32 { return h.head().IDs() }

// StateScale returns the factor of a state between the last normalisation and the head, and 1 if
// there is none: T5 with a tied embedding, MiniCPM and Inkling have one. Contexts that were taken
// at the head include it; multiply a last hidden state from after the normalisation by it. It is no
// part of [Head.LogitScale]. For a GGUF file it is 1. The logit of a state h before it is
// w.(StateScale h) + b.
func (h *Head) StateScale() float64 { return h.head().StateScale() }

// LogitScale returns the factor of a logit, 1 by default, for softmax.Layer.Scaled. It is a scale after
// the head, of the logit of the context that the head is applied to: of a folder the input of the
// head, which a hook on it sees; of a GGUF file the node result_norm of llama.cpp, whose embeddings
// without pooling it is. docs/head.md has a row for each family of models: the fields of its files,
// and their defaults.
func (h *Head) LogitScale() float64 { return h.head().LogitScale() }

// SoftCap returns c if the model maps a scaled logit x to c tanh(x/c), 0 if it does not:
// final_logit_softcapping of Gemma and others, logits_soft_cap of RecurrentGemma. The cap comes
// after the scale, as in llama.cpp's src/models/grok.cpp and in Muse Glimmer of transformers. Gemma
// 2 has it first, https://arxiv.org/abs/2408.00118, section 2.
func (h *Head) SoftCap() float64 { return h.head().SoftCap() }

// Logit returns the logit that the model's softmax is of, from the raw one, w_s.h + b_s. Apart from
// rounding it rises with the raw one, so the best labels are the same for both. Log-probabilities
// are of final logits. The bits are the same on every machine.
func (h *Head) Logit(raw float64) float64 { return h.head().Logit(raw) }

// String describes the opened head in one line:
//
//	lm_head.weight, 32000 x 2048 bfloat16, mapped; no bias; 64 rows of padding left out; scale 0.0625
func (h *Head) String() string { return h.head().String() }

// Read runs f, which reads Rows: Close waits for it. A closed head is an error; so is a fault of a
// mapped file in the goroutine of f, which ends f. Goroutines that f starts need their own Read. f
// must not call Close or Read.
func (h *Head) Read(f func() error) error { return h.head().Read(f) }

// Close releases the file, after the reads that are under way within Read. After Close, Rows must
// not be read any more. A mapped head that is not closed stays mapped.
func (h *Head) Close() error { return h.head().Close() }
