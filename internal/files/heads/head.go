package heads

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
)

// noBias is the Bias of a head without one.
const noBias = "none"

// Options are l2s.OpenOptions.
type Options struct {
	Bias string
	IDs  []uint32
	Copy bool
}

// Head is the head of a model. Its methods may be called by many goroutines at once.
type Head struct {
	model
	dim        int
	bias       []float32
	ids        []uint32
	vocabulary int
	padding    int
	element    kernels.Element
	biasName   string
	norm       norm
	mapped     bool         // rows are in a file
	widened    bool         // rows are float32, and the rows of the file are not
	mu         sync.RWMutex // held for reading by who reads rows, for writing by Close
	rows       kernels.Rows
	closed     bool
}

// Open is l2s.Open, without the layer.
func Open(source string, opt Options) (*Head, error) {
	m, err := openModel(source)
	if err != nil {
		return nil, err
	}
	h, err := m.head(opt)
	if err != nil {
		m.file.Close()
		return nil, err
	}
	return h, nil
}

// tensors is an open file or folder of them. Close may be called twice.
type tensors interface {
	Tensor(name string) (*tensorfile.Tensor, error)
	Has(name string) bool
	Close() error
}

// model names the tensor of a file or a folder that is the head, with its metadata.
type model struct {
	path     string
	file     tensors
	weights  string   // the tensor's name
	biases   []string // names a bias may have
	norms    []string // names the last normalisation may have
	tokens   int      // size of the tokenizer, 0 if it is not known
	declared int      // size of the vocabulary that the model states, 0 for none
	offsets  bool     // a tensor d2t holds differences, not ids
	whole    bool     // it is a model, with its own tokenizer
	// widths are the columns that the head may have, as the model states them; empty if it does not.
	widths     []int
	widthField string // that has the first
	finish     finish
	origin     Origin

	suppressed []uint32 // in any order, of any ids
}

// Origin has the fields of l2s.Info that tell how the file was read.
type Origin struct {
	File, Tensor, Bias string
	Padding            int
	Mapped, Tied       bool
	Why, State         string
	Notes              []string
}

// Origin tells how the file was read.
func (h *Head) Origin() Origin {
	o := h.origin
	o.Tensor, o.Bias, o.Padding, o.Mapped, o.Notes = h.weights, h.biasName, h.padding, h.mapped, slices.Clone(o.Notes)
	return o
}

// Suppressed is l2s.Info.Suppressed.
func (h *Head) Suppressed() []uint32 { return h.model.suppressed }

// openModel opens a source.
func openModel(source string) (*model, error) {
	path, name, _ := tensorfile.SplitSource(source)
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return openFolder(path, name)
	}
	f, name, named, err := tensorfile.OpenSource(source, wantedMetadata)
	if err != nil {
		return nil, err
	}
	m := &model{path: path, file: f, weights: name, biases: []string{biasOf(name)}}
	m.origin = Origin{File: path, Why: "its tensor was named", State: "the vector that the rows are multiplied by"}
	if f.Format != ".gguf" {
		return m, nil
	}
	s, err := openSet(path, f)
	if err != nil {
		return nil, err
	}
	m.file, m.whole = s, true
	if err := m.gguf(s, named); err != nil {
		s.Close()
		return nil, err
	}
	return m, nil
}

// biasOf returns the name of the bias of a tensor, "" for none.
func biasOf(weights string) string {
	if stem, ok := strings.CutSuffix(weights, "weight"); ok {
		return stem + "bias"
	}
	return ""
}

// elements are the types whose rows are not converted.
var elements = map[tensorfile.DType]kernels.Element{
	tensorfile.Float32: kernels.Float32, tensorfile.Float16: kernels.Float16, tensorfile.BFloat16: kernels.BFloat16,
	tensorfile.Q4_0: kernels.Q4_0, tensorfile.Q5_0: kernels.Q5_0, tensorfile.Q8_0: kernels.Q8_0,
	tensorfile.Q4_K: kernels.Q4_K, tensorfile.Q5_K: kernels.Q5_K, tensorfile.Q6_K: kernels.Q6_K,
	tensorfile.Q4_1: kernels.Q4_1, tensorfile.Q5_1: kernels.Q5_1,
}

