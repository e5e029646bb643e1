package heads

import (
	"os"
	"path/filepath"
	"runtime/metrics"
	"strings"
	"testing"
	"unicode"

	"github.com/learning-to-screen/l2s/internal/tests/gguftest"
)

func writeFile(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
}

// within runs f and checks the memory that it takes against the size of its input.
func within(t *testing.T, size int, f func()) {
	t.Helper()
	allocated := func() uint64 {
		sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	const perByte, fixed = 64, 16 << 20 // allocations by package testing meanwhile
	before := allocated()
	f()
	if got := allocated() - before; got > uint64(size)*perByte+fixed {
		t.Errorf("%d bytes were allocated for %d", got, size)
	}
}

// refused checks the error for a file.
func refused(t *testing.T, err error) {
	t.Helper()
	text := err.Error()
	if !strings.HasPrefix(text, "l2s: ") || !strings.Contains(text, "found ") || !strings.Contains(text, ", expected ") {
		t.Errorf("error %q, want one that names the value found and the value expected", text)
	}
	if len(text) > 4000 || strings.ContainsFunc(text, unicode.IsControl) {
		t.Errorf("an error of %d bytes: %q", len(text), text)
	}
}

// sane checks the promises of every head, from any file.
func sane(t *testing.T, h *Head) {
	t.Helper()
	rows := h.Rows()
	if rows.Len() != h.Labels() || rows.Dim() != h.Dim() || h.Labels() < 1 || h.Dim() < 1 || h.Bias() != nil && len(h.Bias()) != h.Labels() {
		t.Fatalf("%d x %d, rows %d x %d, %d numbers of bias", h.Labels(), h.Dim(), rows.Len(), rows.Dim(), len(h.Bias()))
	}
	if ids := h.IDs(); ids != nil {
		if len(ids) != h.Labels() {
			t.Fatalf("%d ids for %d rows", len(ids), h.Labels())
		}
		for _, id := range ids {
			if int(id) >= h.Vocabulary() {
				t.Fatalf("label %d of %d", id, h.Vocabulary())
			}
		}
	} else if h.Vocabulary() != h.Labels() {
		t.Fatalf("%d rows for %d labels", h.Labels(), h.Vocabulary())
	}
	if s, c := h.LogitScale(), h.SoftCap(); !inRange(s) || c != 0 && !inRange(c) {
		t.Fatalf("scale %v, cap %v", s, c)
	}
	if text := h.String(); strings.ContainsFunc(text, unicode.IsControl) {
		t.Errorf("%q has a control character", text)
	}
	row := make([]float32, h.Dim())
	for i := range min(h.Labels(), 1000) {
		rows.Widen(row, i)
	}
	if err := h.Check(); err != nil {
		refused(t, err)
	}
}

// A GGUF file of any bytes is refused, or its head can be read.
func FuzzGGUF(f *testing.F) {
	kv := gguftest.KV
	for _, file := range []gguftest.File{
		{Metadata: []gguftest.Value{kv("general.architecture", "granite"), kv("granite.logit_scale", float32(8)), kv("tokenizer.ggml.tokens", []string{"a", "[PAD1]"})},
			Tensors: []gguftest.Tensor{{Name: "output.weight", Dims: []uint64{2, 2}, Data: gguftest.Floats(1, 2, 3, 4)}, {Name: "output.bias", Dims: []uint64{2}, Data: gguftest.Floats(5, 6)}}},
		{Tensors: []gguftest.Tensor{{Name: "token_embd.weight", Type: gguftest.Q80, Dims: []uint64{32, 2}, Data: make([]byte, 68)}, {Name: "d2t", Type: 27, Dims: []uint64{2}, Data: append(make([]byte, 15), 1)}}},
		{Tensors: []gguftest.Tensor{{Name: "output.weight", Type: 14, Dims: []uint64{256, 1}, Data: make([]byte, 210)}, {Name: "d2t", Type: 26, Dims: []uint64{1}, Data: []byte{9, 0, 0, 0}}}},
		{Tensors: []gguftest.Tensor{{Name: "output.weight", Dims: []uint64{0, 3}}}},
	} {
		f.Add(file.Bytes())
	}
	path := filepath.Join(f.TempDir(), "x.gguf")
	f.Fuzz(func(t *testing.T, data []byte) {
		writeFile(t, path, data)
		within(t, len(data), func() {
			h, err := Open(path, Options{})
			if err != nil {
				refused(t, err)
				return
			}
			sane(t, h)
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		})
	})
}

// A folder whose files of JSON and whose tokenizer.model have any bytes is
// refused, or its head can be read.
func FuzzFolder(f *testing.F) {
	const index = `{"weight_map":{"lm_head.weight":"a.safetensors","lm_head.bias":"a.safetensors","model.embed_tokens.weight":"a.safetensors"}}`
	for _, config := range []string{
		`{"model_type":"gemma2","tie_word_embeddings":true,"vocab_size":2,"eos_token_id":[0]}`,
		`{"model_type":"granite","logits_scaling":8,"text_config":{"logit_scale":2}}`,
		`{"model_type":"mpt","logit_scale":"inv_sqrt_d_model","d_model":4}`, `{"model_type":"t5","d_model":0}`, `{"hidden_size":1e400}`, `[]`, ``,
	} {
		f.Add([]byte(config), []byte(index), []byte(`{"model":{"vocab":{"a":1}},"added_tokens":[{"id":0}]}`), []byte(`{"added_tokens_decoder":{"0":{}}}`), []byte("\x0a\x01x"))
	}
	f.Add([]byte(`{}`), []byte(`{"weight_map":{"shared.weight":"a.safetensors"}}`), []byte(`{"model":{"vocab":[["a",0]]}}`), []byte(`{"auto_map":{}}`), []byte("\x0a\x02xy\x0a\x00"))
	f.Add([]byte(`{}`), []byte(`{"weight_map":{"lm_head.weight":"../a.safetensors"}}`), []byte(``), []byte(`{}`), []byte("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	header := `{"lm_head.weight":{"dtype":"F32","shape":[3,2],"data_offsets":[0,24]},"lm_head.bias":{"dtype":"F32","shape":[3],"data_offsets":[24,36]},` +
		`"model.embed_tokens.weight":{"dtype":"BF16","shape":[3,2],"data_offsets":[36,48]}}`
	shard := append([]byte{byte(len(header)), byte(len(header) >> 8), 0, 0, 0, 0, 0, 0}, header...)
	shard = append(shard, make([]byte, 48)...)
	dir := f.TempDir()
	writeFile(f, filepath.Join(dir, "a.safetensors"), shard)
	f.Fuzz(func(t *testing.T, config, index, tokenizer, tokenizerConfig, pieces []byte) {
		size := len(shard)
		for name, data := range map[string][]byte{"config.json": config, "model.safetensors.index.json": index, "tokenizer.json": tokenizer,
			"tokenizer_config.json": tokenizerConfig, "tokenizer.model": pieces} {
			size += len(data)
			path := filepath.Join(dir, name)
			if name == "tokenizer.json" && len(data) == 0 { // so that the other tokenizer counts
				os.Remove(path)
				continue
			}
			writeFile(t, path, data)
		}
		within(t, size, func() {
			texts, err := Tokens(dir)
			switch {
			case err != nil:
				refused(t, err)
			case len(texts) == 0 && len(tokenizer) == 0:
				t.Error("a tokenizer without a piece")
			}
		})
		within(t, size, func() {
			h, err := Open(dir, Options{})
			if err != nil {
				if !os.IsNotExist(err) && !strings.Contains(err.Error(), "no such file") && !strings.Contains(err.Error(), "a folder, expected") && !strings.Contains(err.Error(), "file name too long") {
					refused(t, err)
				}
				return
			}
			sane(t, h)
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		})
	})
}
