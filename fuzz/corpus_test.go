package fuzz

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/files/heads"
	"github.com/learning-to-screen/l2s/internal/files/labelfile"
	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
	"github.com/learning-to-screen/l2s/internal/files/vocab"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/tests/gguftest"
	"github.com/learning-to-screen/l2s/internal/tests/synthetic"
	"github.com/learning-to-screen/l2s/preview"
)

// The corpus is broken files of all kinds, and faults of size. Packages have tables of their own of
// the faults of a format.

// A badFile is the bytes of a file, under a name that tells its kind.
type badFile struct {
	name, file string
	data       []byte
}

// readers read the files of the corpus, by the end of their names.
var readers = map[string]func(t *testing.T, path string) error{
	".npy": readTensor, ".npz": readTensor, ".safetensors": readTensor,
	".l2s": func(t *testing.T, path string) error {
		_, err := l2s.Load(path)
		return err
	},
	".txt": func(t *testing.T, path string) error {
		_, err := vocab.Load(path)
		return err
	},
	".gguf":      openHead,
	".config":    func(t *testing.T, path string) error { return openFolder(t, path, "config.json") },
	".index":     func(t *testing.T, path string) error { return openFolder(t, path, "model.safetensors.index.json") },
	".tokenizer": func(t *testing.T, path string) error { return openFolder(t, path, "tokenizer.json") },
	".labels": func(t *testing.T, path string) error {
		f, err := labelfile.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.ReadAll(t.Context())
		return err
	},
}

// openHead opens the head of a model and reads its rows.
func openHead(_ *testing.T, path string) error {
	h, err := heads.Open(path, heads.Options{})
	if err != nil {
		return err
	}
	defer h.Close()
	return h.Check()
}

// goodFolder are the files of a model folder without its shard.
var goodFolder = map[string]string{
	"config.json":                  `{"model_type":"llama","vocab_size":5,"tie_word_embeddings":true,"eos_token_id":[1,2]}`,
	"model.safetensors.index.json": `{"metadata":{"total_size":48},"weight_map":{"model.embed_tokens.weight":"shard.safetensors"}}`,
	"tokenizer.json":               `{"added_tokens":[{"id":3,"content":"<s>"}],"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}}`,
}