// head makes the head of the model, which is closed if no row is in it.
func (m *model) head(opt Options) (*Head, error) {
	t, err := m.file.Tensor(m.weights)
	if err != nil {
		return nil, err
	}
	if err := t.ExpectMatrix(); err != nil {
		return nil, err
	}
	if len(m.widths) > 0 && !slices.Contains(m.widths, t.Cols()) {
		return nil, m.fail("columns", "found %d, expected %d, as %s: the files are of different models; name the tensor to take its rows as they are", t.Cols(), m.widths[0], tensorfile.Label(m.widthField))
	}
	if err := m.checkScales(t); err != nil {
		return nil, err
	}
	h := &Head{model: *m, dim: t.Cols()}
	labels := t.Rows()
	if uint64(labels) > math.MaxUint32 {
		return nil, m.fail("shape", "found %d rows, expected at most %d", labels, uint32(math.MaxUint32))
	}
	h.vocabulary = labels
	if m.tokens > 0 {
		h.vocabulary = min(labels, m.tokens)
	}
	if opt.IDs != nil {
		h.ids = slices.Clone(opt.IDs)
		err = m.checkChosen(h.ids, labels, h.vocabulary)
	} else if h.ids, err = m.ownIDs(labels); h.ids != nil {
		h.vocabulary = max(m.declared, int(slices.Max(h.ids))+1)
	}
	if err != nil {
		return nil, err
	}
	if h.ids == nil {
		h.padding = labels - h.vocabulary
		if n := m.declared; n > labels || n > 0 && labels-n > n/8+512 { // fewer rows more are padding
			h.origin.Notes = append(h.origin.Notes, fmt.Sprintf("%s says vocab_size %d, and the head has %d rows", configFile, n, labels))
		}
	}
	if h.bias, h.biasName, err = m.bias(opt.Bias, t); err != nil {
		return nil, err
	}
	h.norm = m.norm(h.dim)
	data, err := h.data(t, opt.Copy && opt.IDs == nil)
	if err != nil {
		return nil, err
	}
	if opt.IDs != nil {
		if data, err = h.pick(data, labels); err != nil {
			return nil, err
		}
	}
	h.rows = rowsOf(data, h.element, h.dim)
	if err := h.leaveOutZeros(); err != nil {
		return nil, err
	}
	h.rows = kernels.Part(h.rows, 0, h.rows.Len()-h.padding)
	h.model.suppressed = slices.DeleteFunc(h.model.suppressed, func(id uint32) bool { return int64(id) >= int64(h.vocabulary) })
	slices.Sort(h.model.suppressed)
	h.model.suppressed = slices.Compact(h.model.suppressed)
	if h.bias != nil {
		h.bias = h.bias[:h.Labels()]
	}
	if !h.mapped {
		if err := m.file.Close(); err != nil {
			return nil, err
		}
	}
	if opt.Copy {
		return h, h.Check()
	}
	return h, nil
}

// scaleEnds are the ends of the names of tensors without which the elements of a matrix are no
// weights: FP8, compressed-tensors, GPTQ, AWQ, bitsandbytes and MLX write them.
var scaleEnds = []string{".weight_scale", ".weight_scale_inv", ".weight_scale_2", ".weight_global_scale", ".weight_packed", ".weight.absmax", ".absmax", ".weight.SCB", ".SCB", ".qweight", ".qzeros", ".scales", ".scale", ".scale_weight"}

// checkScales refuses a matrix of floats that has scales in another tensor: the floats alone are
// another head. Types that are not read are refused where they are read, and GGUF keeps its scales
// in the rows, or as output.scale.
func (m *model) checkScales(t *tensorfile.Tensor) error {
	stem, ok := strings.CutSuffix(m.weights, ".weight")
	if _, gguf := m.file.(*ggufSet); gguf || !ok || !strings.HasPrefix(t.DType.String(), "float") || strings.HasPrefix(t.DType.String(), "float8") {
		return nil
	}
	for _, end := range scaleEnds {
		if name := stem + end; m.file.Has(name) {
			return m.fail("tensors", "found %s beside it, %s, expected weights without scales in another tensor: %s", tensorfile.Label(name), quantisation(stem, m.file.Has, "a scale of the weights"), original)
		}
	}
	return nil
}

