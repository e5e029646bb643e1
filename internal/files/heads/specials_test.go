package heads

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/tests/gguftest"
)

func TestSpecials(t *testing.T) {
	// Pieces of the types unknown, control, control, normal (by default), byte.
	const pieces = "\x0a\x04\x0a\x00\x18\x02" + "\x0a\x05\x0a\x01a\x18\x03" + "\x0a\x05\x0a\x01b\x18\x03" + "\x0a\x03\x0a\x01c" + "\x0a\x05\x0a\x01d\x18\x06"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  []uint32
		err   string
	}{
		{"config.json", map[string]string{"config.json": `{"bos_token_id":1,"eos_token_id":[7,2],"pad_token_id":-1,"sep_token_id":null}`}, []uint32{1, 2, 7}, ""},
		{"its text model", map[string]string{"config.json": `{"eos_token_id":3,"text_config":{"bos_token_id":9,"eos_token_id":3}}`}, []uint32{3, 9}, ""},
		{"generation_config.json", map[string]string{"config.json": `{}`, "generation_config.json": `{"eos_token_id":[5,6],"temperature":0.5}`}, []uint32{5, 6}, ""},
		{"tokenizer.json", map[string]string{"config.json": `{}`, "tokenizer.json": `{"added_tokens":[{"id":4,"special":true,"content":"<s>"},{"special":false,"id":5},{"id":0,"special":true}],"model":{"vocab":{}}}`, "tokenizer.model": pieces}, []uint32{0, 4}, ""},
		{"tokenizer_config.json", map[string]string{"config.json": `{"eos_token_id":2}`, "tokenizer_config.json": `{"added_tokens_decoder":{"11":{"special":true},"12":{"content":"x","special":false},"13":{}}}`}, []uint32{2, 11}, ""},
		{"a broken added_tokens.json", map[string]string{"config.json": `{"eos_token_id":2}`, "added_tokens.json": `{"x":`}, []uint32{2}, ""},
		{"tokenizer.model", map[string]string{"config.json": `{}`, "tokenizer.model": pieces}, []uint32{0, 1, 2}, ""},
		{"a tokenizer.model of another kind", map[string]string{"config.json": `{"eos_token_id":2}`, "tokenizer.model": "IQ== 0\n"}, []uint32{2}, ""},
		{"none", map[string]string{"config.json": `{"vocab_size":4}`}, nil, "special tokens: found none, expected some"},
		{"no config.json", map[string]string{"tokenizer.json": `{}`}, nil, "no such file"},
		{"an id that is none", map[string]string{"config.json": `{}`, "tokenizer_config.json": `{"added_tokens_decoder":{"x":{"special":true}}}`}, nil, "found x in added_tokens_decoder, expected an id"},
		{"an id below 0", map[string]string{"config.json": `{}`, "tokenizer.json": `{"added_tokens":[{"id":-4,"special":true}]}`}, nil, "found the id -4, expected 0 to"},
		{"a file that ends too soon", map[string]string{"config.json": `{}`, "tokenizer.json": `{"added_tokens":[`}, nil, "tokenizer.json: tokens: found unexpected end of JSON input"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range c.files {
				writeFile(t, filepath.Join(dir, file), []byte(text))
			}
			ids, err := Specials(dir)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("found the error %v, expected %q in it", err, c.err)
				}
				return
			}
			if err != nil || !slices.Equal(ids, c.want) {
				t.Errorf("found %v, %v, expected %v", ids, err, c.want)
			}
		})
	}
}

func TestSpecialsOfGGUF(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sha256-x")
	types := []byte("\x09\x00\x00\x00\x05\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00" + "\x02\x00\x00\x00" + "\x01\x00\x00\x00" + "\x03\x00\x00\x00" + "\x06\x00\x00\x00") // unknown, normal, control, byte
	kv := gguftest.KV
	write := func(values ...gguftest.Value) { writeFile(t, path, gguftest.File{Metadata: values}.Bytes()) }
	write(kv("tokenizer.ggml.token_type", gguftest.Raw(types)), kv("tokenizer.ggml.eos_token_id", uint32(7)), kv("tokenizer.ggml.bos_token_id", uint32(2)), kv("tokenizer.ggml.padding_token_id", int32(-1)))
	if ids, err := Specials(path); err != nil || !slices.Equal(ids, []uint32{0, 2, 7}) {
		t.Errorf("found %v, %v", ids, err)
	}
	write(kv("general.architecture", "llama"))
	if _, err := Specials(path); err == nil || !strings.Contains(err.Error(), "special tokens: found none, expected some in the metadata tokenizer.ggml") {
		t.Errorf("found the error %v", err)
	}
}

func TestSpecialsOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.safetensors")
	writeFile(t, path, nil)
	if _, err := Specials(path + ":lm_head.weight"); err == nil || !strings.Contains(err.Error(), "found a file, expected the folder of a model") {
		t.Errorf("found the error %v, expected one that asks for a folder", err)
	}
}

// The model that the project was measured on has the three of Llama.
func TestSpecialsOfASharedModel(t *testing.T) {
	const dir = "../../../../shared/data/llm-65k"
	if _, err := os.Stat(dir); err != nil {
		t.Skip("../shared/data/llm-65k is not there (CONTRIBUTING.md, Data, describes it): ", err)
	}
	ids, err := Specials(dir)
	if err != nil || !slices.Equal(ids, []uint32{0, 1, 2}) {
		t.Errorf("found %v, %v, expected <unk>, <s> and </s>", ids, err)
	}
}

// With any files, special tokens are ids in order, or an error names the fault.
func FuzzSpecials(f *testing.F) {
	f.Add([]byte(`{"eos_token_id":[2]}`), []byte(`{"added_tokens":[{"id":0,"special":true}]}`), []byte(`{"added_tokens_decoder":{"0":{"special":true}}}`), []byte("\x0a\x04\x0a\x00\x18\x02"))
	f.Add([]byte(`{}`), []byte(``), []byte(`{}`), []byte("\x0a\x05\x0a\x01a\x18\x03"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, config, tokenizer, tokenizerConfig, pieces []byte) {
		size := 0
		for name, data := range map[string][]byte{"config.json": config, "tokenizer.json": tokenizer, "tokenizer_config.json": tokenizerConfig, "tokenizer.model": pieces} {
			size += len(data)
			path := filepath.Join(dir, name)
			if name == "tokenizer.json" && len(data) == 0 { // so that the other tokenizer counts
				os.Remove(path)
				continue
			}
			writeFile(t, path, data)
		}
		within(t, size, func() {
			ids, err := Specials(dir)
			if err != nil {
				refused(t, err)
				return
			}
			if len(ids) == 0 || !slices.IsSorted(ids) || len(slices.Compact(slices.Clone(ids))) != len(ids) {
				t.Errorf("found %v, expected ids in order", ids)
			}
		})
	})
}

// Files names all that Specials reads, so that no output replaces it.
func TestFilesNamesWhatSpecialsReads(t *testing.T) {
	dir := t.TempDir()
	names := []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "merges.txt", "special_tokens_map.json", "added_tokens.json"}
	for _, name := range []string{"extra.safetensors", "a-00001-of-00002.gguf", "b.gguf"} {
		writeFile(t, filepath.Join(dir, name), nil)
	}
	if !slices.Contains(Files(dir), filepath.Join(dir, "extra.safetensors")) {
		t.Errorf("found %v, expected every file that may have a head", Files(dir))
	}
	if part := filepath.Join(dir, "a-00001-of-00002.gguf"); !slices.Equal(Files(part), []string{part, filepath.Join(dir, "b.gguf")}) {
		t.Errorf("found %v, expected the other files of GGUF, too", Files(part))
	}
	// Parts may have names that do not tell, as in caches.
	for name, content := range map[string]string{"0a": "GGUF", "0b.bin": "GGUF", "0c": "text", "0d": ""} {
		writeFile(t, filepath.Join(dir, name), []byte(content))
	}
	if part := filepath.Join(dir, "0a"); !slices.Equal(Files(part), []string{part, filepath.Join(dir, "0b.bin"), filepath.Join(dir, "a-00001-of-00002.gguf"), filepath.Join(dir, "b.gguf")}) {
		t.Errorf("found %v, expected all files of GGUF", Files(part))
	}
	if other := filepath.Join(dir, "0c"); !slices.Equal(Files(other), []string{other}) {
		t.Errorf("found %v, expected the file alone", Files(other))
	}
	for _, name := range names {
		if path := filepath.Join(dir, name); !slices.Contains(Files(dir), path) {
			t.Errorf("found %v, expected %s", Files(dir), path)
		}
	}
}