// openFolder opens a model folder whose file of this name is the one at path.
func openFolder(t *testing.T, path, name string) error {
	dir := filepath.Join(filepath.Dir(path), "model")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for file, content := range goodFolder {
		data := []byte(content)
		if file == name {
			var err error
			if data, err = os.ReadFile(path); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	shard := gguftest.Array{Name: "model.embed_tokens.weight", Shape: []int{6, 2}, Data: make([]float32, 12)}
	if err := gguftest.WriteSafetensors(filepath.Join(dir, "shard.safetensors"), shard); err != nil {
		t.Fatal(err)
	}
	return openHead(t, dir)
}

func readTensor(t *testing.T, path string) error {
	src := path
	if !strings.HasSuffix(path, ".npy") {
		src += ":x"
	}
	x, err := tensorfile.OpenTensor(src)
	if err != nil {
		return err
	}
	defer x.Close()
	_, err = x.Float32s()
	return err
}

// numbers returns the numbers in all files.
func numbers() []float32 {
	x := make([]float32, 60)
	for i := range x {
		x[i] = float32(i%7) - 2.5
	}
	return x
}

// good returns a valid file of each kind.
func good(t *testing.T) map[string][]byte {
	t.Helper()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	numbers := numbers()
	layer, err := l2s.New(l2s.Float32(numbers[:24], 3), nil)
	if err != nil {
		t.Fatal(err)
	}
	model, err := synthetic.Screen(screening.Config{
		Dim: 3, Labels: 8, Clusters: numbers[:6], Lists: lists([]uint32{2, 0, 5}, []uint32{2, 1, 5, 7}), Always: 1,
		Fingerprint: layer.Fingerprint(), Record: []byte(`{"seed":1}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	digest, err := labelfile.DigestOf(t.Context(), kernels.Float32Rows(numbers, 3), 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	labels, err := labelfile.Create(at("x.labels"), labelfile.Header{K: 2, Count: 20, Total: 20, Labels: 8, Dim: 3, Fingerprint: layer.Fingerprint()})
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]uint32, 40)
	for i := range ids {
		ids[i] = uint32(i % 8)
	}
	array := func(name string, shape ...int) gguftest.Array {
		n := 1
		for _, s := range shape {
			n *= s
		}
		return gguftest.Array{Name: name, Shape: shape, Data: numbers[:n]}
	}
	for _, err := range []error{
		tensorfile.WriteNPY(at("x.npy"), numbers, 20, 3),
		gguftest.WriteSafetensors(at("x.safetensors"), array("x", 20, 3), array("y", 5)),
		os.WriteFile(at("x.txt"), []byte("<unk>\n<eos>\nthe\nof\n"), 0o666),
		os.WriteFile(at("x.gguf"), goodGGUF().Bytes(), 0o666),
		os.WriteFile(at("x.config"), []byte(goodFolder["config.json"]), 0o666),
		os.WriteFile(at("x.index"), []byte(goodFolder["model.safetensors.index.json"]), 0o666),
		os.WriteFile(at("x.tokenizer"), []byte(goodFolder["tokenizer.json"]), 0o666),
		model.Save(at("x.l2s")),
		labels.Write(ids, digest),
		labels.Commit(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	files := map[string][]byte{}
	for ext, read := range readers {
		if ext == ".npz" {
			continue
		}
		if err := read(t, at("x"+ext)); err != nil {
			t.Fatal(err)
		}
		if files[ext], err = os.ReadFile(at("x" + ext)); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	m, err := w.CreateHeader(&zip.FileHeader{Name: "x.npy", Method: zip.Store})
	if err != nil {
		t.Fatal(err)
	}
	m.Write(files[".npy"])
	w.Close()
	files[".npz"] = b.Bytes()
	return files
}

// goodGGUF is a small head with its bias, and another tensor.
func goodGGUF() gguftest.File {
	return gguftest.File{
		Metadata: []gguftest.Value{gguftest.KV("general.architecture", "llama"), gguftest.KV("llama.logit_scale", float32(0.5)),
			gguftest.KV("tokenizer.ggml.tokens", []string{"a", "b"})},
		Tensors: []gguftest.Tensor{
			{Name: "output.weight", Type: gguftest.Q80, Dims: []uint64{32, 2}, Data: make([]byte, 68)},
			{Name: "output.bias", Type: gguftest.F32, Dims: []uint64{2}, Data: gguftest.Floats(1, 2)},
			{Name: "x", Type: gguftest.F32, Dims: []uint64{8}, Data: make([]byte, 32)}, // so that no padding ends the file
		},
	}
}

// badGGUF are broken files with their names.
func badGGUF() map[string][]byte {
	cases := map[string][]byte{}
	with := func(name string, change func(f *gguftest.File)) {
		f := goodGGUF()
		change(&f)
		cases[name] = f.Bytes()
	}
	value := func(name, key string, data any) {
		with(name, func(f *gguftest.File) { f.Metadata = append(f.Metadata, gguftest.KV(key, data)) })
	}
	tensors := func(name string, t ...gguftest.Tensor) {
		with(name, func(f *gguftest.File) { f.Tensors = t })
	}
	patched := func(name string, at int, b ...byte) {
		file := goodGGUF().Bytes()
		copy(file[at:], b)
		cases[name] = file
	}
	ones := bytes.Repeat([]byte{0xff}, 8)
	patched("version 1", 4, 1)
	patched("version 9", 4, 9)
	patched("big-endian", 4, 0, 0, 0, 3)
	patched("exabytes of tensors", 8, ones...)
	patched("exabytes of metadata", 16, ones...)
	patched("a key of exabytes", 24, ones...)
	value("an unknown type of metadata", "x", gguftest.Raw("\x63\x00\x00\x00"))
	value("a text of exabytes", "x", gguftest.Raw("\x08\x00\x00\x00"+string(ones)))
	value("an array of exabytes", "x", gguftest.Raw("\x09\x00\x00\x00\x04\x00\x00\x00"+string(ones)))
	value("an array of arrays", "x", gguftest.Raw("\x09\x00\x00\x00\x09\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00"))
	value("a key twice", "llama.logit_scale", float32(1))
	value("alignment 3", "general.alignment", uint32(3))
	value("a cap of NaN", "llama.final_logit_softcapping", float32(math.NaN()))
	value("a cap of text", "llama.final_logit_softcapping", "30")
	with("a negative scale", func(f *gguftest.File) { f.Metadata[1].Data = float32(-1) })
	with("tokens that are numbers", func(f *gguftest.File) { f.Metadata[2].Data = uint32(2) })
	with("an architecture that is a number", func(f *gguftest.File) { f.Metadata[0].Data = uint32(2) })
	bias := gguftest.Tensor{Name: "output.bias", Dims: []uint64{2}, Data: gguftest.Floats(1, 2)}
	w := func(dims ...uint64) gguftest.Tensor {
		return gguftest.Tensor{Name: "output.weight", Dims: dims, Data: gguftest.Floats(1, 2)}
	}
	tensors("no tensor")
	tensors("no head", bias)
	tensors("a vector for a head", w(2))
	tensors("no rows", gguftest.Tensor{Name: "output.weight", Dims: []uint64{2, 0}})
	tensors("a shape that overflows", w(1<<40, 1<<40))
	tensors("a dimension beyond 63 bits", w(1<<63, 1))
	tensors("nine dimensions", w(1, 1, 1, 1, 1, 1, 1, 1, 1))
	tensors("a tensor beyond the end", w(100, 100))
	tensors("a name twice", w(2, 1), w(2, 1))
	tensors("tensors that overlap", w(2, 1), bias, gguftest.Tensor{Name: "x", Dims: []uint64{2}, Data: gguftest.Floats(1, 2), Offset: 32})
	tensors("a gap", w(2, 1), gguftest.Tensor{Name: "x", Dims: []uint64{2}, Data: gguftest.Floats(1, 2), Offset: 320})
	tensors("an odd offset", w(2, 1), gguftest.Tensor{Name: "x", Dims: []uint64{2}, Data: gguftest.Floats(1, 2), Offset: 33})
	tensors("half a block", gguftest.Tensor{Name: "output.weight", Type: gguftest.Q80, Dims: []uint64{16, 2}, Data: make([]byte, 34)})
	tensors("a quantisation not read", gguftest.Tensor{Name: "output.weight", Type: 11, Dims: []uint64{256, 1}, Data: make([]byte, 110)})
	tensors("a type not known", gguftest.Tensor{Name: "output.weight", Type: 255, Dims: []uint64{256, 1}, Data: make([]byte, 110)})
	tensors("integers", gguftest.Tensor{Name: "output.weight", Type: 26, Dims: []uint64{2, 1}, Data: make([]byte, 8)})
	tensors("a bias of other length", w(1, 2), gguftest.Tensor{Name: "output.bias", Dims: []uint64{1}, Data: gguftest.Floats(1)})
	tensors("NaN in a block", gguftest.Tensor{Name: "output.weight", Type: gguftest.Q80, Dims: []uint64{32, 1}, Data: append([]byte{0, 0x7e}, make([]byte, 32)...)})
	tensors("NaN in the bias", w(1, 2), gguftest.Tensor{Name: "output.bias", Dims: []uint64{2}, Data: gguftest.Floats(1, float32(math.NaN()))})
	tensors("a draft with a label twice", w(1, 2), gguftest.Tensor{Name: "d2t", Type: 26, Dims: []uint64{2}, Data: make([]byte, 8)})
	tensors("a draft with a label below 0", w(2, 1), gguftest.Tensor{Name: "d2t", Type: 26, Dims: []uint64{1}, Data: ones[:4]})
	return cases
}

// badJSON are broken files of a model folder, by the ends of their names.
var badJSON = map[string]map[string]string{
	".config": {
		"an array":                    `[]`,
		"code":                        `__import__('os')`,
		"a field twice":               `{"vocab_size":1,"vocab_size":2}`,
		"two text models":             `{"text_config":{},"llm_config":{}}`,
		"a vocabulary of text":        `{"vocab_size":"5"}`,
		"a vocabulary of exabytes":    `{"vocab_size":99999999999999999999}`,
		"a flag of text":              `{"tie_word_embeddings":"true"}`,
		"untied without a head":       `{"tie_word_embeddings":false}`,
		"a cap below 0":               `{"final_logit_softcapping":-1}`,
		"a scale of 0":                `{"logit_scale":0}`,
		"a scale beyond float64":      `{"logit_scale":1e999}`,
		"a scale of an unknown model": `{"model_type":"new","logits_scaling":3}`,
		"a scale by an absent width":  `{"model_type":"t5"}`,
		"deep nesting":                strings.Repeat(`{"text_config":`, 5000),
		"bytes that are no UTF-8":     "{\"model_type\":\"\xff\"}",
		"a control character":         "{\"model_type\":\"\x01\"}",
		"text after it":               `{} {}`,
	},
	".index": {
		"an array":             `[]`,
		"no map":               `{"metadata":{}}`,
		"a map twice":          `{"weight_map":{},"weight_map":{}}`,
		"a name twice":         `{"weight_map":{"a":"x","a":"y"}}`,
		"a number for a file":  `{"weight_map":{"a":1}}`,
		"a file elsewhere":     `{"weight_map":{"model.embed_tokens.weight":"../shard.safetensors"}}`,
		"an absolute path":     `{"weight_map":{"model.embed_tokens.weight":"/etc/passwd"}}`,
		"a path of Windows":    `{"weight_map":{"model.embed_tokens.weight":"..\\shard.safetensors"}}`,
		"a drive":              `{"weight_map":{"model.embed_tokens.weight":"C:shard.safetensors"}}`,
		"the folder itself":    `{"weight_map":{"model.embed_tokens.weight":"."}}`,
		"no file":              `{"weight_map":{"model.embed_tokens.weight":""}}`,
		"a missing file":       `{"weight_map":{"model.embed_tokens.weight":"none.safetensors"}}`,
		"another file":         `{"weight_map":{"model.embed_tokens.weight":"config.json"}}`,
		"a tensor not there":   `{"weight_map":{"lm_head.weight":"shard.safetensors","model.embed_tokens.weight":"shard.safetensors","x":"shard.safetensors","lm_head.bias":"shard.safetensors"}}`,
		"no head":              `{"weight_map":{"x":"shard.safetensors"}}`,
		"an unfinished escape": `{"weight_map":{"\u00`,
	},
	".tokenizer": {
		"an array":             `[]`,
		"no vocabulary":        `{"model":{"type":"BPE"}}`,
		"no model":             `{"added_tokens":[]}`,
		"an id below 0":        `{"model":{"vocab":{"a":-1}}}`,
		"an id of 2^32":        `{"model":{"vocab":{"a":4294967296}}}`,
		"an id of text":        `{"model":{"vocab":{"a":"0"}}}`,
		"a fraction for an id": `{"model":{"vocab":{"a":0.5}}}`,
		"an added id of null":  `{"model":{"vocab":{"a":0}},"added_tokens":[{"id":null}]}`,
		"a vocabulary of text": `{"model":{"vocab":"a"}}`,
		"deep nesting":         strings.Repeat(`[`, 10000),
	},
}

// badFiles returns the broken files: each kind cut, lengthened, replaced and altered, and with the
// faults particular to a format.
func badFiles(t *testing.T) (cases []badFile) {
	t.Helper()
	add := func(ext, name string, data []byte) {
		cases = append(cases, badFile{ext[1:] + ": " + name, "x" + ext, data})
	}
	files := good(t)
	for ext, file := range files {
		add(ext, "empty", nil)
		add(ext, "a PDF", []byte("%PDF-1.7\n%\xe2\xe3\xcf\xd3\n"))
		add(ext, "a kilobyte of zeros", make([]byte, 1024))
		add(ext, "a kilobyte of ones", bytes.Repeat([]byte{0xff}, 1024))
		if ext == ".txt" {
			continue
		}
		add(ext, "one byte", file[:1])
		for _, eighths := range []int{1, 2, 3, 4, 5, 6, 7} {
			add(ext, fmt.Sprintf("cut after %d eighths", eighths), file[:len(file)*eighths/8])
		}
		add(ext, "without its last byte", file[:len(file)-1])
		if ext != ".npz" { // since archive/zip looks for the end
			add(ext, "a byte longer", append(bytes.Clone(file), 'x'))
		}
		for other, data := range files {
			// Each of a model's files is JSON that another may be.
			if other != ext && other != ".txt" && !(badJSON[ext] != nil && badJSON[other] != nil) {
				add(ext, "a "+other[1:]+" file", data)
			}
		}
	}
	flipped := func(ext, name string, at int) {
		file := bytes.Clone(files[ext])
		file[(at+len(file))%len(file)] ^= 0x10
		add(ext, "a bit flipped in "+name, file)
	}
	for name, at := range map[string]int{"the magic": 3, "the version": 8, "k": 12, "the first context": 17, "the number of contexts": 24,
		"the total": 32, "the labels": 40, "the dimension": 48, "the fingerprint": 60, "the digest": 90, "the checksum of the ids": 121,
		"the checksum of the header": 125, "the first id": 128, "the last id": -4} {
		flipped(".labels", name, at)
	}
	for name, at := range map[string]int{"the magic": 2, "the header": 10, "the fingerprint": 30, "the middle of the header": 60,
		"the counts": 90, "the middle": len(files[".l2s"]) / 2, "the end": -2} {
		flipped(".l2s", name, at)
	}
	entry := bytes.Index(files[".npz"], []byte("PK\x01\x02"))
	for name, at := range map[string]int{"the local header": 2, "the stored array": 60, "the directory": -70,
		"the checksum in the directory": entry + 16, "the packed size in the directory": entry + 20, "the size in the directory": entry + 24, "the end record": -20, "the offset of the directory": -5} {
		flipped(".npz", name, at)
	}
	head := func(dict string, data int) []byte {
		b := append([]byte("\x93NUMPY\x01\x00"), byte(len(dict)), byte(len(dict)>>8))
		return append(append(b, dict...), make([]byte, data)...)
	}
	for name, file := range map[string][]byte{
		"a header of 4 GiB":            []byte("\x93NUMPY\x02\x00\xff\xff\xff\xff{"),
		"a shape beyond 64 bits":       head("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999, 1)}", 4),
		"a shape whose size overflows": head("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 4294967296)}", 4),
		"a shape of exabytes":          head("{'descr': '<f4', 'fortran_order': False, 'shape': (1152921504606846976,)}", 4),
		"objects":                      head("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", 8),
	} {
		add(".npy", name, file)
	}
	tensors := func(header string, data int) []byte {
		return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), make([]byte, data)...)
	}
	for name, file := range map[string][]byte{
		"a header of exabytes":    append(binary.LittleEndian.AppendUint64(nil, math.MaxUint64>>1), "{}"...),
		"a tensor beyond the end": tensors(`{"x":{"dtype":"F32","shape":[100],"data_offsets":[0,400]}}`, 8),
		"a shape that overflows":  tensors(`{"x":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,4]}}`, 4),
		"deep nesting":            tensors(strings.Repeat(`{"x":`, 5000), 4),
	} {
		add(".safetensors", name, file)
	}
	for name, file := range badGGUF() {
		add(".gguf", name, file)
	}
	for ext, texts := range badJSON {
		for name, text := range texts {
			add(ext, name, []byte(text))
		}
	}
	for name, text := range map[string]string{
		"a word twice":             "a\nb\na\n",
		"an empty line":            "a\n\nb\n",
		"lines that end in CR LF":  "a\r\nb\r\n",
		"counts next to the words": "a 12\nb 7\n",
		"bytes that are no UTF-8":  "a\n\xff\n",
		"a mark at the start":      "\uFEFFa\n",
		"a tab within a word":      "a\tb\n",
	} {
		add(".txt", name, []byte(text))
	}
	slices.SortFunc(cases, func(a, b badFile) int { return strings.Compare(a.name, b.name) })
	return cases
}

// lists are lists of candidates without shares.
func lists(ids ...[]uint32) (list []screening.List) {
	for _, ids := range ids {
		l := screening.List{IDs: ids, Shares: make([]uint16, len(ids))}
		for i := range ids {
			l.Shares[i] = math.MaxUint16
		}
		list = append(list, l)
	}
	return list
}

// Each broken file is refused by an error that names the file, the value found and the value
// expected, in little memory.
func TestCorpus(t *testing.T) {
	dir := t.TempDir()
	cases := badFiles(t)
	for _, c := range cases {
		path := filepath.Join(dir, c.file)
		if err := os.WriteFile(path, c.data, 0o666); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := readers[filepath.Ext(c.file)](t, path)
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s: accepted", c.name)
		} else if text := err.Error(); !strings.Contains(text, dir) || !errors.Is(err, fs.ErrNotExist) && (!strings.Contains(text, "found ") || !strings.Contains(text, ", expected ")) {
			t.Errorf("%s: found the error %q, expected the file, the value found and the value expected", c.name, text)
		}
		// The bound is larger than the file, for errors, decompressors and names.
		if used, most := after.TotalAlloc-before.TotalAlloc, uint64(32*len(c.data)+128<<10); used > most {
			t.Errorf("%s: %d bytes were allocated for a file of %d", c.name, used, len(c.data))
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if len(cases) < 300 {
		t.Errorf("%d cases, want at least 300", len(cases))
	}
}

// A release says at once how to make a new index if it does not read an old one.
func TestAnIndexOfAnotherVersionSaysHowToMakeANewOne(t *testing.T) {
	layer, err := l2s.New(l2s.Float32(numbers()[:24], 3), nil)
	if err != nil {
		t.Fatal(err)
	}
	screen, err := synthetic.Screen(screening.Config{
		Dim: 3, Labels: 8, Clusters: numbers()[:6], Lists: lists([]uint32{2}, []uint32{1}), Fingerprint: layer.Fingerprint(),
	})
	if err != nil {
		t.Fatal(err)
	}
	contexts := make([]float32, 8*200)
	for i := range contexts {
		contexts[i] = float32(math.Sin(float64(i * i)))
	}
	if layer, err = l2s.New(l2s.Float32(contexts[:8*100], 8), nil); err != nil {
		t.Fatal(err)
	}
	made, err := preview.Make(t.Context(), layer, l2s.Float32(contexts, layer.Dim()), preview.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for how, x := range map[string]*l2s.Index{"l2s train makes a new file": screen, "make the preview again": made} {
		path := filepath.Join(t.TempDir(), "m")
		if err := x.Save(path); err != nil {
			t.Fatal(err)
		}
		file, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, version := range []uint32{0, 1, 99} {
			binary.LittleEndian.PutUint32(file[8:], version)
			if err := os.WriteFile(path, file, 0o666); err != nil {
				t.Fatal(err)
			}
			_, err := l2s.Load(path)
			if want := fmt.Sprintf("version: found %d, expected ", version); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), how) {
				t.Errorf("version %d of a %s: found the error %v, expected one with %q and %q", version, x.Kind(), err, want, how)
			}
		}
	}
}