// data returns all rows of a tensor, in the file if they can stay there and need not be the head's
// own, and sets their element.
func (h *Head) data(t *tensorfile.Tensor, own bool) ([]byte, error) {
	e, known := elements[t.DType]
	if h.element = e; known && !own {
		if data, ok := t.View(); ok {
			h.mapped = t.InFile()
			return data, nil
		}
	}
	if known {
		data, ok, err := t.Copy()
		if ok || err != nil {
			return data, err
		}
	}
	switch name := t.DType.String(); {
	case strings.HasPrefix(name, "float8_"), strings.HasPrefix(name, "float6_"), strings.HasPrefix(name, "float4_"):
		return nil, h.fail("dtype", "found %s, weights that have their scales in another tensor, expected float32, float16 or bfloat16: save the model in bfloat16", t.DType)
	case t.DType.Block() > 1 || t.DType == 0:
		return nil, h.fail("dtype", "found %s, expected float32, float16, bfloat16, q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q5_k or q6_k: llama-quantize --output-tensor-type q6_K makes a file with such a head, of one that is not quantised", t.DType)
	case h.whole && !strings.HasPrefix(name, "float"):
		stem, _ := strings.CutSuffix(h.weights, ".weight")
		if kind := quantisation(stem, h.file.Has, ""); kind != "" {
			return nil, h.fail("dtype", "found %s, %s, expected float32, float16 or bfloat16: %s", t.DType, kind, original)
		}
	}
	wide, err := t.Float32s()
	h.element, h.widened = kernels.Float32, t.DType != tensorfile.Float32
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(wide))), 4*len(wide)), err
}

// leaveOutZeros treats rows of zeros at the end as padding, if no file tells which rows are tokens:
// training makes no such row for a token, and if all other logits are negative it would be the
// best.
func (h *Head) leaveOutZeros() error {
	if !h.whole || h.tokens > 0 || h.ids != nil || h.bias != nil {
		return nil
	}
	n := h.rows.Len()
	row := make([]float32, h.dim)
	zeros := 0
	err := h.Read(func() error {
		for ; zeros < n; zeros++ {
			h.rows.Widen(row, n-1-zeros)
			if slices.ContainsFunc(row, func(x float32) bool { return x != 0 }) {
				break
			}
		}
		return nil
	})
	if err == nil && zeros > 0 && zeros < n {
		h.padding, h.vocabulary = zeros, n-zeros
		h.origin.Notes = append(h.origin.Notes, fmt.Sprintf("no file tells which rows are tokens: %d rows of zeros at the end were taken for padding", zeros))
	}
	return err
}

// pick copies the rows of the head's labels, and their biases.
func (h *Head) pick(data []byte, rows int) (out []byte, err error) {
	size := len(data) / rows
	out = tensorfile.Aligned(len(h.ids) * size)
	err = h.Read(func() error {
		for i, id := range h.ids {
			copy(out[i*size:(i+1)*size], data[int(id)*size:])
		}
		return nil
	})
	h.mapped = false
	if all := h.bias; all != nil {
		h.bias = make([]float32, len(h.ids))
		for i, id := range h.ids {
			h.bias[i] = all[id]
		}
	}
	return out, err
}

// rowsOf returns the rows of dim elements in data.
func rowsOf(data []byte, e kernels.Element, dim int) kernels.Rows {
	p := unsafe.Pointer(unsafe.SliceData(data))
	switch e {
	case kernels.Float32:
		return kernels.Float32Rows(unsafe.Slice((*float32)(p), len(data)/4), dim)
	case kernels.Float16:
		return kernels.Float16Rows(unsafe.Slice((*uint16)(p), len(data)/2), dim)
	case kernels.BFloat16:
		return kernels.BFloat16Rows(unsafe.Slice((*uint16)(p), len(data)/2), dim)
	}
	return kernels.QuantisedRows(data, e, dim)
}

// bias reads the bias of the weights from source, or from the place of the weights. It is one
// number a row: a vector, or a matrix of one row or one column.
func (m *model) bias(source string, weights *tensorfile.Tensor) (bias []float32, name string, err error) {
	var t *tensorfile.Tensor
	rows := weights.Rows()
	switch {
	case source == noBias:
		return nil, "", nil
	case source != "":
		if t, err = tensorfile.OpenTensor(source); err != nil {
			return nil, "", err
		}
		defer t.Close()
		name = source
	default:
		i := slices.IndexFunc(m.biases, func(name string) bool { return name != "" && m.file.Has(name) })
		if i < 0 {
			return nil, "", nil
		}
		name = m.biases[i]
		if t, err = m.file.Tensor(name); err != nil {
			return nil, "", err
		}
	}
	// BART has it as 1 x labels.
	if err := t.ExpectShape(rows); err != nil && t.ExpectShape(1, rows) != nil && t.ExpectShape(rows, 1) != nil {
		if source != "" && len(t.Shape) == 1 && t.Rows() == weights.Cols() {
			return nil, "", fmt.Errorf("%w, one number for each number of %s: save its transpose", weights.ExpectShape(weights.Cols(), rows), source)
		}
		return nil, "", fmt.Errorf("%w, one number for each row of %s", err, m.name())
	}
	bias, err = t.Float32s()
	return bias, name, err
}

