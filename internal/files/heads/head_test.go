package heads_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/files/heads"
	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
	"github.com/learning-to-screen/l2s/internal/tests/gguftest"
)

func open(t testing.TB, source string, opt heads.Options) *heads.Head {
	t.Helper()
	h, err := heads.Open(source, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// write writes a file into a new folder.
func write(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// values returns all rows of a head, widened.
func values(h *heads.Head) []float32 {
	x := make([]float32, h.Labels()*h.Dim())
	for i := range h.Labels() {
		h.Rows().Widen(x[i*h.Dim():(i+1)*h.Dim()], i)
	}
	return x
}

func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

func readArray(t testing.TB, source string) (x []float32, shape []int) {
	t.Helper()
	a, err := tensorfile.OpenTensor(source)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if x, err = a.Float32s(); err != nil {
		t.Fatal(err)
	}
	return x, a.Shape
}

// golden are the heads in GGUF files, and their contents.
var golden = map[string]struct {
	element    kernels.Element
	weights    string
	padding    int
	scale, cap float64
}{
	"f32":  {kernels.Float32, "output.weight", 0, 1, 0},
	"f16":  {kernels.Float16, "output.weight", 0, 1, 0},
	"bf16": {kernels.BFloat16, "token_embd.weight", 4, 1, 0},
	"q8_0": {kernels.Q8_0, "token_embd.weight", 4, 1, 0},
	"q4_0": {kernels.Q4_0, "output.weight", 0, 1, 0},
	"q5_0": {kernels.Q5_0, "output.weight", 0, 1, 0},
	"q4_k": {kernels.Q4_K, "output.weight", 0, 0.0625, 0},
	"q5_k": {kernels.Q5_K, "output.weight", 0, 1, 0},
	"q6_k": {kernels.Q6_K, "output.weight", 0, 1, 30},
}

// The rows of a file have the bits that gguf.quants of Python reads back, whether they stay in the
// file or are copied.
func TestRowsAreWhatGGUFReads(t *testing.T) {
	dir := filepath.Join("testdata", "gguf")
	sums, err := os.ReadFile(filepath.Join(dir, "sums.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(sums, []byte("\n")); lines != len(golden) {
		t.Errorf("sums.txt: found %d lines, expected %d", lines, len(golden))
	}
	for name, want := range golden {
		for held, own := range map[string]bool{"in the file": false, "copied": true} {
			t.Run(name+" "+held, func(t *testing.T) {
				h := open(t, filepath.Join(dir, "head-"+name+".gguf"), heads.Options{Copy: own})
				if h.Origin().Padding != want.padding || h.Vocabulary() != h.Labels() || h.Bias() != nil || h.IDs() != nil {
					t.Errorf("%d of padding, %d labels, bias %v, ids %v", h.Origin().Padding, h.Vocabulary(), h.Bias(), h.IDs())
				}
				if h.Rows().Element() != want.element || h.Origin().Tensor != want.weights || h.LogitScale() != want.scale || h.SoftCap() != want.cap {
					t.Errorf("%v; scale %v, cap %v", h, h.LogitScale(), h.SoftCap())
				}
				if mapped := !own && runtime.GOOS != "windows"; h.Origin().Mapped != mapped {
					t.Errorf("mapped: %v, want %v", h.Origin().Mapped, mapped)
				}
				x := values(h)
				line := fmt.Sprintf("head-%s %d x %d %x\n", name, h.Labels(), h.Dim(), sha256.Sum256(f32s(x...)))
				if !strings.Contains(string(sums), line) {
					t.Fatalf("sums.txt: found no line %swhich is the sum of the values that were read; make_goldens.py writes the values that gguf reads to a second folder", line)
				}
				if err := h.Check(); err != nil {
					t.Error(err)
				}
				context := make([]float32, h.Dim())
				for i := range context {
					context[i] = float32(i%13) - 6
				}
				logits, wide := make([]float64, h.Labels()), make([]float64, h.Labels())
				h.Rows().RefScan(logits, nil, context)
				kernels.Float32Rows(x, h.Dim()).RefScan(wide, nil, context)
				if !slices.Equal(logits, wide) {
					t.Error("the logits differ from the logits of gguf's values")
				}
			})
		}
	}
}

// A model of shards, tied and in bfloat16, is opened in place; the labels that
// followed its contexts are likely by it.
func TestModelFolder(t *testing.T) {
	folder := filepath.Join("..", "..", "..", "shared", "data", "llm-65k")
	if _, err := os.Stat(folder); err != nil {
		t.Skipf("needs the optional test data: %v", err)
	}
	h := open(t, folder, heads.Options{})
	if got, want := h.String(), "model.embed_tokens.weight, 65536 x 384 bfloat16, mapped; no bias"; got != want {
		t.Errorf("found %q, want %q", got, want)
	}
	if err := h.Check(); err != nil {
		t.Error(err)
	}
	x, _ := readArray(t, filepath.Join(folder, "model-00001-of-00002.safetensors")+":model.embed_tokens.weight")
	if !sameBits(values(h), x) {
		t.Error("the rows differ from the tensor")
	}
	contexts, _ := readArray(t, filepath.Join(folder, "contexts_test.npy"))
	targets, err := tensorfile.OpenTensor(filepath.Join(folder, "targets_test.npy"))
	if err != nil {
		t.Fatal(err)
	}
	defer targets.Close()
	next, err := targets.Int64s()
	if err != nil {
		t.Fatal(err)
	}
	const n = 10
	var sum float64
	logits := make([]float64, h.Labels())
	for i := range n {
		at := i * len(next) / n
		kernels.Float32Rows(x, h.Dim()).RefScan(logits, nil, contexts[at*h.Dim():(at+1)*h.Dim()])
		sum += h.Logit(logits[next[at]]) - kernels.LogSumExp(logits)
	}
	if mean := sum / n; mean < -5 { // 1/65,536 would be -11
		t.Errorf("the mean log-probability of %d labels is %v", n, mean)
	}
}

// numpy returns a .npy file.
func numpy(descr, order, shape string, data []byte) []byte {
	dict := "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }"
	for (10+len(dict)+1)%64 != 0 {
		dict += " "
	}
	b := append([]byte("\x93NUMPY\x01\x00"), byte(len(dict)+1), byte((len(dict)+1)>>8))
	return append(append(b, dict+"\n"...), data...)
}

var le = binary.LittleEndian

func f32s(x ...float32) []byte { return gguftest.Floats(x...) }

func u16s(x ...uint16) (b []byte) {
	for _, v := range x {
		b = le.AppendUint16(b, v)
	}
	return b
}

// safetensors returns a file with this header.
func safetensors(header string, data ...[]byte) []byte {
	return append(le.AppendUint64(nil, uint64(len(header))), header+string(bytes.Join(data, nil))...)
}

// Values that cannot stay in the file are copied, and they are the same.
func TestCopies(t *testing.T) {
	var f64 []byte
	for _, x := range []float64{1, 2, 3, 4} {
		f64 = le.AppendUint64(f64, math.Float64bits(x))
	}
	for name, c := range map[string]struct {
		file, suffix string
		data         []byte
		want         string
	}{
		"float32":             {"w.npy", "", numpy("<f4", "False", "(2, 2)", f32s(1, 2, 3, 4)), "2 x 2 float32, mapped; no bias"},
		"float16":             {"w.npy", "", numpy("<f2", "False", "(2, 2)", u16s(0x3c00, 0x4000, 0x4200, 0x4400)), "2 x 2 float16, mapped; no bias"},
		"float64":             {"w.npy", "", numpy("<f8", "False", "(2, 2)", f64), "2 x 2 float32, copied as float32; no bias"},
		"Fortran order":       {"w.npy", "", numpy("<f4", "True", "(2, 2)", f32s(1, 3, 2, 4)), "2 x 2 float32, copied; no bias"},
		"Fortran, float16":    {"w.npy", "", numpy("<f2", "True", "(2, 2)", u16s(0x3c00, 0x4200, 0x4000, 0x4400)), "2 x 2 float32, copied as float32; no bias"},
		"an odd address":      {"w.safetensors", ":w", safetensors(`{"w":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]}}`, u16s(0x3f80, 0x4000, 0x4040, 0x4080)), "w, 2 x 2 bfloat16, copied; no bias"},
		"an odd address, F32": {"w.safetensors", ":w", safetensors(`{"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}} `, f32s(1, 2, 3, 4)), "w, 2 x 2 float32, copied; no bias"},
	} {
		t.Run(name, func(t *testing.T) {
			h := open(t, write(t, c.file, c.data)+c.suffix, heads.Options{})
			if runtime.GOOS == "windows" {
				c.want = strings.Replace(c.want, "mapped", "copied", 1)
			}
			if got := h.String(); got != c.want {
				t.Errorf("found %q, want %q", got, c.want)
			}
			if got := values(h); !sameBits(got, []float32{1, 2, 3, 4}) {
				t.Errorf("found %v", got)
			}
		})
	}
}

// threeByTwo writes a file with weights of three rows, a bias, a second bias and
// lists of labels.
func threeByTwo(t testing.TB) string {
	return write(t, "m.safetensors", safetensors(`{"a.weight":{"dtype":"F32","shape":[3,2],"data_offsets":[0,24]},"a.bias":{"dtype":"F32","shape":[3],"data_offsets":[24,36]},`+
		`"other":{"dtype":"F32","shape":[3],"data_offsets":[36,48]},"d2t":{"dtype":"I64","shape":[2],"data_offsets":[48,64]},"ids":{"dtype":"I64","shape":[2],"data_offsets":[64,80]},`+
		`"short":{"dtype":"F32","shape":[2],"data_offsets":[80,88]}}`,
		f32s(1, 2, 3, 4, 5, 6), f32s(7, 8, 9), f32s(10, 11, 12), []byte("\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00"),
		[]byte("\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), f32s(0, 0)))
}

func TestBias(t *testing.T) {
	path := threeByTwo(t)
	for name, c := range map[string]struct {
		bias, taken string
		want        []float32
	}{
		"next to the weights": {"", "a.bias", []float32{7, 8, 9}},
		"named":               {path + ":other", path + ":other", []float32{10, 11, 12}},
		"none":                {"none", "", nil},
	} {
		h := open(t, path+":a.weight", heads.Options{Bias: c.bias})
		if !slices.Equal(h.Bias(), c.want) || h.Origin().Bias != c.taken {
			t.Errorf("%s: %v of %q", name, h.Bias(), h.Origin().Bias)
		}
	}
	_, err := heads.Open(path+":a.weight", heads.Options{Bias: path + ":a.weight"})
	refuse(t, err, filepath.Dir(path), "l2s: m.safetensors:a.weight: shape: found [3 2], expected [3], one number for each row of m.safetensors:a.weight")
	_, err = heads.Open(path+":a.weight", heads.Options{Bias: path + ":short"})
	refuse(t, err, filepath.Dir(path), "l2s: m.safetensors:a.weight: shape: found [3 2], expected [2 3], one number for each number of m.safetensors:short: save its transpose")
}

// refuse checks an error, in which the names of files in dir are short.
func refuse(t testing.TB, err error, dir, want string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want %q", want)
	} else if got := strings.ReplaceAll(strings.ReplaceAll(err.Error(), dir+string(filepath.Separator), ""), dir, "DIR"); got != want {
		t.Errorf("found %q\n want %q", got, want)
	}
}

// A draft head has the rows that were chosen, in the order of the list.
func TestDraftOfAList(t *testing.T) {
	path := threeByTwo(t)
	offsets, err := heads.ReadIDs(path + ":d2t")
	if err != nil || !slices.Equal(offsets, []uint32{0, 2}) {
		t.Fatalf("d2t: %v, %v", offsets, err)
	}
	ids, err := heads.ReadIDs(path + ":ids")
	if err != nil || !slices.Equal(ids, []uint32{2, 0}) {
		t.Fatalf("ids: %v, %v", ids, err)
	}
	h := open(t, write(t, "x.npy", numpy("<f4", "False", "(3, 2)", f32s(1, 2, 3, 4, 5, 6))), heads.Options{IDs: ids})
	if h.Labels() != 2 || h.Vocabulary() != 3 || !slices.Equal(h.IDs(), ids) || h.Origin().Mapped || !sameBits(values(h), []float32{5, 6, 1, 2}) {
		t.Errorf("%v: %v of %v, %d labels", h, values(h), h.IDs(), h.Vocabulary())
	}
	h = open(t, filepath.Join("testdata", "gguf", "head-q8_0.gguf"), heads.Options{IDs: []uint32{43, 0, 7}})
	x := values(open(t, filepath.Join("testdata", "gguf", "head-q8_0.gguf"), heads.Options{}))
	want := slices.Concat(x[43*608:44*608], x[:608], x[7*608:8*608])
	if !sameBits(values(h), want) || h.Vocabulary() != 44 || h.Origin().Padding != 0 {
		t.Errorf("%v: the rows are not the rows of the list", h)
	}
	for name, c := range map[string]struct {
		ids  []uint32
		want string
	}{
		"none":       {[]uint32{}, "found an empty list, expected at least one label"},
		"twice":      {[]uint32{1, 2, 1}, "found label 1 at positions 0 and 2, expected it once"},
		"of padding": {[]uint32{43, 44}, "found label 44 at position 1, expected one below 44"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := heads.Open(filepath.Join("testdata", "gguf", "head-q8_0.gguf"), heads.Options{IDs: c.ids})
			refuse(t, err, filepath.Join("testdata", "gguf"), "l2s: head-q8_0.gguf:token_embd.weight: labels: "+c.want)
		})
	}
}

func TestBadLists(t *testing.T) {
	i64 := func(x ...int64) (b []byte) {
		for _, v := range x {
			b = le.AppendUint64(b, uint64(v))
		}
		return b
	}
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"negative":  {numpy("<i8", "False", "(2,)", i64(1, -1)), "l2s: x.npy: labels: found label -1 at position 1, expected 0 to 4294967294"},
		"too large": {numpy("<i8", "False", "(1,)", i64(1<<32)), "l2s: x.npy: labels: found label 4294967296 at position 0, expected 0 to 4294967294"},
		"floats":    {numpy("<f4", "False", "(1,)", f32s(1)), "l2s: x.npy: dtype: found float32, expected an integer type"},
		"empty":     {numpy("<i8", "False", "(0,)", nil), "l2s: x.npy: labels: found none, expected at least one"},
		"a matrix":  {numpy("<i8", "False", "(1, 1)", i64(1)), "l2s: x.npy: shape: found [1 1], expected [any]"},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, "x.npy", c.data)
			_, err := heads.ReadIDs(path)
			refuse(t, err, filepath.Dir(path), c.want)
		})
	}
	array := write(t, "x.npy", numpy("<i8", "False", "(1, 1)", i64(1)))
	for _, name := range []string{"", "w"} {
		want := "l2s: x.npy: name: found " + tensorfile.Label(name) + ", expected none, since a .npy file holds one array"
		_, err := heads.ReadIDs(array + ":" + name)
		refuse(t, err, filepath.Dir(array), want)
		_, err = heads.Open(array+":"+name, heads.Options{})
		refuse(t, err, filepath.Dir(array), want)
	}
	path := write(t, "x.safetensors", safetensors(`{"d2t":{"dtype":"I64","shape":[2],"data_offsets":[0,16]}}`, i64(math.MaxInt64, -2)))
	_, err := heads.ReadIDs(path + ":d2t")
	refuse(t, err, filepath.Dir(path), "l2s: x.safetensors:d2t: labels: found label 9223372036854775807 at position 0, expected 0 to 4294967294")
}

func TestGGUFHeads(t *testing.T) {
	kv := gguftest.KV
	w := gguftest.Tensor{Name: "output.weight", Dims: []uint64{2, 3}, Data: f32s(1, 2, 3, 4, 5, 6)}
	embedding := gguftest.Tensor{Name: "token_embd.weight", Dims: []uint64{2, 3}, Data: f32s(6, 5, 4, 3, 2, 1)}
	bias := gguftest.Tensor{Name: "output.bias", Dims: []uint64{3}, Data: f32s(7, 8, 9)}
	d2t := gguftest.Tensor{Name: "d2t", Type: 27, Dims: []uint64{3}, Data: []byte("\x05\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00")}
	arch := kv("general.architecture", "a")
	for name, c := range map[string]struct {
		file       gguftest.File
		suffix     string
		want       string // the result of String, or the error
		rows, bias []float32
	}{
		"output before the embedding": {gguftest.File{Metadata: []gguftest.Value{arch}, Tensors: []gguftest.Tensor{embedding, w}}, "", "output.weight, 3 x 2 float32, mapped; no bias", []float32{1, 2, 3, 4, 5, 6}, nil},
		"a bias":                      {gguftest.File{Tensors: []gguftest.Tensor{w, bias}}, "", "output.weight, 3 x 2 float32, mapped; bias output.bias", []float32{1, 2, 3, 4, 5, 6}, []float32{7, 8, 9}},
		"named":                       {gguftest.File{Tensors: []gguftest.Tensor{w, embedding}}, ":token_embd.weight", "token_embd.weight, 3 x 2 float32, mapped; no bias", []float32{6, 5, 4, 3, 2, 1}, nil},
		"padding and its bias":        {gguftest.File{Metadata: []gguftest.Value{arch, kv("tokenizer.ggml.tokens", []string{"x", "y"})}, Tensors: []gguftest.Tensor{w, bias}}, "", "output.weight, 2 x 2 float32, mapped; bias output.bias; 1 rows of padding left out", []float32{1, 2, 3, 4}, []float32{7, 8}},
		"padding by name":             {gguftest.File{Metadata: []gguftest.Value{kv("tokenizer.ggml.tokens", []string{"x", "[PAD1]", "[PAD2]"})}, Tensors: []gguftest.Tensor{w}}, "", "output.weight, 1 x 2 float32, mapped; no bias; 2 rows of padding left out", []float32{1, 2}, nil},
		"a token that looks like it":  {gguftest.File{Metadata: []gguftest.Value{kv("tokenizer.ggml.tokens", []string{"[PAD0]", "[PAD]", "[PAD3]"})}, Tensors: []gguftest.Tensor{w}}, "", "output.weight, 3 x 2 float32, mapped; no bias", []float32{1, 2, 3, 4, 5, 6}, nil},
		"more tokens than rows":       {gguftest.File{Metadata: []gguftest.Value{kv("tokenizer.ggml.tokens", make([]string, 9))}, Tensors: []gguftest.Tensor{w}}, "", "output.weight, 3 x 2 float32, mapped; no bias", []float32{1, 2, 3, 4, 5, 6}, nil},
		"a draft":                     {gguftest.File{Metadata: []gguftest.Value{kv("tokenizer.ggml.tokens", make([]string, 2))}, Tensors: []gguftest.Tensor{w, d2t}}, "", "output.weight, 3 x 2 float32, mapped; no bias; a draft of 9 labels", []float32{1, 2, 3, 4, 5, 6}, nil},
		"one of several files":        {gguftest.File{Metadata: []gguftest.Value{kv("split.count", uint32(3))}, Tensors: []gguftest.Tensor{bias}}, "", "l2s: x: tensors: found 1 of the 3 files of a model and no general.architecture in them, expected all in one folder: the file of split.no 1 is missing", nil, nil},
		"no head":                     {gguftest.File{Tensors: []gguftest.Tensor{bias}}, "", "l2s: x: name: found output.weight, expected one of output.bias", nil, nil},
		"another name":                {gguftest.File{Tensors: []gguftest.Tensor{w}}, ":b", "l2s: x: name: found b, expected one of output.weight", nil, nil},
		"a vector":                    {gguftest.File{Tensors: []gguftest.Tensor{bias}}, ":output.bias", "l2s: x:output.bias: shape: found [3], expected [any any]", nil, nil},
		"another quantisation":        {gguftest.File{Tensors: []gguftest.Tensor{{Name: "output.weight", Type: 10, Dims: []uint64{256, 1}, Data: make([]byte, 84)}}}, "", "l2s: x:output.weight: dtype: found q2_k, expected float32, float16, bfloat16, q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q5_k or q6_k: llama-quantize --output-tensor-type q6_K makes a file with such a head, of one that is not quantised", nil, nil},
		"a type not known":            {gguftest.File{Tensors: []gguftest.Tensor{{Name: "output.weight", Type: 77, Dims: []uint64{256, 1}}}}, "", "l2s: x:output.weight: dtype: found unknown, expected float32, float16, bfloat16, q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q5_k or q6_k: llama-quantize --output-tensor-type q6_K makes a file with such a head, of one that is not quantised", nil, nil},
		"tokens that are numbers":     {gguftest.File{Metadata: []gguftest.Value{kv("tokenizer.ggml.tokens", uint32(3))}, Tensors: []gguftest.Tensor{w}}, "", "l2s: x: metadata tokenizer.ggml.tokens: found no array of strings, expected one", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, "x", c.file.Bytes()) // as Ollama names them, without an end
			if strings.Contains(c.want, "expected") {
				_, err := heads.Open(path+c.suffix, heads.Options{})
				refuse(t, err, filepath.Dir(path), c.want)
				return
			}
			h := open(t, path+c.suffix, heads.Options{})
			if runtime.GOOS == "windows" {
				c.want = strings.Replace(c.want, "mapped", "copied", 1)
			}
			if got := h.String(); got != c.want || !sameBits(values(h), c.rows) || !slices.Equal(h.Bias(), c.bias) {
				t.Errorf("found %q, %v, %v\n want %q, %v, %v", got, values(h), h.Bias(), c.want, c.rows, c.bias)
			}
		})
	}
}