// name is the file and the tensor as errors name them.
func (m *model) name() string { return sourceName(m.path, m.weights) }

func (m *model) fail(field, format string, args ...any) error {
	return fail(m.name(), field, format, args...)
}

func sourceName(path, tensor string) string {
	if tensor == "" {
		return path
	}
	return path + ":" + tensorfile.Label(tensor)
}

func fail(source, field, format string, args ...any) error {
	return fmt.Errorf("l2s: %s: %s: %w", source, field, fmt.Errorf(format, args...))
}

// Labels returns the number of rows.
func (h *Head) Labels() int { return h.rows.Len() }

// Dim returns the number of elements of a row.
func (h *Head) Dim() int { return h.dim }

// Rows returns the rows, which may be in the mapped file until Close.
func (h *Head) Rows() kernels.Rows { return h.rows }

// Bias returns one number per row, nil if there is none.
func (h *Head) Bias() []float32 { return h.bias }

// IDs is l2s.Info.IDs.
func (h *Head) IDs() []uint32 { return h.ids }

// Vocabulary returns the bound of all ids of answers: the size of the full vocabulary for a draft
// head, otherwise Labels.
func (h *Head) Vocabulary() int { return h.vocabulary }

// String is l2s.Layer.String.
func (h *Head) String() string {
	var b strings.Builder
	if h.weights != "" {
		fmt.Fprintf(&b, "%s, ", tensorfile.Label(h.weights))
	}
	held := "copied"
	switch {
	case h.mapped:
		held = "mapped"
	case h.widened:
		held = "copied as float32"
	}
	fmt.Fprintf(&b, "%d x %d %s, %s; ", h.Labels(), h.dim, h.element, held)
	if h.bias == nil {
		b.WriteString("no bias")
	} else {
		fmt.Fprintf(&b, "bias %s", tensorfile.Label(h.biasName))
	}
	if h.padding > 0 {
		fmt.Fprintf(&b, "; %d rows of padding left out", h.padding)
	}
	if h.ids != nil {
		fmt.Fprintf(&b, "; a draft of %d labels", h.vocabulary)
	}
	if s := h.StateScale(); s != 1 {
		fmt.Fprintf(&b, "; states are scaled by %g before it", s)
	}
	if s := h.LogitScale(); s != 1 {
		fmt.Fprintf(&b, "; scale %g", s)
	}
	if c := h.SoftCap(); c != 0 {
		fmt.Fprintf(&b, "; soft cap %g", c)
	}
	if n := len(h.Suppressed()); n > 0 {
		fmt.Fprintf(&b, "; the model forbids %d tokens", n)
	}
	return b.String()
}

// Read runs f, which may read the rows. If the file fails meanwhile, that is the error.
func (h *Head) Read(f func() error) (err error) {
	before, err := h.Enter()
	if err != nil {
		return err
	}
	defer h.Leave(before, &err)
	return f()
}

// Enter begins what [Head.Read] does, without a closure, which would be memory for each query. There
// is nothing to guard without a head: h may be nil.
//
//	before, err := h.Enter()
//	if err != nil {
//		return err
//	}
//	defer h.Leave(before, &err)
func (h *Head) Enter() (before bool, err error) {
	if h == nil {
		return false, nil
	}
	h.mu.RLock()
	if h.closed {
		h.mu.RUnlock()
		return false, h.fail("data", "found a closed head, expected an open one")
	}
	return h.mapped && mem.BeginGuard(), nil
}

// Leave, which is deferred, ends the reads since Enter. A fault among them becomes *err; it panics with
// all else.
func (h *Head) Leave(before bool, err *error) {
	if h == nil {
		return
	}
	defer h.mu.RUnlock()
	if h.mapped && mem.EndGuard(before, recover()) {
		*err = h.fail("data", "found bytes that cannot be read any more, expected a file that stays as it was opened")
	}
}

// Check reads all rows and returns an error that names the first NaN or infinity.
func (h *Head) Check() error {
	return h.Read(func() error {
		row, column, found := kernels.FirstNotFinite(h.rows)
		if !found {
			return nil
		}
		values := make([]float32, h.dim)
		h.rows.Widen(values, row)
		if h.ids != nil {
			return h.fail("values", "found %v at column %d of the row of label %d, expected finite numbers", values[column], column, h.ids[row])
		}
		return h.fail("values", "found %v at row %d, column %d, expected finite numbers: --ids (Options.IDs) takes the rows of the other labels", values[column], row, column)
	})
}

// Close is l2s.Layer.Close.
func (h *Head) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	if h.file == nil { // the zero value
		return nil
	}
	return h.file.Close()
}