// A number that is not finite is found: by Check in a mapped file, by Open if it copies.
func TestNotFinite(t *testing.T) {
	path := write(t, "w.npy", numpy("<f4", "False", "(2, 2)", f32s(1, 2, float32(math.Inf(-1)), 4)))
	dir, want := filepath.Dir(path), "l2s: w.npy: values: found -Inf at row 1, column 0, expected finite numbers: --ids (Options.IDs) takes the rows of the other labels"
	refuse(t, open(t, path, heads.Options{}).Check(), dir, want)
	_, err := heads.Open(path, heads.Options{Copy: true})
	refuse(t, err, dir, want)
	_, err = heads.Open(path, heads.Options{Copy: true, IDs: []uint32{1}})
	refuse(t, err, dir, "l2s: w.npy: values: found -Inf at column 0 of the row of label 1, expected finite numbers")
	if h := open(t, path, heads.Options{Copy: true, IDs: []uint32{0}}); !sameBits(values(h), []float32{1, 2}) {
		t.Errorf("%v", values(h))
	}
}

// Close waits for the running reads, and later reads are refused.
func TestCloseWaitsForReads(t *testing.T) {
	h := open(t, filepath.Join("testdata", "gguf", "head-f32.gguf"), heads.Options{})
	reading, proceed, closed := make(chan bool), make(chan bool), make(chan error)
	want := values(h)
	go func() {
		if err := h.Read(func() error {
			close(reading)
			<-proceed
			if !sameBits(values(h), want) {
				return errors.New("the rows have changed")
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}()
	<-reading
	go func() { closed <- h.Close() }()
	select {
	case <-closed:
		t.Error("Close has not waited")
	case <-time.After(20 * time.Millisecond):
	}
	close(proceed)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	refuse(t, h.Read(func() error { t.Error("a closed head was read"); return nil }), filepath.Join("testdata", "gguf"),
		"l2s: head-f32.gguf:output.weight: data: found a closed head, expected an open one")
	if err := h.Close(); err != nil {
		t.Errorf("Close again: %v", err)
	}
	if err := h.Check(); err == nil {
		t.Error("a closed head was checked")
	}
}

// A file that is cut off while it is open costs an error within Read, in Go code
// and in assembly; a copy does not mind.
func TestFileCutOff(t *testing.T) {
	const labels, dim = 1 << 12, 64
	data := numpy("<f4", "False", "(4096, 64)", make([]byte, 4*labels*dim))
	cut := func(opt heads.Options) (*heads.Head, string) {
		path := write(t, "w.npy", data)
		h := open(t, path, opt)
		if err := os.Truncate(path, 128); err != nil {
			t.Skipf("an open file cannot be cut off here: %v", err)
		}
		return h, filepath.Dir(path)
	}
	scan := func(h *heads.Head) func() error {
		return func() error {
			h.Rows().RefScan(make([]float64, labels), nil, make([]float32, dim))
			return nil
		}
	}
	h, _ := cut(heads.Options{Copy: true})
	if err := h.Read(scan(h)); err != nil {
		t.Error(err)
	}
	h, dir := cut(heads.Options{})
	if !h.Origin().Mapped {
		t.Skip("files are not mapped here")
	}
	want := "l2s: w.npy: data: found bytes that cannot be read any more, expected a file that stays as it was opened"
	refuse(t, h.Read(scan(h)), dir, want)
	refuse(t, h.Read(func() error { values(h); return nil }), dir, want)
	refuse(t, h.Check(), dir, want)
	if err := h.Read(func() error { return nil }); err != nil {
		t.Errorf("a function that reads nothing: %v", err)
	}
}

func TestNoFile(t *testing.T) {
	for _, source := range []string{"none.npy", "none.gguf", "none.safetensors:w", "none", ""} {
		if _, err := heads.Open(source, heads.Options{}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: %v", source, err)
		}
	}
}

// Readers and closers at once do not race, in any order.
func TestConcurrentUse(t *testing.T) {
	h := open(t, filepath.Join("testdata", "gguf", "head-q4_k.gguf"), heads.Options{})
	done := make(chan bool)
	const readers = 8
	for i := range readers {
		go func() {
			defer func() { done <- true }()
			r := rand.New(rand.NewPCG(uint64(i), 1))
			row := make([]float32, h.Dim())
			for range 200 {
				if err := h.Read(func() error { h.Rows().Widen(row, r.IntN(h.Labels())); return nil }); err != nil {
					return
				}
			}
		}()
	}
	time.Sleep(time.Millisecond)
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	for range readers {
		<-done
	}
}

// The last normalisation is found in the file of the head, with one element per column.
func TestNorm(t *testing.T) {
	h := open(t, filepath.Join("testdata", "gguf", "head-f32.gguf"), heads.Options{})
	if gain, bias := h.Norm(); len(gain) != h.Dim() || bias != nil {
		t.Errorf("found %d elements, expected %d", len(gain), h.Dim())
	}
	h = open(t, threeByTwo(t)+":a.weight", heads.Options{})
	if gain, _ := h.Norm(); gain != nil {
		t.Errorf("found %v in a file that has none", gain)
	}
}
